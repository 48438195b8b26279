"""Two draft heads for a chat model, from stored texts: first a common base, then each on its own
kinds of text.

The heads have a draft vocabulary (as in EAGLE-3 and FR-Spec): the most frequent tokens of their
texts.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor
from torch.nn import functional

from speclab.errors import SpeclabError
from speclab.heads.eagle import EagleConfig, Head
from speclab.loading.presets import SMOLLM2
from training.answers import AnswersConfig, prompt_ids, write_answers
from training.head_export import save_head
from training.head_figures import HeadFiguresConfig, head_figures
from training.heads import ETA, Lesson, choose_tokens, unrolled_loss
from training.loop import CHECKPOINT, Recipe, Schedule, train
from training.states import Store

Subject = Literal["base", "chat", "code"]

# Relative frequency of each kind of text.
KINDS: dict[str, dict[str, float]] = {
    "base": {"chat": 1, "prose": 1, "correction": 1, "code": 1, "math": 1},
    "chat": {"chat": 1, "prose": 1, "correction": 1, "code": 0.2, "math": 0.2},
    "code": {"chat": 0.2, "prose": 0.1, "correction": 0.1, "code": 1, "math": 1},
}
EMBEDDINGS = 8.0  # factor of embeddings in training, which makes them as large as states
BASE_SCHEDULE = Schedule(minutes=33, peak_lr=3e-3, flat_until=0.6, final=0.25)
OWN_SCHEDULE = Schedule(minutes=13, peak_lr=2e-3, warm_up=0.02, flat_until=0.25, final=0.02)
# of the texts begin behind the chat template's system message, which is the same in all
FRAME = 3 / 4


class ChatHeadConfig(Recipe):
    """The shipped recipe of a head for a chat model."""

    subject: Subject = Field(
        description="What the head is trained on: its name and its kinds of text."
    )
    target: Path = Field(description="Folder of the target.")
    name: str = Field("SmolLM2-135M-Instruct", description="Name of the target.")
    texts: list[Path] = Field(
        [Path("checkpoints/smollm2/answers")], description="Folders of texts with states."
    )
    kept: tuple[int, ...] = Field(
        (8, 16, 24, -1), description="Layers whose states those texts hold."
    )
    start: Path | None = Field(
        None, description="Checkpoint of the base to start from; default: fresh weights."
    )
    out: Path = Field(
        Path("checkpoints/smollm2"),
        description="Folder; the head goes into a folder of its subject.",
    )
    layers: tuple[int, ...] = Field(
        (8, 16, 24), min_length=2, description="Layers that the head fuses."
    )
    feed_forward: int = Field(1344, ge=1, description="Width of the feed-forward part.")
    draft_vocab_size: int = Field(8192, ge=2, description="Tokens that the head drafts from.")
    schedule: Schedule = OWN_SCHEDULE  # that of the base is longer
    depth: int = Field(3, ge=1, description="How many rows deep a batch is unrolled.")
    decay: float = Field(0.9, gt=0, le=1, description="Weight of each further row in the loss.")
    eta: float = ETA
    feature_weight: float = Field(
        0.0, ge=0, description="Weight of the L1 distance to the target's states."
    )
    prompt_weight: float = Field(
        0.3, ge=0, description="Weight of a prompt's places beside the answer's, 1."
    )

    @model_validator(mode="before")
    @classmethod
    def _own_schedule(cls, given: dict[str, Any]) -> dict[str, Any]:
        if given.get("subject") == "base":
            return {"schedule": BASE_SCHEDULE} | given
        return given


class Windows:
    """Windows of positions of stored texts, shuffled again at every pass.

    Used like `Batches`, but `next` gives positions in the joined texts, not tokens. The texts and
    their states lie on `device`.
    """

    def __init__(
        self,
        stores: list[Store],
        kinds: dict[str, float],
        seed: int,
        frame: list[int],
        device: str = "cpu",
    ) -> None:
        tokens = torch.cat([store.tokens() for store in stores]).long() & 0xFFFF
        self.tokens = tokens.to(device)
        offsets = np.cumsum([0, *(store.length for store in stores)])
        self._stores = stores
        self._offsets = offsets
        self._states = [store.states().to(device) for store in stores]
        self.documents = []
        for store, offset in zip(stores, offsets, strict=False):
            for document in store.documents:
                if kinds.get(document.kind):
                    start = document.start + int(offset)
                    self.documents.append(document._replace(start=start))
        self._kinds = kinds
        self._seed = seed
        self._frame = torch.tensor(frame, device=device)
        self.texts = torch.zeros(len(self.tokens), dtype=torch.int32, device=device)
        self.answers = torch.zeros(len(self.tokens), dtype=torch.bool, device=device)
        for number, document in enumerate(self.documents):
            end = document.start + document.length
            self.texts[document.start : end] = number
            self.answers[document.start + document.prompt : end] = True
        self.taken = 0
        self._pass = -1
        self._places = np.zeros(0, dtype=np.int64)

    def state(self) -> int:
        """The data position, for a checkpoint."""
        return self.taken

    def restore(self, state: int) -> None:
        """Go to a position that `state` gave."""
        self.taken = state

    def next(self, sequences: int, length: int) -> NDArray[np.int64]:
        """`[sequences, length + 1]` places."""
        rows = []
        for _ in range(sequences):
            turn, window = divmod(self.taken, max(self._round(length), 1))
            if turn != self._pass:
                self._shuffle(turn)
            rows.append(self._places[window * length : window * length + length + 1])
            self.taken += 1
        return np.stack(rows)

    def _round(self, length: int) -> int:
        """Windows of a pass: as many as the shortest pass has."""
        share = sum(self._kinds[d.kind] * (d.length - len(self._frame)) for d in self.documents)
        return int(0.97 * share) // length - 1

    def _shuffle(self, turn: int) -> None:
        rng = np.random.default_rng([self._seed, turn])
        rows = []
        for number in rng.permutation(len(self.documents)):
            document = self.documents[number]
            if rng.random() < self._kinds[document.kind]:
                begin = document.start
                framed = torch.equal(self.tokens[begin : begin + len(self._frame)], self._frame)
                if framed and rng.random() < FRAME:
                    begin += len(self._frame)
                rows.append(np.arange(begin, document.start + document.length))
        self._places = np.concatenate(rows)
        self._pass = turn

    def states(self, places: Tensor) -> Tensor:
        """States `[..., width]` at `places`, bfloat16."""
        flat = places.flatten().to(self.tokens.device)
        width = self._stores[0].width
        out = torch.empty(len(flat), width, dtype=torch.bfloat16, device=flat.device)
        for offset, states in zip(self._offsets, self._states, strict=False):
            here = (flat >= offset) & (flat < offset + len(states))
            out[here] = states[flat[here] - int(offset)]
        return out.view(*places.shape, -1)

    def scale(self, columns: Tensor, path: Path) -> Tensor:
        """Divisors of the states' columns in training, computed once and kept in `path`.

        In some columns the first token's state is hundreds of times as large as all others.
        """
        if not path.is_file():
            sample = torch.randint(
                1, len(self.tokens), (4096,), generator=torch.Generator().manual_seed(0)
            )
            firsts = torch.tensor([document.start for document in self.documents[:64]])
            every, first = (self.states(places)[:, columns].float() for places in (sample, firsts))
            usual = 1.5 * every.abs().median(0).values
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(torch.maximum(usual, first.abs().amax(0) / 20).clamp(min=1e-4).cpu(), path)
        scale: Tensor = torch.load(path, weights_only=True)
        return scale


def frequent(windows: Windows, kinds: dict[str, float], size: int, vocab_size: int) -> Tensor:
    """The `size` ids most frequent in answers (prompts count a tenth), each kind by its share; ascending."""
    counts = torch.zeros(vocab_size, dtype=torch.float64)
    for document in windows.documents:
        ids = windows.tokens[document.start : document.start + document.length].cpu()
        share = torch.full((len(ids),), 0.1 * kinds[document.kind], dtype=torch.float64)
        share[document.prompt :] = kinds[document.kind]
        counts.index_add_(0, ids, share)
    return counts.argsort(descending=True, stable=True)[:size].sort().values


class Teacher:
    """Lessons out of windows: embeddings, scaled states, what the target would say, and what counts how much."""

    def __init__(
        self, windows: Windows, matrix: Tensor, ids: Tensor, config: ChatHeadConfig
    ) -> None:
        self._windows = windows
        self._matrix = matrix.to(config.device, torch.bfloat16)
        self._config = config
        self.output = self._matrix[ids.to(config.device)]
        self._drafted = torch.zeros(len(matrix), dtype=torch.bool, device=config.device)
        self._drafted[ids] = True
        hidden = matrix.shape[1]
        picked = [config.kept.index(layer) for layer in config.layers]
        self._columns = torch.cat([torch.arange(hidden * at, hidden * (at + 1)) for at in picked])
        self._last = slice(hidden * config.kept.index(-1), hidden * (config.kept.index(-1) + 1))
        self.scale = windows.scale(self._columns, config.out.parent / "scale.pt").to(config.device)

    @torch.no_grad()
    def lesson(self, places: Tensor) -> Lesson:
        """The lesson of `[B, P + 2]` places."""
        windows = self._windows
        depth = self._config.depth
        places = places.to(windows.tokens.device)
        tokens = windows.tokens[places]
        texts = windows.texts[places[:, 1:-1]]
        states = windows.states(places[:, :-1])
        read = states[:, :-1, self._columns] / self.scale.bfloat16()
        weights = torch.where(windows.answers[places[:, 2:]], 1.0, self._config.prompt_weight)
        weights[~self._drafted[tokens[:, 2:]]] *= 0.25  # the head cannot draft this token
        weights[windows.texts[places[:, 2:]] != texts] = 0
        for back in range(1, depth + 1):
            weights[:, back:][texts[:, back:] != texts[:, :-back]] = 0
        embeddings = functional.embedding(tokens[:, 1:-1], self._matrix) * EMBEDDINGS
        return Lesson(embeddings, read, states[:, 1:, self._last], weights, texts)


def train_chat_head(config: ChatHeadConfig) -> Head:
    """Train a head for a chat model, or go on from its checkpoint; returns it and writes it to `out/<subject>/head`."""
    base = config.out / "base" / CHECKPOINT
    config = config.model_copy(update={"out": config.out / config.subject})
    config.out.mkdir(parents=True, exist_ok=True)
    start = config.start
    if start is None and config.subject != "base":
        start = base
    matrix, settings = output_matrix(config.target)
    kinds = KINDS[config.subject]
    stores = [Store(path) for path in config.texts]
    windows = Windows(stores, kinds, config.seed, frame_ids(config.target), config.device)
    ids = frequent(windows, kinds, config.draft_vocab_size, len(matrix))
    teacher = Teacher(windows, matrix, ids, config)
    torch.manual_seed(config.seed)
    head = Head(shape_of(settings, config))
    if start is not None:
        if not start.is_file():
            raise SpeclabError(
                f"{start} is missing: train the base first, or name a checkpoint with --start."
            )
        head.load_state_dict(torch.load(start, weights_only=True)["model"])
    choose_tokens(head, ids)
    head.to(config.device)
    whole: Any = unrolled_loss
    if config.compile:
        whole = torch.compile(unrolled_loss, dynamic=False)

    def loss(places: Tensor) -> Tensor:
        lesson = teacher.lesson(places)
        out: Tensor = whole(
            head,
            lesson,
            teacher.output,
            config.depth,
            config.decay,
            config.feature_weight,
            config.eta,
        )
        return out

    # Reading the texts from disk cannot be compiled.
    train(config.model_copy(update={"compile": False}), head, windows, loss)
    head = finished(head.cpu(), teacher)
    save_head(head, config.out / "head")
    return head


def shape_of(settings: Any, config: ChatHeadConfig) -> EagleConfig:
    """The sizes of a head for a target of these settings."""
    return EagleConfig(
        name=config.subject, target=config.name, vocab_size=settings.vocab_size, hidden_size=settings.hidden_size,
        layers=config.layers, heads=settings.num_attention_heads, key_value_heads=settings.num_key_value_heads,
        feed_forward=config.feed_forward, norm_epsilon=1e-5, bias=False, draft_vocab_size=config.draft_vocab_size,
    )  # fmt: skip


def output_matrix(target: Path) -> tuple[Tensor, Any]:
    """The target's output matrix `[V, hidden]`, float32, and its settings."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    return model.get_output_embeddings().weight.detach(), model.config


