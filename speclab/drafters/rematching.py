"""A copied chain that is matched again at its own end, as GOOSE's published code does when it is sure.

GOOSE, section 4.3 (a chain is "extended aggressively"). Read in 2kinto/GOOSE_Speculative_Decoding:
`context_match.py` (`ContextMatcher.match`, `consensus`, `match_confidence`) and `decoding.py`
(`_Session._extend_chain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speclab.drafters.prompt_lookup import Copies, Match
from speclab.drafters.suffix import Phrases

LONG = 8  # tokens that make a chain long (appendix C.3)
EXTENDED = 0.6  # confidence above which a chain is matched again


@dataclass(frozen=True)
class Rematched:
    """A copied chain: its first match, and all its tokens.

    `agreeing`: earlier occurrences that go on with the same token; 1 if they do not agree.
    `confidence`: in the first match, 0…1.
    """

    match: Match
    tokens: tuple[int, ...]
    agreeing: int
    confidence: float


def rematched(copies: Copies, text: Sequence[int], copied: int, most: int) -> Rematched | None:
    """What followed the first occurrence of the text's last tokens, and, if sure, what follows that.

    Args:
        copies: of the same text, shorter before; the longest n-gram that occurs earlier counts.
        text: all committed tokens.
        copied: most tokens of one match, at least 1.
        most: tokens of a chain that is not matched again.
    """
    copies.read(text)
    length, phrase = _longest(copies, text[-copies.lengths[0] :])
    if phrase is None:
        return None
    chain = list(text[phrase.first : phrase.first + copied])
    match = Match(length, phrase.first, tuple(chain))
    agreeing = 1
    confidence = _of_length(len(chain))
    unanimous = _agree(copies, phrase)
    if unanimous:
        agreeing = copies.followed(phrase)
        confidence = 1.0
    sure = confidence > EXTENDED
    # a unanimous chain grows as long as each further match is unanimous, too
    while sure and len(chain) < int(most * confidence):
        end = list(text[-copies.lengths[0] :]) + chain
        _, phrase = _longest(copies, end[-copies.lengths[0] :])
        if phrase is None:
            break
        sure = not unanimous or _agree(copies, phrase)
        chain += text[phrase.first : phrase.first + copied]
    return Rematched(match, tuple(chain), agreeing, confidence)


def _longest(copies: Copies, end: Sequence[int]) -> tuple[int, Phrases | None]:
    """The longest n-gram at the end of some tokens that the text goes on after; its n, and its state."""
    state, matched = copies.match(end)
    for length in copies.lengths:
        while state.link and state.link.length >= length:
            state = state.link
        # nothing comes after the n-gram at the end of the text, unless it occurs earlier, too
        if length <= matched and state.after:
            return length, state
    return 0, None


def _agree(copies: Copies, phrase: Phrases) -> bool:
    """Whether there are several occurrences, and all go on with the same token (consensus)."""
    return len(phrase.after) == 1 and copies.followed(phrase) > 1


def _of_length(length: int) -> float:
    """Confidence where occurrences do not agree: 0.7 to 0.9 for a long chain, else by its length."""
    if length >= LONG:
        return min(0.9, 0.7 + 0.2 * (length - LONG) / 12)
    return 0.6 * length / LONG
