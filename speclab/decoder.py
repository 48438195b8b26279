"""The decoding loop. One iteration: draft a tree, verify it in one target pass, accept a path, commit it, adapt.

Every strategy runs through `iterate`; it differs only in its drafter. `generate` is this loop without records, a
`Session` is this loop with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from speclab.acceptance import Rule, Walk
from speclab.decoding import Decoding, Iteration, Verification, calls, lengths
from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy, checked
from speclab.drafters.cost_aware import drafter_of
from speclab.errors import ContextExceededError
from speclab.metrics import Counts
from speclab.models.pair import ModelPair
from speclab.models.transfers import Logits
from speclab.rules import rule_for, take
from speclab.sampling import chooser
from speclab.settings import SessionSettings
from speclab.timing import Stopwatch


def start(pair: ModelPair, strategy: Strategy, prompt_ids: Sequence[int], settings: SessionSettings) -> Decoding:
    """Prefills the prompt and commits the first token.

    Raises:
        ContextExceededError: prompt and new tokens do not fit the context of the target, or of what drafts.
    """
    decoding = _decoding(pair, checked(strategy), settings, list(prompt_ids), len(prompt_ids))
    _check_context(decoding)
    pair.rules.warn(pair.target.name)
    logits = decoding.processed(decoding.drafter.prefill(pair.target, decoding.tokens), prompt_ids)
    decoding.tokens.append(chooser(Logits(logits[None]), [len(prompt_ids)], settings)(0))
    catch_up(decoding)
    return decoding


def resume(
    decoding: Decoding, committed: int, strategy: Strategy, settings: SessionSettings, learned: object = None
) -> Decoding:
    """A decoding of its own that goes on after the first `committed` tokens of another; the other stays as it is.

    Committed entries are a prefix of the caches, so they are copied and no more than one token is run again.

    Args:
        committed: tokens to share, prompt included.
        learned: a drafter's snapshot from that point, if it is to go on from what it had learned.
    """
    pair = decoding.pair.fork(committed - 1)
    twin = _decoding(pair, strategy, settings, decoding.tokens[:committed], decoding.prompt_length)
    _check_context(twin)
    if learned is not None:
        twin.drafter.restore(learned)
    catch_up(twin)
    return twin


def iterate(decoding: Decoding) -> Iteration:
    """One iteration. Where it fails or is cancelled, `decoding.put_back` leaves everything as it was before it."""
    pair, drafter = decoding.pair, decoding.drafter
    prefix_length, strategy, settings = pair.target.length, drafter.settings, decoding.settings
    held, called = lengths(pair), calls(pair)
    watch = Stopwatch(pair.target.device)
    draft = drafter.draft(Context(decoding.tokens, _deepest(decoding), decoding.check, settings))
    decoding.check()
    watch.lap("draft")
    verification = verify(decoding, draft)
    watch.lap("verify")
    rule = rule_for(draft.tree.law, settings)
    path, outcome = accept(rule, decoding, draft, verification)
    watch.lap("accept")
    commit(decoding, prefix_length, outcome)
    watch.lap("commit")
    adaptation = drafter.learn(outcome)
    watch.lap("adapt")
    spent = [after - before for after, before in zip(calls(pair), called, strict=True)]
    counts = _counts(drafter, rule, outcome, spent, watch.seconds)
    return Iteration(prefix_length, strategy, draft, verification, rule, path, outcome, adaptation, held, watch, counts)


def verify(decoding: Decoding, draft: Draft) -> Verification:
    """One target pass over all nodes, each of which sees the prefix and its ancestors (DynaTree, section 3.4).

    Rows that are no candidates come after the nodes, in the same pass; no node sees them.
    """
    target, tree, rows = decoding.pair.target, draft.tree, draft.extra
    positions = [target.length + depth for depth in (*tree.depth.tolist(), *rows.depth)]
    prefix = decoding.tokens[: target.length] if decoding.processors is not None else ()
    answers = target.logits([*tree.token.tolist(), *rows.token], positions, rows.below(tree.ancestor_mask()))
    if decoding.processors is not None:
        answers = Logits(decoding.processors(answers.rows, prefix, draft.paths()))
    logits, extra = answers.rows[: len(tree)], answers.rows[len(tree) :]
    choose = chooser(answers, [position + 1 for position in positions], decoding.settings)
    if decoding.drafter.root == "verified":
        return Verification(logits, extra, choose)
    assert decoding.next_logits is not None
    root_choice = chooser(Logits(decoding.next_logits[None]), [len(decoding.tokens)], decoding.settings)(0)
    return Verification(logits, extra, choose, decoding.next_logits, root_choice)


def accept(rule: Rule, decoding: Decoding, draft: Draft, verification: Verification) -> tuple[Walk, Outcome]:
    """The path that the rule takes, and what it commits: its tokens and the bonus, cut where the text ends."""
    tree, path = draft.tree, take(rule, decoding, draft, verification)
    tokens = [*(int(tree.token[node]) for node in path.accepted), path.bonus][: decoding.room]
    last = next((place for place, token in enumerate(tokens) if decoding.ends(token)), len(tokens) - 1)
    committed = tuple(tokens[: last + 1])
    return path, Outcome(tree, path.accepted[: len(committed)], committed, verification.logits, verification.extra)


def commit(decoding: Decoding, prefix_length: int, outcome: Outcome) -> None:
    """Appends the committed tokens and brings every cache to them; all other rows of the pass are dropped."""
    target, drafter = decoding.pair.target, decoding.drafter
    if drafter.commit == "gather":
        path = outcome.accepted if drafter.root == "drafted" else (0, *outcome.accepted)
        target.keep(prefix_length, [prefix_length + node for node in path[: len(outcome.committed)]])
    else:
        target.crop(prefix_length)
    decoding.tokens.extend(outcome.committed)
    catch_up(decoding)
    drafter.settle(outcome)


def catch_up(decoding: Decoding) -> None:
    """Runs the committed tokens that the target's cache should hold and lacks; after a gather there are none."""
    target = decoding.pair.target
    held = len(decoding.tokens) - (decoding.drafter.root == "verified")
    missing = decoding.tokens[target.length : held]
    if missing:
        decoding.next_logits = decoding.processed(target.extend(missing), decoding.tokens[:held])


