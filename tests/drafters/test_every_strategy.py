"""What holds for every strategy: the target's text, one pass an iteration, no row beyond the context, equal forks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.every_strategy import ALONE, DRAFT, DRAFTED, NEW, PROBS, PROMPT, VOCAB, pair_of
from support.records import assert_consistent, assert_same
from support.refusals import refused
from support.table_runner import table_pair

import speclab
from speclab.drafters.base import Context

alone = pytest.mark.parametrize("strategy", ALONE.values(), ids=ALONE)
every_strategy = pytest.mark.parametrize(
    "strategy", (ALONE | DRAFTED).values(), ids=ALONE | DRAFTED
)


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
    "sampling", [{}, {"temperature": 0.8, "seed": 3}], ids=["greedy", "sampled"]
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
        step = session.step()
        assert_consistent(step)
        assert target.calls - calls == step.counts.target_calls
        if step.root_choice is None:  # what is accepted of a drafted root is forwarded again
            assert (target.calls - calls, target.rows - rows) == (
                1,
                len(step.tree) + len(step.extra),
            )
        assert sum(runner.calls for runner in drafts) - asked == step.counts.draft_calls
        assert not step.counts.draft_calls or strategy in DRAFTED.values()
    plain = speclab.generate(
        pair_of(), speclab.Autoregressive(), PROMPT, max_new_tokens=NEW, **sampling
    )
    assert session.token_ids == plain.token_ids
    assert len({len(step.accepted) for step in session.steps}) >= 2
    assert sampling or session.metrics.tokens_per_iteration > 1.1
    twin = session.fork(at=6)  # which goes on with what the drafter had learned
    twin.run()
    assert twin.token_ids == plain.token_ids
    for mine, its in zip(session.steps, twin.steps, strict=True):
        assert_same(mine.tree, its.tree)
        assert (mine.settings, mine.adaptation) == (its.settings, its.adaptation)
        assert (mine.events, mine.committed) == (its.events, its.committed)


@every_strategy
def test_no_row_lies_beyond_the_context(strategy):
    """The runner of a table fails where one does."""
    for room in range(1, 8):
        session = speclab.Session(
            pair_of(len(PROMPT) + room), strategy, PROMPT, max_new_tokens=room
        )
        session.run()
        assert len(session.token_ids) == room


class Counted(list):
    """Tokens; reading some counts them, and reading all of them in turn fails."""

    read = 0

    def __getitem__(self, at):
        tokens = super().__getitem__(at)
        Counted.read += len(tokens) if isinstance(at, slice) else 1
        return tokens

    def __iter__(self):
        raise AssertionError("a scan of the whole text")


@alone
def test_a_draft_without_a_model_reads_no_more_of_a_longer_text(strategy):
    drafter = strategy.drafter(pair_of())
    text = Counted([1, 2, 3, 4, 5, 6, 7, 8] * 512)
    drafter.draft(Context(text, 1000, lambda: None))
    for token in (1, 2, 3):
        text.append(token)
        Counted.read = 0
        drafter.draft(Context(text, 1000, lambda: None))
        assert Counted.read <= 80


TABLE = table_pair(PROBS, None, VOCAB)
HEADED = replace(pair_of(), draft=None)


@pytest.mark.parametrize(
    ("strategy", "pair", "words"),
    [
        (speclab.DraftHead(), TABLE, ("DraftHead", "heads=", "draft=")),
        (speclab.DraftHead(head=3), HEADED, ("head 3", "set head to 0.")),
        (
            speclab.DynaTree(head=7),
            replace(HEADED, heads=HEADED.heads * 3),
            ("draft head 7", "set head to 0 or 1 or 2."),
        ),
        (speclab.SequoiaTree(source="draft"), TABLE, ("choose PromptLookup",)),
        (speclab.DualDraft(), TABLE, ("head 1", "heads=")),
        (
            speclab.DualDraft(first=0, second=None),
            table_pair(PROBS, DRAFT, VOCAB),
            ("head 0 and the draft model", "heads="),
        ),
    ],
)
def test_a_draft_that_the_pair_lacks(strategy, pair, words):
    with refused(speclab.NoDraftError, *words):
        speclab.generate(pair, strategy, PROMPT, max_new_tokens=4)
