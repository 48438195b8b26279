"""Two greedy texts that should be equal: where they part, and which of them its target wrote.

No recording is needed. The target reads both texts plainly, and again in the engine's precision:
what that changes is the level of rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import torch

from speclab.clinic._check import load_target
from speclab.clinic._gaps import FACTOR, FLOAT32
from speclab.clinic._lines import precision
from speclab.clinic._plain import lowered
from speclab.errors import SettingsError
from speclab.pair import ModelPair
from speclab.prompts import PromptInput

TOP = 8
"""Best tokens of a row whose change is rounding: those between which greedy decoding may choose."""
AFTER = 64
"""Tokens after the difference that are read, to tell whose text it is."""
LATER = 2
"""Tokens after a tie that the target would not choose, from which on the text is wrong there: one
alone may come from another way to cut the text into tokens."""
FEWEST = 4
"""Tokens below which a text is too short to say whose it is."""
FOREIGN = 0.1
"""Share of tokens that the target would not choose, above which a text is another model's. Of 60
tokens of the mini family: 0 in its own texts, up to .03 with a wrong mask, .18 to .52 in four of
five texts of its draft, from .67 on in others."""
VERDICTS = {
    (False, False): "tie",
    (True, False): "fault in A",
    (False, True): "fault in B",
    (True, True): "fault in both",
}
"""By whether A's text and B's are wrong."""
SAME = "The texts are the same."
PART = "The texts part at token {}, {} against {}: {}. "
BELOW = (
    "To the target they are {:.2g} and {:.2g} below the best, {}; rounding in {}: {:.1g}. "
    "After it, it would not choose {} tokens of A and {} of B."
)
NEITHER = (
    "Neither is this target's text: it would choose otherwise at {:.0%} of the tokens; give the "
    "prompt, and the target that wrote it."
)
UNKNOWN = "The texts part at their first token, which cannot be judged without a prompt."


@dataclass(frozen=True)
class Same:
    """Whether two texts are the same, and which is wrong.

    Attributes:
        verdict: "same", "tie", "fault in A", "fault in B", "fault in both", or "neither": neither
            is this target's text, or it is not known.
        position: of the first token that differs, counted from 0 after the prompt; None if none
            does.
        gap_a, gap_b: of the two tokens there, below the target's best token, in nats.
        rounding: what the engine's precision `dtype` changes there, in nats; a gap of up to 6 times
            as much is a tie.
        prompt_ids, token_ids: of the text up to there. With `position` they are all that a link
            needs.
    """

    verdict: str
    sentence: str
    position: int | None = None
    gap_a: float = 0.0
    gap_b: float = 0.0
    rounding: float = 0.0
    dtype: str = ""
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()

    @property
    def exit_status(self) -> int:
        """0 same or a tie, 1 a fault, 2 it cannot be judged."""
        return {"same": 0, "tie": 0, "neither": 2}.get(self.verdict, 1)

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "exit_status": self.exit_status}


def same(
    text_a: str,
    text_b: str,
    target: str | ModelPair,
    prompt: PromptInput = "",
    *,
    dtype: str = "bfloat16",
) -> Same:
    """Compare two greedy texts of one prompt, and judge their first difference by the target.

    Args:
        text_a, text_b: the answers, with the prompt before both or neither.
        target: a pair, its name, a hub id or a folder.
        prompt: a text, token ids, or messages. Without it the texts may contain a prompt.
        dtype: the precision in which the engine ran.

    Raises:
        SettingsError: a text is empty, the tokenizer cannot write it, or it is too long for the
            target.
    """
    if text_a == text_b and text_a:
        return Same("same", SAME)
    pair = target if isinstance(target, ModelPair) else load_target(target)
    engine = precision(dtype)
    if not engine:
        raise SettingsError(f"Expected dtype as the name of a precision, got {dtype!r}.")

    # Where do they part?
    prompt_ids = pair.encode(prompt) if prompt else []
    a = _tokens(pair, prompt, prompt_ids, text_a, "A")
    b = _tokens(pair, prompt, prompt_ids, text_b, "B")
    if a == b:
        return Same("same", SAME)
    position = 0
    while a[position : position + 1] == b[position : position + 1]:
        position += 1
    result = Same("neither", UNKNOWN, position, dtype=engine)
    result = replace(result, prompt_ids=tuple(prompt_ids), token_ids=tuple(a[:position]))
    if not prompt_ids and not position:
        return result

    # Whose text is it? Without a prompt the text before the difference may contain it.
    exact = deepcopy(pair.target.model).float()
    models = (exact, lowered(exact, engine))
    end = position + AFTER
    read_a = _read(pair, models, prompt_ids, a[:end], is_cut=text_b.startswith(text_a))
    read_b = _read(pair, models, prompt_ids, b[:end], is_cut=text_a.startswith(text_b))
    first = 0 if prompt_ids else position + 1
    usual = max(median(read_a.rounding + read_b.rounding), FLOAT32)
    shares = []
    for reading in (read_a, read_b):
        tokens = len(reading.gaps) - first
        if tokens >= FEWEST:
            shares.append(reading.wrong(first, usual) / tokens)
    share = min(shares, default=0.0)
    if share > FOREIGN:
        return replace(result, sentence=NEITHER.format(share))
    return _judged(pair, result, read_a, read_b, usual)


def _judged(pair: ModelPair, result: Same, a: Reading, b: Reading, usual: float) -> Same:
    """With a verdict. `usual`: the size of rounding."""
    position = len(result.token_ids)
    longer = a if len(a.tokens) > len(b.tokens) else b
    rounding = max(usual, longer.rounding[position])
    # How far are the two tokens below the best?
    gap_a = a.gap(position)
    gap_b = b.gap(position)
    a_is_wrong = gap_a > FACTOR * rounding
    b_is_wrong = gap_b > FACTOR * rounding
    later_a = a.wrong(position + 1, usual)
    later_b = b.wrong(position + 1, usual)
    if not a_is_wrong and not b_is_wrong:  # after a tie each text goes on by itself
        a_is_wrong = later_a >= LATER
        b_is_wrong = later_b >= LATER
    verdict = VERDICTS[a_is_wrong, b_is_wrong]
    if verdict == "tie" and (a.is_cut or b.is_cut):
        verdict = "same"
    word_a = _word(pair, a.tokens, position)
    word_b = _word(pair, b.tokens, position)
    best = _word(pair, longer.best, position)
    sentence = PART.format(position, word_a, word_b, verdict)
    sentence += BELOW.format(gap_a, gap_b, best, result.dtype, rounding, later_a, later_b)
    return replace(
        result, verdict=verdict, sentence=sentence, gap_a=gap_a, gap_b=gap_b, rounding=rounding
    )


def _tokens(
    pair: ModelPair, prompt: PromptInput, prompt_ids: list[int], text: str, name: str
) -> list[int]:
    """The ids of a text after the prompt."""
    tokenizer: Any = pair.tokenizer
    if not text:
        raise SettingsError(f"Text {name} is empty: give two texts.")
    if tokenizer is None:
        raise SettingsError("The target has no tokenizer: texts are compared by its tokens.")
    if isinstance(prompt, str):
        text = text.removeprefix(prompt)
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    if isinstance(prompt, str) and pair.continuation(prompt_ids, ids) != text:
        # some tokenizers write a space before a text that stands alone
        ids = pair.encode(prompt + text)[len(prompt_ids) :]
    written = pair.continuation(prompt_ids, ids)
    if written != text or not ids:
        raise SettingsError(
            f"The target's tokenizer cannot write text {name} as it is (it writes {written!r:.60}): "
            "give the text as the engine returned it, and the target that wrote it."
        )
    length = len(prompt_ids) + len(ids)
    if length > (pair.target.context or length):
        raise SettingsError(f"Text {name} is longer than the {pair.target.context} of the target.")
    return ids


@dataclass(frozen=True)
class Reading:
    """What the target makes of a text's tokens: how far each is below the best one there, in nats
    (`gaps`); the best one; and how far the precision changes the best log-probabilities
    (`rounding`). `is_cut`: the other text goes on where this one ends."""

    tokens: list[int]
    is_cut: bool
    gaps: list[float]
    best: list[int]
    rounding: list[float]

    def gap(self, position: int) -> float:
        """Of the token there; 0 if the text was cut."""
        if self.is_cut or position >= len(self.gaps):
            return 0.0
        return self.gaps[position]

    def wrong(self, first: int, usual: float) -> int:
        """How many tokens from `first` on the target would not choose."""
        count = 0
        for gap, rounding in zip(self.gaps[first:], self.rounding[first:], strict=False):
            if gap > FACTOR * max(usual, rounding):
                count += 1
        return count


@torch.inference_mode()
def _read(
    pair: ModelPair,
    models: Sequence[Any],
    prompt_ids: list[int],
    tokens: list[int],
    *,
    is_cut: bool,
) -> Reading:
    """The target reads tokens after a prompt: in float32, and in the engine's precision."""
    ids = prompt_ids + tokens
    first = max(len(prompt_ids), 1)  # the first token that comes after another one
    seen = np.tri(len(ids), dtype=np.bool_)
    rows = []  # log-probabilities [n, V] after each token, by each model
    for model in models:
        logits = pair.target.beside(model).logits(ids, range(len(ids)), seen).logits
        rows.append(logits.float().log_softmax(-1)[first - 1 :])
    exact, rounded = rows
    top = exact.topk(TOP)
    change = (rounded.gather(-1, top.indices) - top.values).abs().amax(-1).tolist()
    best = top.indices[:, 0].tolist()
    following = ids[first:]
    chosen = exact[range(len(following)), following]
    gaps = (top.values[: len(following), 0] - chosen).tolist()
    if not prompt_ids:  # the text's first token is not judged
        gaps.insert(0, 0.0)
        best.insert(0, 0)
        change.insert(0, 0.0)
    return Reading(tokens, is_cut, gaps, best, change)


def _word(pair: ModelPair, tokens: list[int], position: int) -> str:
    """The token there, in quotes."""
    if position >= len(tokens):
        return "the end"
    token = tokens[position]
    return repr(pair.token_texts([token])[token])
