"""A text in which any phrase is found at once: a suffix array over token ids (REST, He et al. 2024)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from speclab.errors import SettingsError
from speclab.files import read_whole
from speclab.prompts import examples
from speclab.tree import Ints

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


BREAK = -1
"""Stands between two texts; no phrase goes over it."""


class Found(NamedTuple):
    """All places of a phrase of `length` tokens: the sorted suffixes from number `low` up to, not including, `high`."""

    low: int
    high: int
    length: int

    @property
    def places(self) -> int:
        """How often the phrase occurs."""
        return self.high - self.low


class SuffixArray:
    """The suffixes of `tokens` in sorted order, by prefix doubling: O(n log² n) once, then phrases in O(log n) a token.

    Args:
        tokens: ids, all at least 0, and `BREAK` between texts.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens: Ints = np.append(np.asarray(tokens, np.int64), BREAK)
        self._order = _sorted_suffixes(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens) - 1

    @property
    def everywhere(self) -> Found:
        """The empty phrase."""
        return Found(0, len(self._order), 0)

    def extended(self, found: Found, token: int) -> Found:
        """The places where `token` follows the phrase; none gives a count of 0."""
        low, high, length = found

        def following(number: int) -> int:
            return int(self.tokens[self._order[number] + length])

        numbers = range(low, high)
        return Found(
            low + bisect_left(numbers, token, key=following),
            low + bisect_right(numbers, token, key=following),
            length + 1,
        )

    def find(self, phrase: Sequence[int]) -> Found:
        """All places of a phrase."""
        found = self.everywhere
        for token in phrase:
            found = self.extended(found, token)
            if not found.places:
                break
        return found

    def following(self, found: Found) -> list[tuple[int, Found]]:
        """Every token that follows the phrase somewhere, with its places."""
        low, high, length = found
        column = self.tokens[self._order[low:high] + length]
        tokens, starts, counts = np.unique(column, return_index=True, return_counts=True)
        rows = zip(tokens.tolist(), starts.tolist(), counts.tolist(), strict=True)
        return [(t, Found(low + start, low + start + count, length + 1)) for t, start, count in rows if t != BREAK]


def _sorted_suffixes(tokens: Ints) -> Ints:
    """Start of every suffix, in sorted order: by the first token, the first two, four, … until all differ."""
    rank = np.unique(tokens, return_inverse=True)[1].astype(np.int64)
    span, n = 1, len(tokens)
    while True:
        after = np.zeros(n, np.int64)
        after[: max(n - span, 0)] = rank[span:] + 1
        key = rank * (n + 1) + after
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        rank = np.empty(n, np.int64)
        rank[order] = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])
        if rank[order[-1]] == n - 1:
            return order
        span *= 2


LARGEST = 1 << 24
"""Most characters that are indexed, some 4 million tokens; a bound for time and memory."""


def corpus(pair: ModelPair, place: str) -> SuffixArray:
    """The texts at `place`, indexed; the shipped prompts if it is empty. Built once a pair, anew when a file changes.

    A pair without a tokenizer has no use for the shipped prompts: their index is then empty.

    Raises:
        SettingsError: the place cannot be read, holds no text or too much, or the pair has no tokenizer to read it.
    """
    files = _files(place) if place else []
    key = f"corpus {place}: {[(str(file), file.stat().st_mtime_ns) for file in files]}"
    if key not in pair.shared_state:
        texts = [_read(file) for file in files] if place else [prompt.text for prompt in examples()]
        if sum(map(len, texts)) > LARGEST:
            raise SettingsError(f"The text at {place} is longer than {LARGEST:,} characters: give a part of it.")
        pair.shared_state[key] = SuffixArray(_encoded(pair, texts, place))
    found: SuffixArray = pair.shared_state[key]
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
