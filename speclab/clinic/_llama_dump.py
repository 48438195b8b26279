"""What forks of llama.cpp write if `LLAMA_SPEC_DUMP` names a file: a line of drafted tokens for each
pass, without the prompt, the roots and the target's own tokens."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from speclab.clinic._lines import MOST_TOKENS, Header, Pass
from speclab.recorder import FORMAT
from speclab.trace.codecs import Many, Natural, Probability

UNRECORDED = MOST_TOKENS
"""The id of tokens that the dump lacks."""
DUMP = Header(
    FORMAT,
    (UNRECORDED,),
    engine="llama.cpp",
    note="LLAMA_SPEC_DUMP has the draft's tokens alone, so the target's side cannot be checked.",
)


@dataclass(frozen=True)
class TokenProb:
    """A token and its probability for the draft."""

    tok: Natural
    p: Probability

    @property
    def log_prob(self) -> float:
        return log(max(self.p, 1e-30))


@dataclass(frozen=True)
class Drafted(TokenProb):
    """A drafted token, and the best tokens in its place."""

    top: Many[TokenProb] = ()


@dataclass(frozen=True)
class Dumped:
    """A line of the dump; its other fields are not read."""

    n_accepted: Natural
    pos: Many[Drafted]
    seq: Natural = 0

    def as_pass(self, length: int) -> Pass:
        """A pass of a chain after so many tokens."""
        token = [each.tok for each in self.pos]
        tops = [[(each.tok, each.log_prob) for each in drafted.top] for drafted in self.pos]
        return Pass(
            prefix_length=length,
            token=(UNRECORDED, *token),
            parent=tuple(range(-1, len(token))),
            accepted=tuple(range(1, self.n_accepted + 1)),
            committed=(*token[: self.n_accepted], UNRECORDED),
            log_prob=(0.0, *[each.log_prob for each in self.pos]),
            draft_topk=tuple(map(tuple, [*tops, []])),
            request=self.seq,
        )
