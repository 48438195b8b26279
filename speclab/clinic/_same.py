"""Two greedy texts that should be equal: where they part, and which of them its target wrote.

No recording is needed. The target reads both texts plainly, and again in the engine's precision: what
that changes is the level of rounding.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import takewhile
from statistics import median
from typing import Any

import numpy as np
import torch

from speclab.clinic._check import load_target
from speclab.clinic._lines import precision
from speclab.clinic._plain import FACTOR, FLOAT32, lowered
from speclab.errors import SettingsError
from speclab.pair import ModelPair
from speclab.prompts import PromptInput

TOP = 8
"""Best tokens of a row whose change is rounding: those between which greedy decoding may choose."""
AFTER = 64
"""Tokens after the difference that are read, to tell whose text it is."""
LATER = 2
"""Tokens after a tie that the target would not choose, from which on the text is wrong there: one alone
may come from another way to cut the text into tokens."""
FEWEST = 4
"""Tokens below which a text is too short to say whose it is."""
FOREIGN = 0.1
"""Share of tokens that the target would not choose, above which a text is another model's. Of 60 tokens of
the mini family: 0 in its own texts, up to .03 with a wrong mask, .18 to .52 in four of five texts of its
draft, from .67 on in others."""
VERDICTS = {
    (False, False): "tie",
    (True, False): "fault in A",
    (False, True): "fault in B",
    (True, True): "fault in both",
}
"""By whether A's token and B's are too far below the best."""
NEITHER = (
    "Neither is this target's text: it would choose otherwise at {:.0%} of the tokens; give the prompt, and "
    "the target that wrote it."
)
UNKNOWN = "The texts part at their first token, which cannot be judged without a prompt."


@dataclass(frozen=True)
class Same:
    """Whether two texts are the same, and which is wrong.

    Attributes:
        verdict: "same", "tie", "fault in A", "fault in B", "fault in both", or "neither": neither is
            this target's text, or it is not known.
        position: of the first token that differs, counted from 0 after the prompt; None if none does.
        gap_a, gap_b: of the two tokens there, below the target's best token, in nats.
        rounding: what the engine's precision `dtype` changes there, in nats; a gap of up to 6 times as
            much is a tie.
        prompt_ids, token_ids: of the text up to there. With `position` they are all that a link needs.
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
        SettingsError: a text is empty, the tokenizer cannot write it, or it is too long for the target.
    """
    if text_a == text_b and text_a:
        return Same("same", "The texts are the same.")
    pair = target if isinstance(target, ModelPair) else load_target(target)
    engine = precision(dtype)
    if not engine:
        raise SettingsError(f"Expected dtype as the name of a precision, got {dtype!r}.")
    # Where do they part?
    prompt_ids = pair.encode(prompt) if prompt else []
    a = _tokens(pair, prompt, prompt_ids, text_a, "A")
    b = _tokens(pair, prompt, prompt_ids, text_b, "B")
    position = len(list(takewhile(lambda both: both[0] == both[1], zip(a, b, strict=False))))
    place = Place(pair, engine, prompt_ids, position)
    if not prompt_ids and not position:
        return Same("neither", UNKNOWN, position)

    # Whose text is it? Without a prompt the text before the difference may contain it.
    read_a, read_b = place.read(a), place.read(b)
    first = 0 if prompt_ids else position + 1
    usual = max(median([*read_a.rounding, *read_b.rounding]), FLOAT32)
    share = min(read_a.wrong_share(first, usual), read_b.wrong_share(first, usual))
    if share > FOREIGN:
        return place.judged("neither", NEITHER.format(share), a)

    # How far are the two tokens below the best? A text that ends where the other goes on was cut.
    longer = read_a if len(a) > len(b) else read_b
    rounding = max(usual, longer.rounding[position])
    gap_a = 0.0 if text_b.startswith(text_a) else read_a.gaps[position]
    gap_b = 0.0 if text_a.startswith(text_b) else read_b.gaps[position]
    wrong = [gap > FACTOR * rounding for gap in (gap_a, gap_b)]
    later = [len(reading.wrong(position + 1, usual)) for reading in (read_a, read_b)]
    if not any(wrong):  # after a tie each text goes on by itself
        wrong = [count >= LATER for count in later]
    verdict = VERDICTS[wrong[0], wrong[1]]
    if verdict == "tie" and (text_b.startswith(text_a) or text_a.startswith(text_b)):
        verdict = "same"
    sentence = (
        f"The texts part at token {position}, {place.word(a)} against {place.word(b)}: {verdict}. To the target "
        f"they are {gap_a:.2g} and {gap_b:.2g} below the best, {place.word(longer.best)}; rounding in {engine}: "
        f"{rounding:.1g}. After it, it would not choose {later[0]} tokens of A and {later[1]} of B."
    )
    return place.judged(verdict, sentence, a, gap_a=gap_a, gap_b=gap_b, rounding=rounding)


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
            f"The target's tokenizer cannot write text {name} as it is (it writes {written!r:.60}): give the "
            "text as the engine returned it, and the target that wrote it."
        )
    length = len(prompt_ids) + len(ids)
    if length > (pair.target.context or length):
        raise SettingsError(f"Text {name} is longer than the {pair.target.context} of the target.")
    return ids


@dataclass(frozen=True)
class Reading:
    """What the target makes of a text, by token `[n]`: how far each is below its best one, in nats; its
    best one; and the largest change of a row's best log-probabilities by the precision."""

    gaps: list[float]
    best: list[int]
    rounding: list[float]

    def wrong(self, first: int, usual: float) -> list[int]:
        """The tokens from `first` on that the target would not choose."""
        tokens = range(first, len(self.gaps))
        return [at for at in tokens if self.gaps[at] > FACTOR * max(usual, self.rounding[at])]

    def wrong_share(self, first: int, usual: float) -> float:
        """Their share; 0 of a text that is too short to say."""
        count = len(self.gaps) - first
        return len(self.wrong(first, usual)) / count if count >= FEWEST else 0.0


