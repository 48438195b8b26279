"""Models by name: the shipped mini family, and well-known targets on the hub, most with a draft, and what they need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from speclab.errors import INSTALL, ModelNotFoundError

MINI = Path(__file__).with_name("mini")
MINI_HEADS = Path(__file__).with_name("mini_heads")
SMOLLM2 = user_cache_path("speclab") / "smollm2-1" / "SmolLM2-135M-Instruct"
"""Where `speclab fetch smollm2` leaves the model, for any library to load; 1 counts the ways it has been converted."""
_SMOLLM2_HEADS = Path(__file__).with_name("smollm2_heads")
_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Preset:
    """A target, and a draft that shares its tokenizer; `draft` is None where a target has no small model of its kind.

    `target`, `draft`: hub ids, or folders. `target_parameters`, `draft_parameters`: how many, shared ones once.
    `tokenizer`: where it is, if not beside the target. `dtype`: None for the loader's default. `stored`: that of the
    published weights. `note`: what to know before choosing it. `heads`: folders of draft heads for the target. `hub`:
    the original on the hub of a target that `speclab fetch` brings; `download`: the bytes that it takes for that.
    `chat`: whether its tokenizer has a chat template.
    """

    target: str
    draft: str | None
    target_parameters: int
    draft_parameters: int
    note: str = ""
    tokenizer: str | None = None
    dtype: str | None = None
    stored: str = "bfloat16"
    heads: tuple[str, ...] = ()
    hub: str | None = None
    download: int = 0
    chat: bool = False

    @property
    def missing(self) -> bool:
        """Whether `speclab fetch` has to bring it first."""
        return self.hub is not None and not (Path(self.target) / "config.json").is_file()

    def weight_bytes(self, dtype: str = "float32") -> int:
        """Bytes of all weights; decoding takes about a fifth more (`speclab.models.memory`)."""
        return (self.target_parameters + self.draft_parameters) * _ITEM_BYTES[dtype]


_ALONE = "a target alone, of GOOSE's five"
_PICKLED = f"{_ALONE}; its weights are pickled: allow_pickle=True"
_EAGLE = "; EAGLE-2's head for it, as there: heads='yuhuili/EAGLE-{}'"

# Parameter counts follow from the published configs.
PRESETS = {
    "mini": Preset(
        str(MINI / "target"),
        str(MINI / "draft"),
        11_175_040,
        921_088,
        "shipped with speclab: runs anywhere",
        tokenizer=str(MINI / "tokenizer"),
        dtype="float32",
        stored="float16",
        heads=(str(MINI_HEADS / "prose"), str(MINI_HEADS / "code")),
    ),
    "smollm2": Preset(
        str(SMOLLM2),
        None,
        134_515_008,
        0,
        "a small chat model with draft heads of its own; speclab fetch smollm2 brings it",
        dtype="float32",
        stored="float16",
        heads=tuple(str(folder.parent) for folder in sorted(_SMOLLM2_HEADS.glob("*/head.json"))),
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        download=92_871_040,
        chat=True,
    ),
    "pythia-410m": Preset("EleutherAI/pythia-410m", "EleutherAI/pythia-70m", 405_334_016, 70_426_624, stored="float16"),
    "pythia-2.8b": Preset(
        "EleutherAI/pythia-2.8b",
        "EleutherAI/pythia-70m",
        2_775_208_960,
        70_426_624,
        "the pair of the DynaTree paper",
        stored="float16",
    ),
    "qwen3-4b": Preset("Qwen/Qwen3-4B", "Qwen/Qwen3-0.6B", 4_022_468_096, 596_049_920, chat=True),
    "qwen3-8b": Preset("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", 8_190_735_360, 596_049_920, chat=True),
    "llama3-8b": Preset(
        "meta-llama/Llama-3.1-8B",
        "meta-llama/Llama-3.2-1B",
        8_030_261_248,
        1_235_814_400,
        "gated: accept the licence on the hub first",
    ),
    "llama3-8b-instruct": Preset(
        "meta-llama/Meta-Llama-3-8B-Instruct",
        None,
        8_030_261_248,
        0,
        f"{_ALONE}; gated: accept the licence on the hub first" + _EAGLE.format("LLaMA3-Instruct-8B"),
        chat=True,
    ),
    "vicuna-7b": Preset(
        "lmsys/vicuna-7b-v1.3", None, 6_738_415_616, 0, _PICKLED + _EAGLE.format("Vicuna-7B-v1.3"), stored="float16"
    ),
    "vicuna-13b": Preset(
        "lmsys/vicuna-13b-v1.3", None, 13_015_864_320, 0, _PICKLED + _EAGLE.format("Vicuna-13B-v1.3"), stored="float16"
    ),
    "vicuna-33b": Preset("lmsys/vicuna-33b-v1.3", None, 32_528_943_616, 0, _PICKLED, stored="float16"),
    "smollm2-1.7b": Preset("HuggingFaceTB/SmolLM2-1.7B", "HuggingFaceTB/SmolLM2-135M", 1_711_376_384, 134_515_008),
    "gpt2-large": Preset(
        "openai-community/gpt2-large", "openai-community/gpt2", 774_030_080, 124_439_808, stored="float32"
    ),
    "gpt2-xl": Preset(
        "openai-community/gpt2-xl", "openai-community/gpt2", 1_557_611_200, 124_439_808, stored="float32"
    ),
}


def find(name: str) -> Preset:
    """A preset by name.

    Raises:
        ModelNotFoundError: there is none of this name, or the shipped models are missing.
    """
    if name not in PRESETS:
        known = ", ".join(PRESETS)
        raise ModelNotFoundError(f"There is no pair named {name!r}: choose one of {known}, or pass target= and draft=.")
    if name == "mini" and not (MINI / "target" / "config.json").is_file():
        raise ModelNotFoundError(f"The mini models are missing from this installation: {INSTALL} --force-reinstall.")
    return PRESETS[name]
