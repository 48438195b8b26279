"""`check=True`: compares every committed token with the target's own choice at its position.

In half precision a row's logits depend on the other rows of the pass, so a choice may flip between
two nearly equal tokens: such ties are counted. A greedy choice ties with a token whose logit is
nearly as large. A sampled choice ties with a token whose interval of the cumulative distribution is
next to the random number: errors of at most half the tolerance change the odds of any set of tokens
by a factor of at most exp(tolerance / temperature). Drawn candidates give a different text of the
same distribution. There the check is that the target's distribution, after temperature, top-k and
top-p, allows each token.
"""

from __future__ import annotations

from math import inf, tanh

import torch
from torch import Tensor

from speclab.engine.acceptance import Rule
from speclab.engine.decode import Decoding
from speclab.engine.targets import Targets
from speclab.errors import ExactnessError
from speclab.sampling import transform, uniform
from speclab.settings import SessionSettings

TOLERANCE = {torch.bfloat16: 0.8, torch.float16: 0.2}
"""Largest error of the gap between two logits, per dtype: twice the largest difference measured
between a tree pass and one-token passes on healthy models, 0.39 and 0.10 (speclab default). In
float32, and where passes are bit for bit (`speclab.models.bits`), any flip is a fault.
"""


class Checker:
    """Decodes beside a run, one token per pass through the module, on a separate cache, and
    compares each commit.

    A fork's checker compares only the fork's own tokens; the settings of the parent decoded the
    shared ones.
    """

    def __init__(self, decoding: Decoding) -> None:
        target = decoding.pair.target
        self._decoding = decoding
        self._runner = target.fork(lean=False)
        # a target whose rows have the bits of plain decoding has no ties
        bits = target.state.bits
        self._tolerance = TOLERANCE.get(target.dtype, 0.0)
        if bits is not None and bits.rows:
            self._tolerance = 0.0

    def compare(self, first: int, rule: Rule = Rule.SAMPLE_AND_MATCH) -> int:
        """Checks the tokens committed from position `first` on, under `rule`; returns how many of
        them are ties.

        Raises:
            ExactnessError: a token is neither the target's own choice nor a tie with it.
            ChangedModelError: a model was changed, so the token may have been its own choice before.
        """
        tokens = self._decoding.tokens
        ties = 0
        # an interrupted call may have gone further
        self._runner.crop(min(self._runner.length, first - 1))
        for position in range(first, len(tokens)):
            ties += self._is_tie(position, tokens[position], self._targets(tokens[:position]), rule)
        return ties

    def _targets(self, ids: list[int]) -> Targets:
        answer = self._runner.logits(ids[self._runner.length :])
        return self._decoding.targets(answer[-1:], [len(ids)], lambda _: ids)

    def _is_tie(self, position: int, token: int, targets: Targets, rule: Rule) -> bool:
        settings = self._decoding.settings
        row = targets.row(0)
        if rule.follows_the_target:
            choice = targets.choose(0)
            if token == choice:
                return False
            problem = f"but the target alone chooses {choice}"
            if settings.temperature == 0:
                apart = float(row[choice] - row[token])
            else:
                apart = _odds_apart(
                    row, token, uniform(settings.seed, position), settings, self._tolerance
                )
        else:
            allowed = transform(row, settings) > 0
            if allowed[token]:
                return False
            problem = "which the target's distribution rules out"
            apart = inf
            if _borderline(row, allowed, settings, self._tolerance)[token]:
                apart = 0.0
        if self._tolerance and apart <= self._tolerance:
            return True
        self._decoding.pair.target.check_unchanged(whole=True)
        raise ExactnessError(
            f"Generated token {position - self._decoding.prompt_length} was committed as id "
            f"{token}, {problem} ({apart:.4f} apart in logits): keep the trace, it shows a fault "
            "in the engine or the model's cache."
        )


def _odds_apart(
    row: Tensor, token: int, number: float, settings: SessionSettings, tolerance: float
) -> float:
    """How far the logits would have to move for `number` to draw this token, ignoring borderline tokens."""
    probs = transform(row, settings)
    allowed = probs > 0
    untruncated = transform(row, settings.changed(top_k=None, top_p=None))
    doubt = float((untruncated * _borderline(row, allowed, settings, tolerance)).sum())
    above = float(probs[: token + 1].sum()) + doubt
    below = above - float(probs[token]) - 2 * doubt
    if below <= number < above:
        return 0.0
    boundary = below if number < below else above
    drawn, bound = torch.tensor([number, boundary], dtype=torch.float64).clamp(0, 1).logit()
    return float((drawn - bound).abs()) * settings.temperature


def _borderline(
    row: Tensor, allowed: Tensor, settings: SessionSettings, tolerance: float
) -> Tensor:
    """`[V]` bool: tokens that top-k or top-p keeps or drops by less than the tolerance."""
    doubtful = torch.zeros_like(allowed)
    if not tolerance or (settings.top_k is None and settings.top_p is None):
        return doubtful
    scores = row.to(allowed.device).double()
    doubtful |= (scores - scores[allowed].min()).abs() <= tolerance
    if settings.top_p is not None:
        ordered, order = transform(row, settings.changed(top_p=None)).sort(descending=True)
        # of a cumulative probability, by the change of its odds
        band = tanh(tolerance / settings.temperature / 4)
        near = (ordered.cumsum(-1) - ordered - settings.top_p).abs() <= band
        doubtful[order[near]] = True
    return doubtful
