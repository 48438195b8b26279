"""Host work by counting: what drafting and learning call does not grow with the context or the vocabulary."""

import pytest
import torch
from counted import calls
from table_runner import random_law, table_pair
from tiny import tiny

import speclab
from speclab.bench.host_work import MOST_A_ROUND, STRATEGIES, MadeTarget, Replay, host_work, table_memory
from speclab.bench.yields import yields
from speclab.drafters import training_free
from speclab.drafters.base import Context, Outcome
from speclab.models.pair import load_pair
from speclab.models.transfers import likeliest, on_host
from speclab.sources.transitions import TransitionTable

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def counted_work(strategy, length) -> tuple[int, int]:
    """Calls of one draft and of one lesson, after a few iterations on a text that repeats itself."""
    drafter, text = strategy.drafter(table_pair(random_law(12, 1), None, 12)), [1, 2, 3, 4, 5, 6, 7, 8] * (length // 8)
    logits = torch.randn(60, 12, generator=torch.Generator().manual_seed(0))
    for token in (1, 2, 3):
        draft = drafter.draft(Context(text, 20, lambda: None))
        outcome = Outcome(draft.tree, (), (token,), logits[: len(draft.tree)], logits[:0])
        drafter.update(outcome)
        text.append(token)
    return calls(lambda: drafter.draft(Context(text, 20, lambda: None))), calls(lambda: drafter.update(outcome))


@every_strategy
def test_drafting_and_learning_call_no_more_for_a_longer_context(strategy):
    counted_work(strategy, 64)  # fills what is cached for good
    drafted, learned = counted_work(strategy, 256)
    assert (drafted, learned) == counted_work(strategy, 4096)
    assert drafted > 10


def test_what_is_told_of_a_draft_is_made_when_it_is_read(monkeypatch):
    made, event = [], training_free._expanded
    monkeypatch.setattr(training_free, "_expanded", lambda *given: made.append(1) or event(*given))
    target = MadeTarget(200)
    text = target.text(400 + 10 * MOST_A_ROUND)
    replay = Replay(STRATEGIES["Goose"], target, text[:400], text[400:])
    assert max(replay.iterate().nodes for _ in range(10)) == 60
    assert made == []
    draft = replay._drafter.draft(Context(replay._tokens, 20, lambda: None))
    assert len(draft.events) == len(list(draft.events)) == len(made) + sum(e.kind != "expand" for e in draft.events)


def test_a_node_of_a_spine_tree_takes_few_calls():
    """Python's and C's, of a draft and a lesson, where the tree is full: a loop over rows in Python would show."""
    target = MadeTarget(200)
    text = target.text(400 + 12 * MOST_A_ROUND)
    replay = Replay(STRATEGIES["Goose"], target, text[:400], text[400:])
    drafter = replay._drafter
    for _ in range(10):
        replay.iterate()
    drafted, tokens = [], Context(replay._tokens, 20, lambda: None)
    drafts = calls(lambda: drafted.append(drafter.draft(tokens)))
    tree = drafted[0].tree
    logits = target.forward(tree.token.tolist())
    lesson = calls(lambda: drafter.update(Outcome(tree, (), (1,), logits, logits[:0])))
    assert len(tree) == 60
    assert drafts < 40 * len(tree)
    assert lesson < 12 * len(tree)


def test_a_harvest_calls_nothing_for_each_token_of_the_vocabulary():
    counted = []
    for vocabulary in (4096, 16384):
        table, logits = TransitionTable(vocabulary, 10, 1000), torch.randn(20, vocabulary)
        table.harvest([-1, *range(19)], range(20), logits)
        counted.append(calls(lambda table=table, logits=logits: table.harvest([5] * 20, range(20), logits)))
    assert counted[0] == counted[1] < 400


def test_what_is_harvested_comes_over_in_one_piece():
    """Side by side, whichever way it is packed: on the host, or on a device first."""
    ids, probabilities = likeliest(torch.randn(7, 50), 4)
    rows = on_host(ids, probabilities)
    packed = torch.stack((ids.int(), probabilities.view(torch.int32)), 1).numpy()
    assert rows.dtype == packed.dtype
    assert rows.tolist() == packed.tolist()


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_replay_accepts_what_stands_in_the_text(name):
    target = MadeTarget(200)
    text = target.text(400 + 10 * MOST_A_ROUND)
    replay = Replay(STRATEGIES[name], target, text[:400], text[400:])
    nodes = [replay.iterate().nodes for _ in range(10)]
    assert replay._tokens == text[: len(replay._tokens)]
    assert len(replay._tokens) > 410
    assert max(nodes) > 1


def test_rows_for_every_strategy_and_context_as_they_are_measured():
    rounds = []
    found = list(host_work(contexts=(64, 128), rounds=3, vocabulary=64, done=lambda: rounds.append(1)))
    assert [(row.way, row.context) for row in found] == [(name, n) for name in STRATEGIES for n in (64, 128)]
    assert all(row.growth == 1 for row in found[::2])
    assert all(row.total_ms > 0 and row.nodes >= 1 for row in found)
    assert len(rounds) == len(STRATEGIES) * (3 + 8)


def test_the_tables_of_a_large_vocabulary_are_within_their_bound():
    rows = table_memory(vocabulary=150_000)
    assert [row.way for row in rows] == ["Goose", "IsotropicTree", "TokenRecycling"]
    assert all(0 < row.megabytes <= row.bound for row in rows)


@pytest.mark.model
def test_yields_are_means_over_the_prompts_of_a_kind():
    pair = load_pair(target=tiny("gpt_neox"))
    chosen = {"PromptLookup": STRATEGIES["PromptLookup"], "Autoregressive": speclab.Autoregressive()}
    (row,) = yields(pair, {"made": [[3, 1, 4, 1, 5], [9, 2, 6]]}, chosen, max_new_tokens=12)
    assert (row.kind, row.prompts) == ("made", 2)
    assert row.tokens_per_iteration["Autoregressive"] == 1
    assert row.tokens_per_iteration["PromptLookup"] >= 1
