"""Models by name: the shipped mini family, SmolLM2, and well-known models on the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from speclab.errors import ModelNotFoundError
from speclab.files import cache_folder

_SHIPPED = Path(__file__).parents[1] / "models"
MINI = _SHIPPED / "mini"
MINI_HEADS = _SHIPPED / "mini_heads"
SMOLLM2 = cache_folder() / "smollm2-1" / "SmolLM2-135M-Instruct"
"""Where `speclab fetch smollm2` stores the model; 1 is the version of the conversion."""
_SMOLLM2_HEADS = _SHIPPED / "smollm2_heads"
_BLOCK = "block"


class Offer(NamedTuple):
    """What can draft beside a target, known before anything is loaded.

    `blocks`: which of the heads draft a whole block in one pass; None: not known yet.
    """

    name: str
    draft: bool
    heads: int
    blocks: tuple[int, ...] | None = None

    def __str__(self) -> str:
        drafts = []
        if self.draft:
            drafts.append("a draft model")
        if self.heads:
            drafts.append(f"draft heads 0 to {self.heads - 1}")
        return f"{self.name or 'the target'} offers {' and '.join(drafts) or 'no draft'}"


@dataclass(frozen=True)
class Preset:
    """A target and a draft with its tokenizer, or None if there is no small model of its kind."""

    target: str  # a hub id, or a folder
    draft: str | None
    parameters: int  # of both, from published configs
    tokenizer: str | None = None  # its folder, if not the target's
    dtype: str | None = None
    heads: tuple[str, ...] = ()  # folders of draft heads for the target, block heads last
    hub: str | None = None  # the original of a target that `speclab fetch` downloads
    download: int = 0  # bytes that `speclab fetch` downloads
    chat: bool = False  # its tokenizer has a chat template

    @property
    def missing(self) -> bool:
        """Whether `speclab fetch` has to download it first."""
        return self.hub is not None and not (Path(self.target) / "config.json").is_file()

    def offer(self, name: str) -> Offer:
        """What can draft for this target, called `name`."""
        blocks = [index for index, head in enumerate(self.heads) if Path(head).name == _BLOCK]
        return Offer(name, self.draft is not None, len(self.heads), tuple(blocks))

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights, in float16 if no dtype is named."""
        if self.dtype == "float32":
            return 4 * self.parameters
        return 2 * self.parameters


def _heads(folder: Path, *names: str) -> tuple[str, ...]:
    return tuple([str(folder / name) for name in names])


PRESETS = {
    "mini": Preset(  # shipped with speclab
        str(MINI / "target"),
        str(MINI / "draft"),
        12_096_128,
        tokenizer=str(MINI / "tokenizer"),
        dtype="float32",
        heads=_heads(MINI_HEADS, "prose", "code", _BLOCK),
    ),
    "smollm2": Preset(  # `speclab fetch smollm2` brings it; its heads are shipped
        str(SMOLLM2),
        None,
        134_515_008,
        dtype="float32",
        heads=_heads(_SMOLLM2_HEADS, "chat", "code", _BLOCK),
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        download=92_871_040,
        chat=True,
    ),
    "pythia-410m": Preset("EleutherAI/pythia-410m", "EleutherAI/pythia-70m", 475_760_640),
    # the pair of the DynaTree paper
    "pythia-2.8b": Preset("EleutherAI/pythia-2.8b", "EleutherAI/pythia-70m", 2_845_635_584),
    "qwen3-4b": Preset("Qwen/Qwen3-4B", "Qwen/Qwen3-0.6B", 4_618_518_016, chat=True),
    "qwen3-8b": Preset("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", 8_786_785_280, chat=True),
    # these two are gated: accept the licence on the hub first
    "llama3-8b": Preset("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B", 9_266_075_648),
    # one of GOOSE's five targets; EAGLE-2's head for it: heads="yuhuili/EAGLE-LLaMA3-Instruct-8B"
    "llama3-8b-instruct": Preset(
        "meta-llama/Meta-Llama-3-8B-Instruct", None, 8_030_261_248, chat=True
    ),
    "smollm2-1.7b": Preset(
        "HuggingFaceTB/SmolLM2-1.7B", "HuggingFaceTB/SmolLM2-135M", 1_845_891_392
    ),
    "gpt2-large": Preset("openai-community/gpt2-large", "openai-community/gpt2", 898_469_888),
    "gpt2-xl": Preset("openai-community/gpt2-xl", "openai-community/gpt2", 1_682_051_072),
}


def find(name: str) -> Preset:
    """A preset by name.

    Raises:
        ModelNotFoundError: the name is unknown.
    """
    if name not in PRESETS:
        names = ", ".join(PRESETS)
        raise ModelNotFoundError(
            f"There is no pair named {name!r}: choose one of {names}, or pass target= and draft=."
        )
    return PRESETS[name]
