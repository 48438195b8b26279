"""Texts from the user's disk, or the shipped prompts', as token ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from speclab.errors import SettingsError
from speclab.files import read_whole
from speclab.prompts import examples
from speclab.sources.suffixes import BREAK, SuffixArray

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

LARGEST = 1 << 24
"""Most characters that are indexed, some 4 million tokens; a bound of ours, for time and memory."""


def corpus(pair: ModelPair, place: str) -> SuffixArray:
    """The texts at `place`, indexed; the shipped prompts if it is empty. Built once a pair, anew when a file changes.

    A pair without a tokenizer has no use for the shipped prompts: their index is then empty.

    Raises:
        SettingsError: the place cannot be read, holds no text or too much, or the pair has no tokenizer to read it.
    """
    files = _files(place) if place else []
    key = f"corpus {place}: {[(str(file), file.stat().st_mtime_ns) for file in files]}"
    if key not in pair.carried:
        texts = [_read(file) for file in files] if place else [prompt.text for prompt in examples()]
        if sum(map(len, texts)) > LARGEST:
            raise SettingsError(f"The text at {place} is longer than {LARGEST:,} characters: give a part of it.")
        pair.carried[key] = SuffixArray(_encoded(pair, texts, place))
    found: SuffixArray = pair.carried[key]
    return found


def _encoded(pair: ModelPair, texts: list[str], place: str) -> list[int]:
    if pair.tokenizer is None:
        if place:
            raise SettingsError(f"This pair has no tokenizer to read {place} with: pass tokenizer= to load_pair.")
        return []
    ids: list[int] = []
    for text in texts:
        ids += [*pair.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], BREAK]
    return ids


def _files(place: str) -> list[Path]:
    """The file, or all files of a folder that look like text, in order."""
    try:
        path = Path(place).expanduser()
        is_folder = path.is_dir()
    except (OSError, RuntimeError, ValueError):  # too long a name, no home directory
        raise SettingsError(f"There is no text at {place}: give a text file, or a folder of them.") from None
    if is_folder:
        files = sorted(file for file in path.rglob("*") if file.suffix in {".txt", ".md", ".py"} and file.is_file())
        if not files:
            raise SettingsError(f"The folder {place} holds no text (.txt, .md, .py): give another, or a file.")
        return files
    if not path.is_file():
        raise SettingsError(f"There is no text at {place}: give a text file, or a folder of them.")
    return [path]


def _read(file: Path) -> str:
    try:
        return read_whole(file, SettingsError, 4 * LARGEST).decode()
    except UnicodeDecodeError:
        raise SettingsError(f"{file} is no UTF-8 text: give a text file, or a folder of them.") from None
