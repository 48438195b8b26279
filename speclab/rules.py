"""Which acceptance rule an iteration follows: how its candidates were chosen decides, never who chose them."""

from __future__ import annotations

from speclab.acceptance import (
    Probabilities,
    Rule,
    Walk,
    typical_floor,
    walk,
    walk_independent,
    walk_typical,
    walk_without_replacement,
)
from speclab.decoding import Decoding, Verification
from speclab.drafters.base import Draft
from speclab.noise import Stream, Use
from speclab.sampling import probabilities
from speclab.settings import SessionSettings
from speclab.tree import Law

_FITTING = {
    Law.DETERMINISTIC: Rule.TARGET_MASS,
    Law.INDEPENDENT: Rule.INDEPENDENT,
    Law.WITHOUT_REPLACEMENT: Rule.WITHOUT_REPLACEMENT,
}
_ON_DRAWS = {Rule.INDEPENDENT: walk_independent, Rule.WITHOUT_REPLACEMENT: walk_without_replacement}


def rule_for(law: Law, settings: SessionSettings) -> Rule:
    """The rule for candidates chosen this way; at temperature 0 the greedy walk, whatever else is set."""
    if settings.temperature == 0:
        return Rule.GREEDY
    return Rule.TYPICAL if settings.acceptance == "typical" else _FITTING[law]


def take(rule: Rule, decoding: Decoding, draft: Draft, verification: Verification) -> Walk:
    """The walk of `rule` through a verified draft."""
    tree, settings = draft.tree, decoding.settings

    def target(node: int) -> Probabilities:
        return probabilities(verification.logits[node], settings)

    if rule in _ON_DRAWS:
        assert verification.root_choice is None, "the root of a tree of draws is the target's own token"
        first = len(decoding.tokens)
        return _ON_DRAWS[rule](
            tree,
            target,
            draft.laws.__getitem__,
            lambda node: Stream(settings.seed, first + int(tree.depth[node]), Use.ACCEPTANCE),
        )
    if rule is Rule.TYPICAL:
        root = None
        if verification.root_logits is not None and verification.root_choice is not None:
            root = probabilities(verification.root_logits, settings), verification.root_choice
        return walk_typical(
            tree,
            target,
            verification.choose,
            lambda law: typical_floor(law, settings.typical_epsilon, settings.typical_delta),
            root,
        )
    return walk(tree, verification.choose, verification.root_choice)
