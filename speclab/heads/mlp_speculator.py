"""IBM's MLP speculator (Wertheimer et al., arXiv 2404.19124): a small network for each depth.

Stage 0 reads the target's last state and the newest token; stage i reads the state of stage i - 1
at the parent and the token of the row. It projects the state, adds the token's embedding, norms the
sum, and its state leads to logits. The formulas are those of `MLPSpeculator.generate_suffixes`
(fms_extras/models/speculator.py in foundation-model-stack/fms-extras), which vLLM's
`MLPSpeculator.generate_proposals` (vllm/model_executor/models/mlp_speculator.py) repeats. Both end
at the last stage; here it runs again at deeper nodes. There is no attention and no cache.
"""

from __future__ import annotations

from math import sqrt

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from speclab.heads.layout import DraftModule, Folder, HeadConfig, Keys, Layout, Size, Tensors
from speclab.heads.runner import HeadRows, HeadRunner
from speclab.models.answer import Ids
from speclab.models.transfers import to_device

EPSILON = 1e-6  # of LayerNormParameterized (fms/modules/layernorm.py), which ignores the mean


class MlpConfig(HeadConfig):
    """Sizes of an MLP speculator.

    Attributes:
        inner_size: width of the states between its stages.
        stages: depths that it was trained for.
        tied: all stages share one set of weights, but for the first projection.
        scaled: the target's state is normed first.
    """

    inner_size: Size
    stages: int = Field(ge=1, le=64)
    tied: bool = False
    scaled: bool = False

    @property
    def kind(self) -> str:
        return "MLP speculator"


class MlpSpeculator(DraftModule):
    """The trained part, with the parameter names of the published folders."""

    config: MlpConfig

    def __init__(self, config: MlpConfig) -> None:
        super().__init__(config)
        inner = config.inner_size
        self.emb = nn.ModuleList()
        self.proj = nn.ModuleList()
        self.ln = nn.ModuleList()
        self.head = nn.ModuleList()
        for stage in range(config.stages):
            if stage < 2 or not config.tied:  # the first projection is never shared
                width = inner
                if stage == 0:
                    width = config.hidden_size
                self.proj.append(nn.Linear(width, inner, bias=False))
            if stage == 0 or not config.tied:
                self.emb.append(nn.Embedding(config.vocab_size, inner))
                self.ln.append(ShiftedNorm(inner, EPSILON))
                self.head.append(nn.Linear(inner, config.vocab_size, bias=False))

    def forward(self, tokens: Tensor, states: Tensor, stage: int) -> Tensor:
        """The states `[m, inner]` of rows at one depth.

        Args:
            tokens: `[m]`, the rows' own.
            states: at stage 0 the target's, `[m, hidden]`; then those of the parents, `[m, inner]`.
            stage: the depth of the rows.
        """
        config = self.config
        if stage == 0 and config.scaled:
            states = functional.rms_norm(states, states.shape[-1:], eps=EPSILON) / sqrt(2)
        # After all stages the target's state has half of the weight, and the tokens the other half.
        state_weight = 0.5 ** (0.5 / config.stages)
        token_weight = sqrt((1 - state_weight**2) * config.inner_size / 2)
        projected = _shared(self.proj, stage)(states)
        embedded = _shared(self.emb, stage)(tokens)
        # the norm undoes the division of the sum by the weight of the state
        mixed = projected + token_weight / state_weight * embedded
        return functional.gelu(_shared(self.ln, stage)(mixed))

    def logits(self, states: Tensor, stage: int) -> Tensor:
        """`[m, V]` of states `[m, inner]` of one stage."""
        output: Tensor = _shared(self.head, stage)(states)
        return output


class ShiftedNorm(nn.RMSNorm):
    """A norm with a scale and a shift."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__(size, eps=epsilon)
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.bias


def _shared(parts: nn.ModuleList, stage: int) -> nn.Module:
    """The part of a stage; the last one serves all stages after it."""
    return parts[min(stage, len(parts) - 1)]


class MlpRunner(HeadRunner, runs=MlpSpeculator):
    """An MLP speculator; its feature at a row is the state of the row's stage."""

    model: MlpSpeculator

    def compute(self, rows: HeadRows, *, last_only: bool) -> tuple[Tensor, Tensor]:
        self.keep_nothing(len(rows.tokens))
        tokens = to_device(self.shown(rows.tokens), self.device)
        if rows.depths is None:
            states = self.model(tokens, rows.features, 0)
            read = states
            if last_only:
                read = states[-1:]
            return self.model.logits(read, 0)[:, : self.vocab_size], states
        stages = [min(depth, self.config.stages - 1) for depth in rows.depths]
        states = rows.features.new_empty((len(stages), self.config.inner_size))
        logits = rows.features.new_empty((len(stages), self.config.vocab_size))
        for stage in set(stages):  # a pass may contain nodes of several depths
            level = [row for row, other in enumerate(stages) if other == stage]
            at = to_device(level, self.device)
            states[at] = self.model(tokens[at], rows.features[at], stage)
            logits[at] = self.model.logits(states[at], stage)
        return logits[:, : self.vocab_size], states

    def _ids(self) -> Ids | None:
        return self.ids_below(self.config.vocab_size)


class MlpKeys(Keys):
    """The folder of `MLPSpeculatorPreTrainedModel` (fms_extras/models/hf/modeling_mlp_speculator.py)."""

    vocab_size: int
    emb_dim: int
    inner_dim: int = 0
    n_predict: int
    tie_weights: bool = False
    scale_input: bool = False

    def head(self, folder: Folder) -> MlpSpeculator:
        if self.tie_weights:
            _drop_copies(folder.tensors)
        config = MlpConfig(
            name=folder.name,
            vocab_size=self.vocab_size,
            hidden_size=self.emb_dim,
            inner_size=self.inner_dim or self.emb_dim,
            stages=self.n_predict,
            tied=self.tie_weights,
            scaled=self.scale_input,
        )
        return MlpSpeculator.empty(config)


def _drop_copies(tensors: Tensors) -> None:
    """Drops what a pickle repeats of tied stages; a tensor that differs stays, and is refused."""
    for name in list(tensors):
        part, _, kind = name.split(".")
        first = f"{part}.0.{kind}"
        if part == "proj":
            first = "proj.1.weight"
        if name not in {first, "proj.0.weight"} and torch.equal(tensors[name], tensors[first]):
            del tensors[name]


MLP = Layout(
    MlpKeys,
    runs="MLP speculators",
    words="speculator",
    names=r"mlp_speculator|MLPSpeculator\w*",
    notes=("n_candidates", "top_k_tokens_per_head", "num_lookahead_tokens"),
    renamed=((r"^speculator\.", ""),),
)
