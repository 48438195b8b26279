"""Host work by counting: what drafting and updating call does not grow with the context or the vocabulary."""

from functools import partial

import pytest
import torch
from counted import calls
from host import MAX_PER_ROUND, TRAINING_FREE, MadeTarget, Replay
from table_runner import random_probs, table_pair

from speclab.drafters import training_free
from speclab.drafters.base import Context, Outcome
from speclab.models.transfers import Logits, to_host, topk
from speclab.sources.transitions import TransitionTable

every_strategy = pytest.mark.parametrize("strategy", TRAINING_FREE.values(), ids=TRAINING_FREE)


def counted_work(strategy, length) -> tuple[int, int]:
    """Calls of one draft and of one update, after a few iterations on a text that repeats itself."""
    drafter, text = (
        strategy.drafter(table_pair(random_probs(12, 1), None, 12)),
        [1, 2, 3, 4, 5, 6, 7, 8] * (length // 8),
    )
    logits = torch.randn(60, 12, generator=torch.Generator().manual_seed(0))
    for token in (1, 2, 3):
        draft = drafter.draft(Context(text, 20, lambda: None))
        outcome = Outcome(draft.tree, (), (token,), Logits(logits[: len(draft.tree)]), Logits(logits[:0]))
        drafter.update(outcome)
        text.append(token)
    return calls(lambda: drafter.draft(Context(text, 20, lambda: None))), calls(lambda: drafter.update(outcome))


@every_strategy
def test_drafting_and_updating_call_no_more_for_a_longer_context(strategy):
    counted_work(strategy, 64)  # fills what is cached for good
    drafted, updated = counted_work(strategy, 256)
    assert (drafted, updated) == counted_work(strategy, 4096)
    assert drafted > 10


def test_what_is_told_of_a_draft_is_made_when_it_is_read(monkeypatch):
    made, event = [], training_free._expanded
    monkeypatch.setattr(training_free, "_expanded", lambda *given: made.append(1) or event(*given))
    target = MadeTarget(200)
    text = target.text(400 + 10 * MAX_PER_ROUND)
    replay = Replay(TRAINING_FREE["Goose"], target, text[:400], text[400:])
    assert max(replay.iterate().nodes for _ in range(10)) == 60
    assert made == []
    draft = replay._drafter.draft(Context(replay.tokens, 20, lambda: None))
    assert len(draft.events) == len(list(draft.events)) == len(made) + sum(e.kind != "expand" for e in draft.events)


def test_a_node_of_a_spine_tree_takes_few_calls():
    """Python's and C's, of a draft and an update, where the tree is full: a loop over rows in Python would show."""
    target = MadeTarget(200)
    text = target.text(400 + 12 * MAX_PER_ROUND)
    replay = Replay(TRAINING_FREE["Goose"], target, text[:400], text[400:])
    drafter = replay._drafter
    for _ in range(10):
        replay.iterate()
    drafted, tokens = [], Context(replay.tokens, 20, lambda: None)
    drafts = calls(lambda: drafted.append(drafter.draft(tokens)))
    tree = drafted[0].tree
    logits = Logits(target.forward(tree.token.tolist()))
    updating = calls(lambda: drafter.update(Outcome(tree, (), (1,), logits, logits)))
    assert len(tree) == 60
    assert drafts < 40 * len(tree)
    assert updating < 12 * len(tree)


def test_a_harvest_calls_nothing_for_each_token_of_the_vocabulary():
    counted = []
    for vocabulary in (4096, 16384):
        table, logits = TransitionTable(vocabulary, 10, 1000), torch.randn(20, vocabulary)
        found = Logits(logits).successors(table.width)
        table.harvest([-1, *range(19)], range(20), found)
        harvest = partial(table.harvest, [5] * 20, range(20))
        counted.append(calls(lambda harvest=harvest, logits=logits: harvest(Logits(logits).successors(10))))
    assert counted[0] == counted[1] < 400


def test_what_is_harvested_comes_over_in_one_piece():
    """Side by side, whichever way it is packed: on the host, or on a device first."""
    probabilities, ids = topk(torch.randn(7, 50).softmax(-1), 4)
    rows = to_host(ids, probabilities)
    packed = torch.stack((ids.int(), probabilities.view(torch.int32)), 1).numpy()
    assert rows.dtype == packed.dtype
    assert rows.tolist() == packed.tolist()


@pytest.mark.parametrize("name", TRAINING_FREE)
def test_a_replay_accepts_what_stands_in_the_text(name):
    target = MadeTarget(200)
    text = target.text(400 + 10 * MAX_PER_ROUND)
    replay = Replay(TRAINING_FREE[name], target, text[:400], text[400:])
    nodes = [replay.iterate().nodes for _ in range(10)]
    assert replay.tokens == text[: len(replay.tokens)]
    assert len(replay.tokens) > 410
    assert max(nodes) > 1
