"""Retrieval: continuations of the last tokens in another text, as a tree by frequency (REST, He et
al. 2024).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.drafters.candidates import Candidates
from speclab.drafters.cost import NodeBudget
from speclab.drafters.suffix import BREAK, SuffixAutomaton, add_frequent
from speclab.errors import SettingsError
from speclab.files import read_whole
from speclab.prompts import examples
from speclab.trace.records import Event, Value

if TYPE_CHECKING:
    from speclab.pair import ModelPair

LARGEST = 1 << 21
"""Most characters to index: about half a million tokens, which take 3 s and 400 MB."""
_TEXTS = {".txt", ".md", ".py"}


class Retrieval(Strategy):
    """A tree of the continuations that follow the longest match of the last tokens in your text,
    most frequent first.

    It pays if the output repeats that text; on the shipped prompts it does not.
    """

    group: ClassVar[str] = "training-free"
    paths: ClassVar[tuple[str, ...]] = ("text",)

    text: str = Field("", description="a text file or a folder of them; empty: the shipped prompts")
    longest_match: int = Field(
        16, ge=1, le=64, description="tokens of the longest match, tried first"
    )
    shortest_match: int = Field(2, ge=1, le=64, description="tokens of the shortest match")
    node_budget: NodeBudget = Field("auto", title="c")
    ascending = (("shortest_match", "longest_match"),)

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {"REST verifies 64 nodes and the root": cls(node_budget=65)}

    def drafter(self, pair: ModelPair) -> Drafter:
        return RetrievalDrafter(self, corpus(pair, self.text))


class RetrievalDrafter(Drafter):
    settings: Retrieval

    def __init__(self, settings: Retrieval, texts: SuffixAutomaton) -> None:
        super().__init__(settings)
        self._texts = texts

    def draft(self, context: Context) -> Draft:
        s = self.settings
        tree = Candidates(context.tokens[-1])
        state, length = self._texts.match(context.tokens[-s.longest_match :])
        context.check()
        values: dict[str, Value] = {
            "match": 0,
            "occurrences": 0,
            "text_tokens": len(self._texts.tokens),
        }
        if not self._texts.tokens:
            values["by"] = "no text"
        elif length < s.shortest_match:
            values |= {"by": "no match", "shortest_match": s.shortest_match}
        else:
            values |= {"by": "text", "match": length, "occurrences": state.count}
            add_frequent(
                tree, self._texts, state, s.number_of_nodes, context.max_depth, "retrieved"
            )
        values["route"] = tree.way("retrieved")
        return tree.draft([Event("route", None, values)])


def corpus(pair: ModelPair, source: str) -> SuffixAutomaton:
    """The texts at `source`, indexed; the shipped prompts if it is empty. Kept in the pair until a
    text changes.

    Without a tokenizer the shipped prompts cannot be read, so their index is empty.

    Raises:
        SettingsError: the path cannot be read, has no text or too much, or the pair has no
            tokenizer.
    """
    if source:
        texts = _texts(source)
    else:
        texts = [prompt.text for prompt in examples()]
    if sum(map(len, texts)) > LARGEST:
        raise SettingsError(
            f"The text at {source} is longer than {LARGEST:,} characters: choose a smaller part."
        )
    key = f"corpus {source}: {hash(tuple(texts))}"
    if key not in pair.shared_state:
        if pair.tokenizer is None and not source:
            texts = []
        tokens: list[int] = []
        for text in texts:
            tokens += pair.plain_ids(text)
            tokens.append(BREAK)
        pair.shared_state[key] = SuffixAutomaton.of(tokens)
    index: SuffixAutomaton = pair.shared_state[key]
    return index


def _texts(source: str) -> list[str]:
    path = Path(os.path.expanduser(source))
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix in _TEXTS and file.is_file())
    try:
        texts = [read_whole(file, SettingsError, 4 * LARGEST).decode() for file in files]
    except UnicodeDecodeError:
        texts = []
    if not any(texts):
        raise SettingsError(
            f"There is no UTF-8 text at {source}: choose a .txt, .md or .py file, or a folder of them."
        )
    return texts
