"""The verdict on every node of a verified tree, with its reason in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from speclab.acceptance import Rule, Trial
from speclab.trace import Verdict
from speclab.tree import DraftTree


@dataclass(frozen=True, slots=True)
class Seen:
    """What the target saw at each of `n` nodes.

    `choice`: its next token, `choice_prob` that token's probability, `token_prob` the probability of the node's own
    token at its parent (None for a verified root); `root_choice`: its choice for a drafted root's place, or None.
    `rule`: of acceptance; where it tried children one by one (`one_by_one`) also its `trials` and the `path` it took.
    """

    choice: Sequence[int]
    choice_prob: Sequence[float]
    token_prob: Sequence[float | None]
    root_choice: int | None
    rule: Rule
    one_by_one: bool = False
    trials: Sequence[Trial] = ()
    path: Sequence[int] = ()


def judge(tree: DraftTree, seen: Seen, accepted: Sequence[int], texts: Mapping[int, str]) -> list[tuple[Verdict, str]]:
    """One (verdict, reason) for each node.

    A node was reached when its parent is on the accepted path; a reached node is accepted or rejected.
    """
    on_path = set(accepted) | ({0} if seen.root_choice is None else set())
    tried = {trial.node: trial for trial in seen.trials}
    verdicts: list[tuple[Verdict, str]] = []
    for node, parent in enumerate(tree.parent.tolist()):
        text, prob = repr(texts[int(tree.token[node])]), seen.token_prob[node]
        if parent < 0 and node not in tried:
            verdicts.append(_root(node in accepted, text, seen, texts))
        elif node in on_path and node in tried:
            verdicts.append(("accepted", _tested(tried[node], seen.rule)))
        elif node in on_path:
            verdicts.append(("accepted", f"the target chose {text} here, with probability {prob:.3f}"))
        elif parent >= 0 and parent not in on_path:
            above = repr(texts[int(tree.token[parent])])
            verdicts.append(("not reached", f"its parent {above} is not on the accepted path"))
        elif seen.one_by_one:
            verdicts.append(_passed_by(node, tried.get(node), seen))
        elif seen.choice[parent] == tree.token[node]:
            verdicts.append(("not reached", "the text ended before it"))
        else:
            chosen = repr(texts[seen.choice[parent]])
            verdicts.append(
                (
                    "rejected",
                    f"the target chose {chosen} ({seen.choice_prob[parent]:.3f}), not {text} ({prob:.3f})",
                )
            )
    return verdicts


def _passed_by(node: int, trial: Trial | None, seen: Seen) -> tuple[Verdict, str]:
    """Of a node beside the path, where children are tried one by one."""
    if node in seen.path:
        return "not reached", "the text ended before it"
    if trial is None:
        return "not reached", "a candidate drawn before it was accepted"
    if trial.accepted:
        return "rejected", f"{_tested(trial, seen.rule)}, but another path is longer, or as long and likelier"
    return "rejected", _tested(trial, seen.rule)


def _tested(trial: Trial, rule: Rule) -> str:
    p, against = f"{trial.target:.2f}", f"{trial.against:.2f}"
    if rule.lossless:
        verb = "accepted with" if trial.accepted else "rejected, its chance was"
        return f"drawn from the draft, {verb} {p} / {against} (what is left of the target's law / the draft's)"
    if trial.accepted:
        return f"likely enough for typical acceptance (lossy): {p} > {against}"
    return f"too unlikely for typical acceptance (lossy): {p}, not above {against}"


def _root(accepted: bool, text: str, seen: Seen, texts: Mapping[int, str]) -> tuple[Verdict, str]:
    if seen.root_choice is None:
        return "root", f"{text} is the target's own token from the pass before"
    if accepted:
        return "accepted", f"the target chose {text} for the root's place"
    return "rejected", f"the target chose {texts[seen.root_choice]!r} for the root's place, not {text}"
