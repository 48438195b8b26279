"""GGUF files of llama.cpp, converted once to a folder of safetensors in the user's cache."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from os import PathLike
from pathlib import Path
from secrets import token_hex
from typing import Any

import torch
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from speclab.errors import ModelNotFoundError, UnsupportedModelError
from speclab.files import cache_folder, create_in_cache
from speclab.loading.library_errors import one_sentence

_DIGIT_BY_DIGIT = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell"})
_KNOWN_SPLITS = _DIGIT_BY_DIGIT | {
    "gpt-2",
    "llama3",
    "llama-v3",
    "llama-bpe",
    "qwen2",
    "deepseek-r1-qwen",
    "tekken",
}
"""Pre-tokenizers (`tokenizer.ggml.pre`) that are read correctly."""


def local(source: str | PathLike[str]) -> Path | None:
    """The file or folder at a path, if there is one."""
    try:
        path = Path(source).expanduser()
        if path.exists():
            return path
    except (OSError, RuntimeError, ValueError):  # too long a name, no home directory, a NUL
        pass
    return None


def file_of(source: str | PathLike[str]) -> Path | None:
    """The GGUF file of a path: the file itself, or the only one in a folder without a model of
    another format.

    Raises:
        ModelNotFoundError: the folder has several.
    """
    path = local(source)
    if path is None or (path / "config.json").is_file():
        return None
    files = sorted(path.glob("*.gguf"))
    if path.suffix.lower() == ".gguf" and path.is_file():
        return path
    if len(files) > 1:
        raise ModelNotFoundError(
            f"The folder {source} has {len(files)} GGUF files: choose one, such as {files[0]}."
        )
    return next(iter(files), None)


def converted(file: Path, report: Callable[[str], None]) -> Path:
    """The folder in the cache with a file's model and tokenizer in float32, converted on the first call."""
    status = file.stat()
    key = hashlib.sha256(
        f"{file.resolve()} {status.st_size} {status.st_mtime_ns}".encode()
    ).hexdigest()
    folder = cache_folder() / "gguf" / f"{file.stem}-{key[:12]}"
    if not folder.is_dir():
        convert(file, folder, torch.float32, report)
    return folder


def convert(file: Path, folder: Path, dtype: torch.dtype, report: Callable[[str], None]) -> None:
    """Writes a file's model and tokenizer as a folder of safetensors, whole or not at all.

    Raises:
        ModelNotFoundError: the file is damaged, or the cache cannot be written.
        UnsupportedModelError: transformers cannot read it, or would read it wrongly.
    """
    partial = folder.with_name(f".{folder.name}-{token_hex(4)}")
    try:
        with one_sentence(file.name, "model"), redirect_stderr(StringIO()):  # the library's bars
            create_in_cache(partial)
            report(f"Converting {file.name} once: its tokenizer…")
            tokenizer = _tokenizer(file, _checked_header(file))
            if tokenizer is not None:
                tokenizer.save_pretrained(partial)
            report(
                f"Converting {file.name} once: its weights, which takes minutes for a large model…"
            )
            model: Any = AutoModelForCausalLM.from_pretrained(
                file.parent,
                gguf_file=file.name,
                dtype=torch.float32,
                trust_remote_code=False,
            )
            model.hf_quantizer = None  # the weights are dequantised now
            if hasattr(model.config, "quantization_config"):
                del model.config.quantization_config
            model.config.name_or_path = ""
            model.to(dtype).save_pretrained(partial)
            (partial / "model.safetensors").chmod(0o644)  # safetensors writes for the owner alone
            if not folder.is_dir():  # another process may have been faster
                partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _checked_header(file: Path) -> dict[str, Any]:
    """The file's fields of one value.

    Raises:
        UnsupportedModelError: the library would read the file wrongly.
    """
    from gguf import GGUFReader

    reader = GGUFReader(file)
    fields = {}
    for name, field in reader.fields.items():
        if len(field.data) == 1:  # not a list, such as the tokens
            fields[name] = field.contents()
    scaling = fields.get(f"{fields['general.architecture']}.rope.scaling.type", "none")
    reason = ""
    if scaling != "none" or any(tensor.name == "rope_freqs.weight" for tensor in reader.tensors):
        reason = "its positions are scaled, which transformers ignores when it reads GGUF"
    elif fields.get("split.count", 1) > 1:
        reason = (
            f"it is one of {fields['split.count']} parts (join them with llama-gguf-split --merge)"
        )
    if reason:
        raise UnsupportedModelError(
            f"{file.name} cannot be loaded: {reason}; choose another file, or safetensors."
        )
    return fields


def _tokenizer(file: Path, values: dict[str, Any]) -> PreTrainedTokenizerBase | None:
    """The tokenizer with its chat template; None if the file has none, or one that would split text wrongly."""
    split = values.get("tokenizer.ggml.pre")
    model = values.get("tokenizer.ggml.model")
    if model is None or (model == "gpt2" and split not in _KNOWN_SPLITS):
        return None
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        file.parent, gguf_file=file.name, trust_remote_code=False
    )
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if split in _DIGIT_BY_DIGIT and isinstance(backend, Tokenizer):
        # The library uses GPT-2's splitting, which joins a space to the number after it.
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    return tokenizer
