"""EAGLE, EAGLE-3 and EAGLE-3.1 heads (Li et al. 2024, 2025): one decoder layer on the target's states.

At every position it reads the embedding of a token and a feature: the target's hidden states at the
position before it, or after a drafted token its own output there. EAGLE joins the two with a matrix
before its layer; in EAGLE-3 the layer's attention reads both side by side, each normed, and the
feature is fused from several layers of the target. EAGLE-3.1 first norms the states of each layer,
and feeds back its own output after its last norm.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cached_property
from typing import Any, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from speclab.heads.layer import (
    Angles,
    AngleTable,
    DecoderLayer,
    LayerConfig,
    LayerHead,
    LayerKeys,
    matrix,
    norm_of,
    normed,
)
from speclab.heads.layout import EMBEDDINGS, Folder, Layout, Size
from speclab.heads.runner import HeadRows, HeadRunner
from speclab.models.cache import KVCache
from speclab.models.transfers import to_device
from speclab.tree import Bools


class EagleConfig(LayerConfig):
    """Sizes and kind of an EAGLE head; norms are named as in the formats' configs.

    Attributes:
        target_hidden_size: if the layer is not as wide as the target.
        bias: of the joining matrix (EAGLE).
        eagle3: attention reads embedding and feature side by side.
        norm_before_fc: one norm over all fused states (EAGLE-3).
        fc_norm: a norm for the states of each fused layer (EAGLE-3.1).
        norm_before_residual: the residual begins at the normed feature (EAGLE-3).
        norm_output: what is fed back has gone through the last norm (EAGLE-3.1).
    """

    target_hidden_size: Size | None = None
    bias: bool = True
    eagle3: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False

    @property
    def kind(self) -> str:
        if not self.eagle3:
            return "EAGLE"
        if self.fc_norm or self.norm_output:
            return "EAGLE-3.1"
        return "EAGLE-3"

    @property
    def module(self) -> type[Head]:
        if self.eagle3:
            return Eagle3Head
        return Head

    @property
    def states_size(self) -> int:
        return self.target_hidden_size or self.hidden_size


class Head(LayerHead):
    """EAGLE's layer: a matrix joins embedding and feature before it.

    Parameters and buffers are named as in EAGLE's checkpoints. The layer that fuses the target's
    states is `fuse` in every kind of head, though EAGLE-3 calls it `fc`.
    """

    def __init__(self, config: EagleConfig, names: Container[str] = ()) -> None:
        super().__init__(config, names)
        size = config.hidden_size
        states = len(config.layers) * config.states_size
        self.fuse: nn.Linear | None = None
        if len(config.layers) > 1:
            self.fuse = matrix(states, size)
        self.fc = nn.Linear(2 * size, size, bias=config.bias)
        self.norm: nn.RMSNorm | None = None
        self.layers = nn.ModuleList([DecoderLayer(config, size)])

    def fused(self, states: Tensor) -> Tensor:
        """`[..., layers * states_size]` target states to the feature that the head reads, `[..., hidden]`."""
        if self.fuse is None:
            return states
        return cast("Tensor", self.fuse(states))

    def _read(self, embeddings: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """Where the residual begins, `[B, T, hidden]`, and what the attention reads."""
        x = self.fc(torch.cat((embeddings, features), dim=-1))
        return x, x

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        angles: Angles,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """One pass.

        Args:
            embeddings: `[B, T, hidden]`, of the rows' tokens.
            features: `[B, T, hidden]`, of the positions before them: from `fused`, or of an earlier
                pass.
            angles: from `rotary` at the rows' positions: `[T, head_dim]`, or `[1, head_dim]` if all
                are the same.
            mask: `[…, T, length + T]` bool, what each row sees; None: causal order, or one row that
                sees all.
            cache: stores the keys and values of the rows; None in training.

        Returns:
            Features `[B, T, hidden]`, the next input in place of `fused` states; `read_out` leads
            to logits.
        """
        x, read = self._read(embeddings, features)
        causal = mask is None and x.shape[1] > 1
        x = self.layers[0](x, read, read, angles, mask, cache, causal=causal)
        if self.config.norm_output:
            x = normed(self.norm, x)
        return x

    def read_out(self, features: Tensor) -> Tensor:
        """The input of the output matrix for features `[..., hidden]`."""
        if self.config.norm_output:
            return features
        return normed(self.norm, features)


class Eagle3Head(Head):
    """EAGLE-3's layer: its attention reads embedding and feature side by side, each normed."""

    def __init__(self, config: EagleConfig, names: Container[str] = ()) -> None:
        LayerHead.__init__(self, config, names)
        size = config.hidden_size
        states = len(config.layers) * config.states_size
        self.fuse = matrix(states, size)
        self.input_norm: nn.RMSNorm | None = None
        if config.norm_before_fc:
            self.input_norm = norm_of(config, states)
        self.fc_norm = nn.ModuleList()
        if config.fc_norm:
            self.fc_norm.extend(norm_of(config, config.states_size) for _ in config.layers)
        self.norm = norm_of(config)
        layer = DecoderLayer(config, 2 * size, "input_layernorm", "hidden_norm")
        self.layers = nn.ModuleList([layer])

    def fused(self, states: Tensor) -> Tensor:
        if self.config.fc_norm:
            parts = states.split(self.config.states_size, dim=-1)
            states = torch.cat(list(map(normed, self.fc_norm, parts)), dim=-1)
        return super().fused(normed(self.input_norm, states))

    def _read(self, embeddings: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        layer = cast("Any", self.layers[0])
        hidden = normed(layer.hidden_norm, features)
        read = torch.cat((normed(layer.input_layernorm, embeddings), hidden), dim=-1)
        if self.config.norm_before_residual:
            return hidden, read
        return features, read


class EagleRunner(HeadRunner, runs=Head):
    """An EAGLE head of any version."""

    @cached_property
    def _angles(self) -> AngleTable:
        return AngleTable(self.config, self.device, self.dtype)

    def compute(self, rows: HeadRows, *, last_only: bool) -> tuple[Tensor, Tensor]:
        features = rows.features
        if rows.depths is None:
            features = self.model.fused(features)
        embedded = self._embed(to_device(self.shown(rows.tokens), self.device))
        mask = self._mask(rows.visible, len(rows.tokens))
        angles = self._angles.at(rows.positions)
        out: Tensor = self.packed()(embedded[None], features[None], angles, mask, self.cache)[0]
        read = out
        if last_only:
            read = out[-1:]
        return self._logits_of(self.model.read_out(read)), out

    def _mask(self, visible: Bools | None, rows: int) -> Tensor | None:
        """`[rows, length + rows]` bool, or None if every row sees all, or the cache is empty."""
        if visible is None or (rows == 1 and visible.all()):
            return None
        mask = torch.ones((rows, self.length + rows), dtype=torch.bool, device=self.device)
        mask[:, mask.shape[1] - visible.shape[1] :] = to_device(visible, self.device)
        return mask


FLAGS = ("norm_before_fc", "norm_before_residual", "fc_norm", "norm_output")


class EagleKeys(LayerKeys):
    """A folder of SafeAILab's, SpecForge's, NVIDIA's or speculators'.

    vLLM and speculators count the inputs of layers, which are indices of `hidden_states`. In
    `eagle_config` a first id of 1 means that outputs are counted, each one later
    (sgl-project/sglang #25454): no head reads the input of layer 1. Engines join the states in the
    order of the layers, whatever the order of the ids.
    """

    target_hidden_size: int | None = None
    eagle_aux_hidden_state_layer_ids: tuple[int, ...] = ()
    eagle_config: dict[str, Any] = Field({})
    norm_before_fc: bool = False
    norm_before_residual: bool = False
    fc_norm: bool = False
    norm_output: bool = False

    def head(self, folder: Folder) -> Head:
        """EAGLE-3 if the head norms the states that it reads, else EAGLE."""
        tensors = folder.tensors
        fields = self.layer(folder)
        attention = "layers.0.self_attn."
        fields["attention_bias"] = f"{attention}q_proj.bias" in tensors
        if fields["attention_bias"]:  # Qwen2's output matrix has none
            tensors.setdefault(f"{attention}o_proj.bias", torch.zeros(fields["hidden_size"]))
        fields["qk_norm"] = f"{attention}q_norm.weight" in tensors
        fields["target_hidden_size"] = self.target_hidden_size
        if "layers.0.hidden_norm.weight" not in tensors:
            tensors.pop(EMBEDDINGS, None)  # the target's
            tensors.pop("norm.weight", None)  # EAGLE applies none
            return Head.empty(EagleConfig(bias="fc.bias" in tensors, **fields), tensors)
        for name in list(tensors):
            if name.startswith("fc."):
                tensors[f"fuse.{name.removeprefix('fc.')}"] = tensors.pop(name)
        fields["layers"] = self._layers(folder.target.text_config.num_hidden_layers)
        for name in FLAGS:
            fields[name] = self.eagle_config.get(name, getattr(self, name))
        if self.eagle_config.get("return_hidden_post_norm"):  # TensorRT-LLM's name
            fields["norm_output"] = True
        return Eagle3Head.empty(EagleConfig(eagle3=True, **fields), tensors)

    def _layers(self, depth: int) -> list[int]:
        """The layers that an EAGLE-3 head fuses, of a target of `depth`, counted by their inputs."""
        layers = list(self.eagle_aux_hidden_state_layer_ids)
        if not layers:
            layers = self.eagle_config.get("eagle_aux_hidden_state_layer_ids") or []
            if layers and min(layers) == 1:
                layers = [output + 1 for output in layers]
        if not layers:
            layers = [2, depth // 2, max(depth - 3, 0)]
        if depth in layers:
            raise ValueError(
                f"layers {sorted(layers)}: the last is read before the target's final norm"
            )
        return sorted(layers)


EAGLE = Layout(
    EagleKeys,
    runs="EAGLE and EAGLE-3 heads",
    words="eagle|speculators_",
    names=r"|eagle3|\w*Eagle3?\w*|LlamaForCausalLM",
    marks=("fc.weight", "model.fc.weight"),
    nested=("transformer_layer_config",),
    notes=("rope_", "speculators_", "target_model_type", "truncated_vocab_size"),
    renamed=((r"^model\.", ""), (r"^midlayer\.", "layers.0.")),
    unread=r"^verifier_|rotary_emb\.|inv_freq$",
)
