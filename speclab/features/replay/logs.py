"""Replays of recorded answers without a model: what each training-free strategy would have accepted.

A known answer decides which drafted tokens its target accepts, so the decoding loop runs as in
`replayer`, on a target that knows nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from speclab.drafters import from_str
from speclab.drafters.base import Strategy
from speclab.drafters.suffix import BREAK, SuffixAutomaton
from speclab.drafters.suffix_decoding import EARLIER
from speclab.errors import NotRecordedError, PromptError, SpeclabError
from speclab.features.replay.known_text import Place, Text
from speclab.features.replay.replayer import Replayer
from speclab.loading.loader import Loader
from speclab.loading.presets import find
from speclab.models.answer import TopTokens
from speclab.models.cache import KVCache
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.prompts import is_conversation
from speclab.trace.log import Logged, read_log
from speclab.trace.records import Trace

if TYPE_CHECKING:
    import pandas as pd

ROWS = 16
"""The node budget in place of "auto", since there is no machine to measure."""
IDS = 1 << 18
"""Ids of a log without a tokenizer."""
LONGEST = 576
"""Tokens of the longest phrase of earlier answers that is counted: a match and what follows it."""
COLUMNS = [
    "prompt",
    "kind",
    "strategy",
    "tokens",
    "iterations",
    "tokens_per_iteration",
    "drafted",
    "accepted",
    "inexact",
    "refused",
]
LEARNS = (
    "SuffixDecoding drafts from the answers of earlier lines, too; others start each line anew."
)
ALONE = "Each answer alone, as if it were the first."
INEXACT = "it also learns from the target's other answers, which a log does not have"


class _Log(Runner):
    """The target of a log: it has ids, and no model."""

    name = "the log"
    model = None
    context = None
    device = torch.device("cpu")
    cache = KVCache()

    def __init__(self, ids: int) -> None:
        self.vocab_size = ids

    def check_unchanged(self, *, whole: bool) -> None:
        """There is nothing to change."""

    def fork(self, length: int = 0, target: Runner | None = None, *, lean: bool = True) -> Runner:
        return self


class _Answered(Text):
    """A prompt and its recorded answer; of the target's answers only the most probable token is known."""

    def __init__(self, pair: ModelPair, prompt: Sequence[int], answer: Sequence[int]) -> None:
        self.pair = pair
        self.trace = Trace(tuple(prompt), answer[0], (), {}, {}, {})
        self.tokens = list(prompt) + list(answer)
        self.states = None
        self.missed = 0

    def run_prompt(self) -> None:
        """Its answers to the prompt are not known."""

    def top(self, places: Sequence[Place], k: int) -> TopTokens:
        if k == 1:
            raise NotRecordedError("It reads the target's answers to rows that no log has.")
        self.missed += len(places)
        ids = np.full((len(places), k), -1)
        for row, (position, off) in enumerate(places):
            if not off and len(self.trace.prompt_ids) <= position + 1 < len(self.tokens):
                ids[row, 0] = self.tokens[position + 1]
        return ids, np.where(ids < 0, -np.inf, 0.0).astype(np.float32)


