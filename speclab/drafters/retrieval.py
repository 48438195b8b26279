"""Retrieval: continuations of the last tokens in another text, as a tree by frequency (REST, He et
al. 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.drafters.candidates import Candidates
from speclab.drafters.cost import NodeBudget, with_node_budget
from speclab.errors import SettingsError
from speclab.files import read_whole
from speclab.prompts import examples
from speclab.trace.records import Event, Value

if TYPE_CHECKING:
    from speclab.pair import ModelPair

BREAK = -1
"""Separates two texts; no phrase crosses it."""
LARGEST = 1 << 24
"""Most characters to index, about 4 million tokens."""
_TEXTS = {".txt", ".md", ".py"}
Positions = NDArray[np.intp]
"""Where a phrase occurs, ascending: indices of the token after it."""


class Retrieval(Strategy):
    """A tree of the continuations that follow the longest match of the last tokens in your text,
    most frequent first.

    It pays if the output repeats that text; on the shipped prompts it does not.
    """

    group: ClassVar[str] = "training-free"

    text: str = Field(
        default="", description="a text file or a folder of them; empty: the shipped prompts"
    )
    longest_match: int = Field(
        default=16, ge=1, le=64, description="tokens of the longest match, tried first"
    )
    shortest_match: int = Field(default=2, ge=1, le=64, description="tokens of the shortest match")
    node_budget: NodeBudget = Field(default="auto", title="c")
    ascending = (("shortest_match", "longest_match"),)

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {"REST verifies 64 nodes and the root": cls(node_budget=65)}

    def drafter(self, pair: ModelPair) -> Drafter:
        return RetrievalDrafter(with_node_budget(self, pair.target), corpus(pair, self.text))


class RetrievalDrafter(Drafter):
    settings: Retrieval

    def __init__(self, settings: Retrieval, texts: Corpus) -> None:
        super().__init__(settings)
        self._texts = texts

    def draft(self, context: Context) -> Draft:
        s = self.settings
        tree = Candidates(context.tokens[-1])
        length, positions = self._texts.longest_match(context.tokens[-s.longest_match :])
        context.check()
        values: dict[str, Value] = {
            "match": 0,
            "occurrences": 0,
            "text_tokens": len(self._texts.tokens),
        }
        if not len(self._texts.tokens):
            values["by"] = "no text"
        elif length < s.shortest_match:
            values |= {"by": "no match", "shortest_match": s.shortest_match}
        else:
            values["by"] = "text"
            values.update(match=length, occurrences=len(positions))
            self._fill(tree, positions, context.max_depth)
        values["route"] = "retrieved" if len(tree) > 1 else "plain"
        return tree.draft(Event("route", None, values))

    def _fill(self, tree: Candidates, match: Positions, max_depth: int) -> None:
        """Adds the most frequent continuation, the oldest of equal ones, until the tree is full."""
        budget = self.settings.node_budget
        assert budget != "auto"
        waiting: list[tuple[int, int, int, int, float, Positions]] = []
        age = count()

        def offer(node: int, positions: Positions) -> None:
            if tree.depth[node] < max_depth:
                for token, after in self._texts.continuations(positions):
                    share = len(after) / len(positions)
                    heappush(waiting, (-len(after), next(age), node, token, share, after))

        offer(0, match)
        while waiting and len(tree) < budget:
            _, _, parent, token, share, after = heappop(waiting)
            offer(tree.add(parent, token, share, "retrieved"), after)


class Corpus:
    """Texts, indexed to find every occurrence of a phrase.

    Args:
        tokens: ids, all at least 0, and `BREAK` between texts.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = np.asarray(tokens, np.int64)
        self._padded = np.append(self.tokens, BREAK)
        order = np.argsort(self.tokens, kind="stable")
        self._positions = order + 1
        self._ordered = self.tokens[order]

    def longest_match(self, phrase: Sequence[int]) -> tuple[int, Positions]:
        """How many of a phrase's last tokens occur together in the texts, and where."""
        first, last = np.searchsorted(self._ordered, [phrase[-1], phrase[-1] + 1])
        positions: Positions = self._positions[first:last]
        if not len(positions):
            return 0, positions
        for length, token in enumerate(reversed(phrase[:-1]), start=1):
            longer = positions[self._padded[positions - 1 - length] == token]  # index -1 is a BREAK
            if not len(longer):
                return length, positions
            positions = longer
        return len(phrase), positions

    def continuations(self, positions: Positions) -> list[tuple[int, Positions]]:
        """Every token that follows a phrase, with the positions after phrase and token; by token."""
        following = self._padded[positions]
        tokens = np.unique(following[following != BREAK]).tolist()
        return [(token, positions[following == token] + 1) for token in tokens]


def corpus(pair: ModelPair, source: str) -> Corpus:
    """The texts at `path`, indexed; the shipped prompts if it is empty. Kept in the pair until a
    file changes.

    Without a tokenizer the shipped prompts cannot be read, so their index is empty.

    Raises:
        SettingsError: the path cannot be read, has no text or too much, or the pair has no
            tokenizer.
    """
    files = _files(source) if source else []
    key = f"corpus {source}: {[(str(file), file.stat().st_mtime_ns) for file in files]}"
    if key not in pair.shared_state:
        texts = (
            [_read(file) for file in files] if source else [prompt.text for prompt in examples()]
        )
        if sum(map(len, texts)) > LARGEST:
            raise SettingsError(
                f"The text at {source} is longer than {LARGEST:,} characters: choose a smaller "
                "part."
            )
        tokens: list[int] = []
        for text in texts if source or pair.tokenizer is not None else ():
            tokens += [*pair.plain_ids(text), BREAK]
        pair.shared_state[key] = Corpus(tokens)
    index: Corpus = pair.shared_state[key]
    return index


def _files(source: str) -> list[Path]:
    try:
        path = Path(source).expanduser()
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        files = [
            file for file in files if file.is_file() and (file == path or file.suffix in _TEXTS)
        ]
    except (OSError, RuntimeError, ValueError):  # too long a name, no home directory
        files = []
    if not files:
        raise SettingsError(
            f"There is no text at {source}: choose a .txt, .md or .py file, or a folder of them."
        )
    return files


def _read(file: Path) -> str:
    try:
        return read_whole(file, SettingsError, 4 * LARGEST).decode()
    except UnicodeDecodeError:
        raise SettingsError(
            f"{file} is not UTF-8 text: choose a text file, or a folder of text files."
        ) from None