class Place:
    """Where two texts part, and the target in float32 and in the engine's precision."""

    def __init__(self, pair: ModelPair, engine: str, prompt_ids: list[int], position: int) -> None:
        self.pair = pair
        self.engine = engine
        self.prompt_ids = prompt_ids
        self.position = position
        exact = deepcopy(pair.target.model).float()
        self.models = exact, lowered(exact, engine)

    @torch.inference_mode()
    def read(self, text: list[int]) -> Reading:
        text = text[: self.position + AFTER]
        ids = [*self.prompt_ids, *text]
        seen = np.tri(len(ids), dtype=np.bool_)
        rows = []  # [n, V] each: before each token, and after the last
        for model in self.models:
            logits = self.pair.target.beside(model).logits(ids, range(len(ids)), seen).logits
            rows.append(logits.float().log_softmax(-1)[max(len(self.prompt_ids) - 1, 0) :])
        top = rows[0].topk(TOP)
        change = (rows[1].gather(-1, top.indices) - top.values).abs().amax(-1).tolist()
        following = text if self.prompt_ids else text[1:]
        chosen = rows[0][range(len(following)), following]
        gaps = (top.values[: len(following), 0] - chosen).tolist()
        best = top.indices[:, 0].tolist()
        if self.prompt_ids:
            return Reading(gaps, best, change)
        return Reading(
            [0.0, *gaps], [0, *best], [0.0, *change]
        )  # nothing is before the first token

    def word(self, tokens: list[int]) -> str:
        """The token there."""
        token = tokens[self.position : self.position + 1]
        return repr(self.pair.token_texts(token)[token[0]]) if token else "the end"

    def judged(self, verdict: str, sentence: str, text: list[int], **gaps: float) -> Same:
        return Same(
            verdict,
            sentence,
            self.position,
            dtype=self.engine,
            prompt_ids=tuple(self.prompt_ids),
            token_ids=tuple(text[: self.position]),
            **gaps,
        )
