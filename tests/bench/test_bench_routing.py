"""The arithmetic of the routing bench on made-up runs, and its figures on table pairs against sessions of one's own."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from types import SimpleNamespace

import pytest
from table_runner import mixed_law, random_law, table_pair
from words import word_tokenizer

import speclab
from speclab.analysis.routing import Part, Routing, statistics
from speclab.bench import routing as bench
from speclab.models.pair import ModelPair

VOCAB = 8
SMALL = {"node_budget": 8, "depth": 3, "children": 3}


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    """A target that reads words, and two drafts in the place of heads, each right where the other often is not."""
    law = random_law(VOCAB, 1, low=0.5, high=2.0)
    drafts = [mixed_law(law, random_law(VOCAB, seed), share) for seed, share in ((2, 0.5), (3, 0.6))]
    heads = tuple(table_pair(draft, None, VOCAB).target for draft in drafts)
    return replace(table_pair(law, None, VOCAB), heads=heads, tokenizer=word_tokenizer(VOCAB))


def part(name: str, chosen: int, confidence: float, share: float) -> Part:
    return Part(name, chosen, 0, 0, confidence, share, 0.0, 0.0)


def made_up(tokens: list[int], committed: int, iterations: int, parts: tuple[Part, ...] = ()) -> SimpleNamespace:
    """What the bench asks of a session."""
    counts = SimpleNamespace(committed=committed, iterations=iterations)
    found = Routing(iterations, 0.0, parts) if parts else None
    return SimpleNamespace(token_ids=tokens, metrics=SimpleNamespace(counts=counts), trace=found)


def test_a_row_is_a_mean_over_prompts_of_rates_over_turns(monkeypatch):
    plain, route, merge = (SimpleNamespace(name=name) for name in ("plain", "route", "merge"))
    one, two = part("prose", 3, 0.4, 0.2), part("code", 1, 0.1, 0.3)
    runs = {
        ("plain", "a"): [made_up([1, 2], 2, 2), made_up([3], 1, 1)],
        ("route", "a"): [made_up([1, 2], 6, 2, (one, two)), made_up([3], 3, 1)],
        ("merge", "a"): [made_up([1, 2], 8, 2), made_up([3], 1, 1)],
        ("plain", "b"): [made_up([4], 1, 1)],
        ("route", "b"): [made_up([4], 5, 1, (replace(one, chosen=1, share=0.6), replace(two, confidence=0.5)))],
        ("merge", "b"): [made_up([5], 2, 1)],
    }
    monkeypatch.setattr(bench, "Autoregressive", lambda: plain)
    monkeypatch.setattr(bench, "_decoded", lambda pair, strategy, turns, count: runs[strategy.name, turns[0]])
    monkeypatch.setattr(bench, "statistics", lambda trace: trace)
    done = []
    ways = {"route": route, "merge": merge}
    (row,) = bench.routing(None, {"made": [("a", "a2"), ("b",)]}, ways, done=lambda: done.append(1))
    assert (row.kind, row.prompts, row.equal, len(done)) == ("made", 2, 1, 4)
    assert row.tokens_per_iteration == {"route": (9 / 3 + 5 / 1) / 2, "merge": (9 / 3 + 2 / 1) / 2}
    assert row.chosen == {"prose": 4 / 6, "code": 2 / 6}
    assert row.confidence == pytest.approx({"prose": 0.4, "code": 0.3})
    assert row.share == pytest.approx({"prose": 0.4, "code": 0.3})


def test_the_figures_are_those_of_sessions(pair):
    ways = bench.ways(**SMALL)
    texts = {"one": [("w1 w2 w3",), ("w4 w4",)]}
    (row,) = bench.routing(pair, texts, ways, max_new_tokens=20)
    assert row.equal == row.prompts == 2
    for name, strategy in ways.items():
        sessions = [speclab.Session(pair, strategy, text, max_new_tokens=20) for (text,) in texts["one"]]
        for session in sessions:
            session.run()
        assert row.tokens_per_iteration[name] == mean(session.metrics.tokens_per_iteration for session in sessions)
        if name == "route":
            parts = [part for session in sessions for part in statistics(session.trace).parts]
            assert row.confidence == {
                name: mean(part.confidence for part in parts if part.name == name) for name in pair.head_names
            }
    assert sum(row.chosen.values()) == pytest.approx(1)


def test_a_turn_is_decoded_after_all_of_the_text_before_it(pair):
    first, second = bench._decoded(pair, speclab.Autoregressive(), ("w1 w2", "w5"), 6)
    assert first.prompt_ids == [1, 2]
    assert second.prompt_ids == [1, 2, *first.token_ids, 5]
    assert len(first.token_ids) == len(second.token_ids) == 6


def test_mixed_texts_turn_from_prose_to_code():
    prompts = {"prose": ["P1", "P2", "P3"], "code": ["C1", "C2"], "sums": ["S"]}
    assert bench.mixed(prompts) == [("P1", "\n\nC1"), ("P2", "\n\nC2")]
