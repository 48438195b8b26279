"""GGUF files, as llama.cpp has them: what one holds by its header, and a tokenizer and plain weights out of it.

The header is read here, in an instant, so that what is damaged or cannot be read rightly is refused with its reason
before the library, which takes half a minute for 135 M parameters, has begun. Format: ggml's `docs/gguf.md`.
"""

from __future__ import annotations

import json
import mmap
import struct
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from speclab.errors import ModelNotFoundError, UnsupportedModelError

_VERSIONS = (2, 3)
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_DIGIT_BY_DIGIT = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell"})
_KNOWN_SPLITS = _DIGIT_BY_DIGIT | {"gpt-2", "llama3", "llama-v3", "llama-bpe", "qwen2", "deepseek-r1-qwen", "tekken"}
"""Ways to split text before its bytes are merged (`tokenizer.ggml.pre`) that are read as they are meant."""


@dataclass(frozen=True)
class Header:
    """What a GGUF file says of itself: its values by key (of arrays their length), and how many parameters it holds."""

    values: dict[str, Any]
    parameters: int

    @property
    def splits_text_rightly(self) -> bool:
        """Whether its tokenizer is one whose first step is known; sentencepiece has none."""
        model, pre = (self.values.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
        return model != "gpt2" or pre in _KNOWN_SPLITS


def file_of(source: str | PathLike[str]) -> Path | None:
    """The GGUF file that is meant: one by its path, or the one of a folder that holds no model of another format.

    Raises:
        ModelNotFoundError: the folder holds several.
    """
    try:
        path = Path(source).expanduser()
        if path.suffix.lower() == ".gguf" and path.is_file():
            return path
        found = sorted(path.glob("*.gguf")) if path.is_dir() and not (path / "config.json").is_file() else []
    except (OSError, RuntimeError, ValueError):  # too long a name, no home directory, a NUL
        return None
    if len(found) > 1:
        raise ModelNotFoundError(f"The folder {source} holds {len(found)} GGUF files: name one, as {found[0]}.")
    return found[0] if found else None


def read_header(path: Path) -> Header:
    """The header of a GGUF file, checked against the file's length.

    Raises:
        ModelNotFoundError: it is no GGUF file, cannot be read, or is damaged.
        UnsupportedModelError: the library would not read it, or would read it wrongly.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            values, tensors, needed = _parse(data)
            size = len(data)
    except (struct.error, UnicodeDecodeError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise _damaged(path, str(error)) from None
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from None
    if size < needed:
        raise _damaged(path, f"it has {size:,} bytes and its weights end at {needed:,}")
    if reason := _unread(values, tensors):
        raise UnsupportedModelError(f"{path.name} cannot be loaded: {reason}; choose another file, or safetensors.")
    return Header(values, sum(tensors.values()))


def tokenizer(path: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a GGUF file, with its chat template; None if it has none. Takes seconds.

    Raises:
        UnsupportedModelError: it splits text in a way that is not known here.
        Exception: whatever the library raises.
    """
    header = read_header(path)
    if "tokenizer.ggml.tokens" not in header.values:
        return None
    if not header.splits_text_rightly:
        raise UnsupportedModelError(
            f"{path.name} splits text as {header.values.get('tokenizer.ggml.pre', 'nothing says')!r}, which is not "
            "known here: pass tokenizer= with the original's."
        )
    loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    backend = getattr(loaded, "backend_tokenizer", None)
    if header.values.get("tokenizer.ggml.pre") in _DIGIT_BY_DIGIT and isinstance(backend, Tokenizer):
        # The library leaves GPT-2's way, which takes the space before a number into it.
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    return _without_surplus(loaded, header.values["tokenizer.ggml.tokens"])


def _without_surplus(loaded: PreTrainedTokenizerBase, count: int) -> PreTrainedTokenizerBase:
    """The same tokenizer without the tokens that the library's classes add of themselves behind the file's own."""
    if len(loaded) <= count:
        return loaded
    state = json.loads(loaded.backend_tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < count]
    names = {token["content"] for token in state["added_tokens"]} | state["model"]["vocab"].keys()
    special = {role: token for role, token in loaded.special_tokens_map.items() if str(token) in names}
    backend = Tokenizer.from_str(json.dumps(state))
    return PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=loaded.chat_template, **special)


def make_plain(model: PreTrainedModel) -> None:
    """Takes off what the library leaves on a model out of a GGUF file, though its weights are plain numbers."""
    model.hf_quantizer = None  # type: ignore[assignment]
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def _unread(values: dict[str, Any], tensors: dict[str, int]) -> str:
    """Why the library would not read a file, or not rightly; empty where nothing speaks against it."""
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    family = values.get("general.architecture")
    scaling = values.get(f"{family}.rope.scaling.type", "none")
    if family not in GGUF_SUPPORTED_ARCHITECTURES:
        return f"its architecture {family!r} is unknown to transformers"
    if f"{family}.block_count" not in values:  # the library would make a model of its own default size
        return "it does not say how many layers its model has"
    if values.get("split.count", 1) > 1:
        return f"it is one of {values['split.count']} parts (llama-gguf-split --merge joins them)"
    if scaling != "none" or "rope_freqs.weight" in tensors:
        return "its positions are scaled, which transformers leaves out when it reads GGUF"
    return ""


def _parse(data: mmap.mmap) -> tuple[dict[str, Any], dict[str, int], int]:
    """Values by key; elements of tensors by name; the byte at which the last tensor ends."""
    from gguf import GGML_QUANT_SIZES

    if data[:4] != b"GGUF":
        raise ValueError("it does not begin as GGUF files do")
    version, tensor_count, value_count = struct.unpack_from("<IQQ", data, 4)
    if version not in _VERSIONS:
        raise ValueError(f"version {version} of the format is none of {_VERSIONS}")
    at, values = 24, {}
    for _ in range(value_count):
        key, at = _string(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        values[key], at = _value(data, at + 4, kind)
    tensors, end = {}, 0
    for _ in range(tensor_count):
        name, at = _string(data, at)
        (axes,) = struct.unpack_from("<I", data, at)
        *shape, kind, offset = struct.unpack_from(f"<{axes}QIQ", data, at + 4)
        at += 16 + 8 * axes
        if kind not in GGML_QUANT_SIZES:
            raise ValueError(f"{name} is stored in a way of number {kind}, which is unknown")
        per_block, block_bytes = GGML_QUANT_SIZES[kind]
        tensors[name] = prod(shape)
        end = max(end, offset + tensors[name] // per_block * block_bytes)
    alignment = values.get("general.alignment", 32)
    return values, tensors, -(-at // alignment) * alignment + end


def _value(data: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    """One value, of an array its length, and where the next begins."""
    if kind == _STRING:
        return _string(data, at)
    if kind in _SCALARS:
        (value,) = struct.unpack_from(f"<{_SCALARS[kind]}", data, at)
        return value, at + struct.calcsize(_SCALARS[kind])
    if kind != _ARRAY:
        raise ValueError(f"a value is of kind {kind}, which is unknown")
    item, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if item in _SCALARS:
        return count, at + count * struct.calcsize(_SCALARS[item])
    for _ in range(count):
        _, at = _value(data, at, item)
    return count, at


def _string(data: mmap.mmap, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    end = at + 8 + length
    if end > len(data):
        raise ValueError("it ends inside its header")
    return data[at + 8 : end].decode(), end


def _damaged(path: Path, why: str) -> ModelNotFoundError:
    return ModelNotFoundError(f"{path.name} is no whole GGUF file ({why[:160]}): fetch it again.")