def _decoding(
    pair: ModelPair, strategy: Strategy, settings: SessionSettings, tokens: list[int], prompt_length: int
) -> Decoding:
    processors = pair.rules.processors(pair.target.model, prompt_length, settings.max_new_tokens)
    pair.target.mended = "remove_invalid_values" in pair.rules.followed
    return Decoding(pair, drafter_of(strategy, pair), settings, tokens, prompt_length, processors)


def _deepest(decoding: Decoding) -> int:
    bound = decoding.bound
    return bound - 1 - decoding.pair.target.length if bound is not None else 1 << 30


def _check_context(decoding: Decoding) -> None:
    bound, name, prompt_length = decoding.bound, decoding.pair.name, decoding.prompt_length
    max_new_tokens = decoding.settings.max_new_tokens
    if bound is None or prompt_length + max_new_tokens <= bound:
        return
    room = bound - prompt_length
    way_out = f"set max_new_tokens to {room} or less, or " if room > 0 else ""
    asked = f"{prompt_length} prompt tokens and {max_new_tokens} new ones"
    if bound == decoding.context:
        raise ContextExceededError(f"{asked} exceed the context of {name}, {bound} tokens: {way_out}shorten the prompt")
    raise ContextExceededError(
        f"{asked} cross {bound} tokens, where {name} changes the angles of all positions (longrope): {way_out}"
        f"give a prompt of more than {bound} tokens"
    )


def _counts(drafter: Drafter, rule: Rule, outcome: Outcome, calls: Sequence[int], seconds: float) -> Counts:
    rooted = int(drafter.root == "verified")
    return Counts(
        iterations=1,
        committed=len(outcome.committed),
        drafted=len(outcome.tree) - rooted,
        accepted=len(outcome.accepted),
        longest_path=int(outcome.tree.depth[-1]) + 1 - rooted,
        target_calls=calls[0],
        draft_calls=sum(calls[1:]),
        seconds=seconds,
        lossy=int(not rule.lossless),
    )
