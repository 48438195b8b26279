"""`check=True`: every committed token against what the target alone would have chosen at its place.

Candidates that are drawn give another text of the same distribution, token by token not the target's own: of those it
is checked that the target's distribution, after temperature, top-k and top-p, allows them.
"""

from __future__ import annotations

import torch

from speclab.engine.acceptance import Rule
from speclab.engine.decode import Decoding
from speclab.engine.sampling import chooser, probabilities
from speclab.errors import ExactnessError
from speclab.models.answer import Answer

TOLERANCE = {torch.bfloat16: 0.25, torch.float16: 0.05}
"""Largest gap of two logits, per dtype, that counts as a tie: about twice the largest difference between a tree pass
and one-token passes on known-good models (a speclab default). Float32 showed no flip, so there any is an error."""


class Checker:
    """Decodes beside a run, one token per pass through the module, on a cache of its own, and compares each commit.

    Of a fork it compares the fork's own: what is shared was decoded under the settings of its parent.
    """

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding
        target = decoding.pair.target
        self._runner = target.fork(lean=False)
        self._tolerance = TOLERANCE.get(target.dtype, -1.0)

    def compare(self, first: int, rule: Rule = Rule.SAMPLE_AND_MATCH) -> int:
        """Checks the tokens committed from position `first` on, under `rule`; how many of them are ties.

        Raises:
            ExactnessError: a token is not the target's own choice, nor a tie with it in half precision.
        """
        tokens, ties = self._decoding.tokens, 0
        self._runner.crop(min(self._runner.length, first - 1))  # an interrupted call may have gone further
        for position in range(first, len(tokens)):
            logits = self._runner.logits(tokens[self._runner.length : position])
            logits = self._decoding.processed(logits, tokens[:position])
            ties += self._is_tie(position, tokens[position], logits, rule)
        return ties

    def _is_tie(self, position: int, token: int, found: Answer, rule: Rule) -> bool:
        settings, logits = self._decoding.settings, found.row(0)
        if rule.follows_the_target:
            own = chooser(found, [position], settings)(0)
            right, expected, problem = token == own, logits[own], f"but the target alone chooses {own}"
        else:
            allowed = torch.from_numpy(probabilities(logits, settings) > 0).to(logits.device)
            right, expected = bool(allowed[token]), logits[allowed].min()
            problem = "which the target's distribution rules out"
        gap = float(expected - logits[token])
        if right or 0 <= gap <= self._tolerance:
            return not right
        raise ExactnessError(
            f"generated token {position - self._decoding.prompt_length} was committed as id {token}, {problem} "
            f"(logit gap {gap:.4f}): keep the trace, it shows a fault in the engine or the model's cache"
        )
