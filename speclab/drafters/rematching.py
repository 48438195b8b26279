"""A copied chain that is matched again at its own end, as GOOSE's published code does when it is sure.

GOOSE, section 4.3 (a chain is "extended aggressively"). Read in 2kinto/GOOSE_Speculative_Decoding:
`context_match.py` (`ContextMatcher.match`, `consensus`, `match_confidence`) and `decoding.py`
(`_Session._extend_chain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speclab.drafters.prompt_lookup import Match

LONG = 8  # tokens that make a chain long (appendix C.3)
EXTENDED = 0.6  # confidence above which a chain is matched again


@dataclass(frozen=True, slots=True)
class Rematched:
    """A copied chain: its first match, and all its tokens.

    `agreeing`: earlier occurrences that go on with the same token; 1 if they do not agree.
    `confidence`: in the first match, 0…1.
    """

    match: Match
    tokens: tuple[int, ...]
    agreeing: int
    confidence: float


def rematched(
    tokens: Sequence[int], lengths: Sequence[int], copied: int, most: int
) -> Rematched | None:
    """What followed the first occurrence of the text's last tokens, and, if sure, what follows that.

    Args:
        tokens: the text.
        lengths: of n-grams; the longest that occurs earlier counts.
        copied: most tokens of one match, at least 1.
        most: tokens of a chain that is not matched again.
    """
    text = list(tokens)
    length, places = _occurrences(text, text, lengths)
    if not places:
        return None
    start = places[0]
    chain = text[start : start + copied]
    match = Match(length, start, tuple(chain))
    unanimous = _agree(text, places)
    confidence = 1.0 if unanimous else _of_length(len(chain))
    sure = confidence > EXTENDED
    # a unanimous chain grows as long as each further match is unanimous, too
    while sure and len(chain) < int(most * confidence):
        _, following = _occurrences(text, text + chain, lengths)
        if not following:
            break
        sure = not unanimous or _agree(text, following)
        chain += text[following[0] : following[0] + copied]
    agreeing = len(places) if unanimous else 1
    return Rematched(match, tuple(chain), agreeing, confidence)


def _occurrences(
    text: Sequence[int], drafted: Sequence[int], lengths: Sequence[int]
) -> tuple[int, list[int]]:
    """The longest n-gram at the end of `drafted` that the text has, and where the text goes on after it."""
    for length in sorted(lengths, reverse=True):
        wanted = drafted[-length:]
        # the n-gram at the end of the text has nothing after it
        places = [end for end in range(length, len(text)) if text[end - length : end] == wanted]
        if places:
            return length, places
    return 0, []


def _agree(text: Sequence[int], places: Sequence[int]) -> bool:
    """Whether there are several occurrences, and all go on with the same token (consensus)."""
    return len(places) > 1 and len({text[place] for place in places}) == 1


def _of_length(length: int) -> float:
    """Confidence where occurrences do not agree: 0.7 to 0.9 for a long chain, else by its length."""
    if length >= LONG:
        return min(0.9, 0.7 + 0.2 * (length - LONG) / 12)
    return 0.6 * length / LONG