def frame_ids(target: Path) -> list[int]:
    """The ids that every chat prompt begins with: the template's system message."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(target)
    first, second = (prompt_ids(tokenizer, text, chat=True) for text in ("A", "by"))
    same = [left == right for left, right in zip(first, second, strict=False)]
    return first[: same.index(False)]


def finished(head: Head, teacher: Teacher) -> Head:
    """The head as it is used: what training multiplied its inputs by is in its weights."""
    whole = copy.deepcopy(head)
    with torch.no_grad():
        whole.get_parameter("fuse.weight").div_(teacher.scale.cpu())
        whole.get_parameter("fc.weight")[:, : whole.config.hidden_size] *= EMBEDDINGS
    return whole


class WholeRecipe(BaseModel):
    """Everything behind the shipped heads, of whose parts each goes on where it stopped."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Path = Field(
        SMOLLM2,
        description="Folder of the target; default: where `speclab fetch smollm2` leaves it.",
    )
    corpus: Path | None = Field(
        None, description="Folder of the training text; default: SPECLAB_CORPUS."
    )
    prompts: Path | None = Field(
        None, description="Folder of held-out prompts (*.jsonl); without it nothing is measured."
    )
    out: Path = Field(
        Path("checkpoints/smollm2"), description="Folder for answers, checkpoints and heads."
    )
    answers: dict[str, Any] = Field({}, description="What `AnswersConfig` is to have besides.")
    heads: dict[str, Any] = Field({}, description="What `ChatHeadConfig` is to have besides.")
    figures: dict[str, Any] = Field({}, description="What `HeadFiguresConfig` is to have besides.")


def make_heads(recipe: WholeRecipe) -> dict[str, Any] | None:
    """The target's answers, the base, both heads and their agreement on held-out text; goes on where it stopped."""
    target = recipe.target
    out = recipe.out
    write_answers(
        AnswersConfig(target=target, corpus=recipe.corpus, out=out / "answers", **recipe.answers)
    )
    subjects: tuple[Subject, ...] = ("base", "chat", "code")
    for subject in subjects:
        shape = {"subject": subject, "target": target, "texts": [out / "answers"], "out": out}
        train_chat_head(ChatHeadConfig(**shape, **recipe.heads))
    if recipe.prompts is None:
        return None
    folders = [out / subject / "head" for subject in subjects[1:]]
    paths = {"answers": out / "held_out", "out": out / "figures.json"}
    return head_figures(
        HeadFiguresConfig(
            folders=folders, target=target, prompts=recipe.prompts, **paths, **recipe.figures
        )
    )