def replay_texts(
    pairs: Iterable[tuple[Any, Any] | Logged | str],
    strategies: Iterable[Strategy],
    tokenizer: Any = None,
    *,
    learn: bool = True,
) -> pd.DataFrame:
    """What strategies that need no draft would have accepted of recorded answers; no model runs.

    Args:
        pairs: prompt and answer of each, as texts or token ids; a text in the place of a pair is
            what is wrong with it (`trace.log.read_log`).
        tokenizer: for texts; token ids are checked against it.
        learn: strategies that draft from earlier answers (SuffixDecoding) have those of the pairs
            before, in order, as in an engine. False: each answer alone.

    Returns:
        A row per prompt and strategy: `prompt` (from 0), `kind`, `strategy`, `tokens`, `iterations`,
        `tokens_per_iteration`, `drafted`, `accepted`, `inexact` (why a real run would differ),
        `refused` (why there is no replay). `node_budget="auto"` is 16.
    """
    import pandas as pd

    ids = IDS
    if tokenizer is not None:
        ids = len(tokenizer)
    earlier = SuffixAutomaton(LONGEST)
    memory: dict[Hashable, Any] = {}
    if learn:
        memory[EARLIER] = earlier
    pair = ModelPair(_Log(ids), tokenizer=tokenizer, shared_state=memory)
    rows = []
    strategies = list(strategies)
    answers: list[int] = []
    for number, texts in enumerate(pairs):
        for strategy in strategies:
            if strategy.is_auto:
                strategy = strategy.changed(node_budget=ROWS)
            row = {"prompt": number, "strategy": repr(strategy), "refused": ""}
            row["kind"] = getattr(texts, "kind", "")
            try:
                row |= _replayed(pair, texts, strategy)
            except SpeclabError as error:
                row["refused"] = str(error)
            rows.append(row)
        with suppress(SpeclabError):  # which each row of the line has
            answers += _ids(pair, texts)[1]
            answers.append(BREAK)
        earlier.read(answers)
    return pd.DataFrame(rows, columns=COLUMNS)


def _ids(pair: ModelPair, texts: tuple[Any, Any] | Logged | str) -> list[list[int]]:
    """Token ids of prompt and answer."""
    if isinstance(texts, str):
        raise PromptError(texts)
    prompt, answer = texts[:2]
    if is_conversation(prompt) and not pair.chats:
        prompt = "\n\n".join([str(message["content"]) for message in prompt])
    ids = []
    for part in (prompt, answer):
        if isinstance(part, str) and part:
            ids.append(pair.plain_ids(part))
        else:
            ids.append(pair.encode(part))
    return ids


def _replayed(
    pair: ModelPair, texts: tuple[Any, Any] | Logged | str, strategy: Strategy
) -> dict[str, Any]:
    prompt, answer = _ids(pair, texts)
    text = _Answered(pair, prompt, answer)
    passes = Replayer(text).replay(strategy).passes
    tokens = sum(len(iteration.committed) for iteration in passes)
    return {
        "tokens": tokens,
        "iterations": len(passes),
        "tokens_per_iteration": tokens / max(1, len(passes)),
        "drafted": sum(iteration.nodes - 1 for iteration in passes),
        "accepted": sum(iteration.accepted for iteration in passes),
        "inexact": INEXACT if text.missed else "",
    }


def read_and_replay(
    file: Path, strategies: Iterable[str], pair: str, *, learn: bool = True
) -> tuple[pd.DataFrame, str]:
    """The replays of a log (`trace.log.read_log`), and what to say: what was refused, and sums by strategy
    and by kind of prompt.

    Args:
        strategies: such as "Goose(node_budget=12)".
        pair: the name of a pair, whose tokenizer reads the texts.
        learn: as of `replay_texts`.

    Raises:
        PromptError: nothing in the log can be replayed.
    """
    preset = find(pair)
    tokenizer = Loader().tokenizer(preset.tokenizer or preset.target)
    frame = replay_texts(read_log(file), map(from_str, strategies), tokenizer, learn=learn)
    refused = "\n".join(frame.refused.unique())
    replayed = frame[frame.refused == ""]
    if replayed.empty:
        raise PromptError(f"{file} has no answer to replay: {refused.strip()}")
    sums = replayed.groupby(["strategy", "inexact"])[["tokens", "iterations", "drafted"]].sum()
    words = f"{refused}\n{LEARNS if learn else ALONE}\n{sums.to_string()}"
    if replayed.kind.nunique() > 1:
        parts = replayed.groupby(["kind", "strategy"])[["tokens", "iterations"]].sum()
        rates = (parts.tokens / parts.iterations).unstack("kind")
        words += f"\n\nTokens per iteration by kind of prompt:\n{rates.round(2).to_string()}"
    return frame, words
