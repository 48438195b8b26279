"""Texts in which any phrase is found at once, with how often each token follows it: a suffix tree over token ids.

A node of the tree is a phrase, and its count the number of places where the phrase ends (SuffixDecoding, Oliaro et al.
2024; REST, He et al. 2024, keeps the same places as intervals of a suffix array). Here a node is those places, made
when it is asked for: the memory is that of the tokens, however long the phrases are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from speclab.errors import SettingsError
from speclab.files import read_whole
from speclab.prompts import examples

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


BREAK = -1
"""Stands between two texts; no phrase goes over it."""
SCANNED = 1 << 15
"""Tokens that are looked through for a phrase's last token; a longer text that does not grow is sorted once."""
Places = NDArray[np.intp]
"""A node: where its phrase ends, ascending, as the index of the token that follows; at least one place."""


class SuffixTree:
    """Every phrase of some texts; never changed once made.

    Args:
        tokens: ids, all at least 0, and `BREAK` between texts.
        grows: another takes its place soon, so that sorting would not pay.
    """

    def __init__(self, tokens: Sequence[int] | NDArray[Any] = (), *, grows: bool = False) -> None:
        self.tokens = np.append(np.asarray(tokens, np.int32), np.int32(BREAK))
        self._grows = grows

    def __len__(self) -> int:
        return len(self.tokens) - 1

    def extended(self, tokens: Sequence[int]) -> SuffixTree:
        """The tree of the same texts, the last of which goes on with `tokens`."""
        return SuffixTree(np.append(self.tokens[:-1], np.asarray(tokens, np.int32)), grows=True)

    def suffixes(self, phrase: Sequence[int]) -> list[Places]:
        """The nodes of the last 1, 2, … tokens of a phrase, as long as they occur."""
        found: list[Places] = []
        for back, token in enumerate(reversed(phrase)):
            # The place of a phrase of `back` tokens lies at least so far from the start; at -1 stands the last BREAK.
            places = found[-1][self.tokens[found[-1] - 1 - back] == token] if found else self._after(token)
            if not len(places):
                break
            found.append(places)
        return found

    def children(self, node: Places) -> list[tuple[int, Places]]:
        """Every token that follows the phrase somewhere, with the node of the phrase and this token; by token."""
        following = self.tokens[node]
        if len(node) == 1 or (following == following[0]).all():  # most nodes have one child: nothing to sort
            return [] if following[0] == BREAK else [(int(following[0]), node + 1)]
        order = np.argsort(following, kind="stable")
        ordered = following[order]
        parts = np.split(node[order] + 1, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
        return [(int(token), part) for part in parts if (token := self.tokens[part[0] - 1]) != BREAK]

    def _after(self, token: int) -> Places:
        if self._grows or len(self.tokens) <= SCANNED:
            return np.flatnonzero(self.tokens == token) + 1
        order, ordered = self._sorted
        low, high = np.searchsorted(ordered, [token, token + 1])
        return order[low:high] + 1

    @cached_property
    def _sorted(self) -> tuple[Places, NDArray[np.int32]]:
        order = np.argsort(self.tokens, kind="stable")
        return order, self.tokens[order]


LARGEST = 1 << 24
"""Most characters that are indexed, some 4 million tokens; a bound for time and memory."""


def corpus(pair: ModelPair, place: str) -> SuffixTree:
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
        if not place and pair.tokenizer is None:
            texts = []
        parts = [[*encoded(pair, text, place), BREAK] for text in texts]
        pair.shared_state[key] = SuffixTree([token for part in parts for token in part])
    found: SuffixTree = pair.shared_state[key]
    return found


def encoded(pair: ModelPair, text: str, place: str = "this text") -> list[int]:
    """Token ids of a text, no special tokens added.

    Raises:
        SettingsError: the pair has no tokenizer to read it with.
    """
    if pair.tokenizer is None:
        raise SettingsError(f"This pair has no tokenizer to read {place} with: pass tokenizer= to load_pair.")
    return list(pair.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


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
