"""What holds for every strategy: the target's text, one pass an iteration, no row beyond the context, equal forks."""

from __future__ import annotations

import pytest
from support.every_strategy import ALONE, DRAFTED, NEW, PROMPT, pair_of
from support.records import assert_consistent, assert_same_drafts, ran

import speclab
from speclab.drafters.base import Context

EVERY = ALONE | DRAFTED | {"drafted root, gathered": speclab.DynaTree(root="drafted")}
every_strategy = pytest.mark.parametrize("strategy", EVERY.values(), ids=EVERY)


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> str:
    """A text in which retrieval finds what the target says, but for every seventh token."""
    file = tmp_path_factory.mktemp("texts") / "searched.txt"
    text = (
        PROMPT
        + speclab.generate(
            pair_of(), speclab.Autoregressive(), PROMPT, max_new_tokens=NEW
        ).token_ids
    )
    file.write_text(" ".join(f"w{token}" for place, token in enumerate(text) if place % 7))
    return str(file)


@every_strategy
@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 0.8, "seed": 3}, {"temperature": 1.5, "top_k": 6, "top_p": 0.9}],
    ids=["greedy", "sampled", "cut"],
)
def test_the_text_is_the_targets_own_at_one_pass_an_iteration(strategy, sampling, searched):
    if isinstance(strategy, speclab.Retrieval):
        strategy = strategy.changed(text=searched)
    session = speclab.Session(pair_of(), strategy, PROMPT, max_new_tokens=NEW, **sampling)
    target = session.pair.target
    drafts = (session.pair.draft, *session.pair.heads)
    while not session.done:
        calls = target.calls
        rows = target.rows
        asked = sum(runner.calls for runner in drafts)
        read = sum(runner.rows for runner in drafts)
        step = session.step()
        assert_consistent(step)
        again = 0  # rows of a second pass
        if step.root_choice is not None:
            again = (
                len(step.committed) if strategy.commit == "rebuild" else int(step.bonus is not None)
            )
        assert target.calls - calls == step.counts.target_calls == 1 + (again > 0)
        assert target.rows - rows == len(step.tree) + len(step.extra) + again
        assert sum(runner.calls for runner in drafts) - asked == step.counts.draft_calls
        assert not step.counts.draft_calls or strategy not in ALONE.values()
        read = sum(runner.rows for runner in drafts) - read
        if step.index and isinstance(strategy, speclab.LinearSpeculation):
            assert read <= strategy.draft_tokens + 1, "and at most one token to catch up with"
        if getattr(strategy, "commit", "gather") == "rebuild":
            expanded = sum(event.kind == "expand" for event in step.events)
            assert read == step.prefix_length + expanded, "a draft prefill"
    plain = speclab.generate(
        pair_of(), speclab.Autoregressive(), PROMPT, max_new_tokens=NEW, **sampling
    )
    assert session.token_ids == plain.token_ids
    assert len({len(step.accepted) for step in session.steps}) >= 2
    assert sampling or session.metrics.tokens_per_iteration > 1.1
    for at in (
        6,
        7,
    ):  # a fork goes on with what the drafter had learned, whatever another has learned since
        twin = session.fork(at=at)
        twin.run()
        assert twin.token_ids == plain.token_ids
        assert_same_drafts(session, twin)


@every_strategy
def test_no_row_lies_beyond_the_context(strategy):
    """The runner of a table fails where one does."""
    for room in range(1, 8):
        session = ran(pair_of(len(PROMPT) + room), strategy, PROMPT, max_new_tokens=room)
        assert len(session.token_ids) == room


COPYING = {
    "goose, sure": speclab.Goose(node_budget=60, bypass="graded"),
    "goose without a bypass": speclab.Goose(node_budget=60, bypass="off"),
}
WITHOUT_A_MODEL = ALONE | COPYING


class Counted(list):
    """Tokens; reading some counts them, and reading all of them in turn fails."""

    read = 0

    def __getitem__(self, at):
        tokens = super().__getitem__(at)
        Counted.read += len(tokens) if isinstance(at, slice) else 1
        return tokens

    def __iter__(self):
        raise AssertionError("a scan of the whole text")


@pytest.mark.parametrize("strategy", WITHOUT_A_MODEL.values(), ids=WITHOUT_A_MODEL)
def test_a_draft_without_a_model_reads_no_more_of_a_longer_text(strategy):
    """However often a chain is matched again at its end."""
    drafter = strategy.drafter(pair_of())
    text = Counted([1, 2, 3, 4, 5, 6, 7, 8] * 512)
    drafter.draft(Context(text, 1000, lambda: None))
    for token in (1, 2, 3):
        text.append(token)
        Counted.read = 0
        tree = drafter.draft(Context(text, 1000, lambda: None)).tree
        assert len(tree) > 10 or strategy not in COPYING.values()
        assert Counted.read <= 200
