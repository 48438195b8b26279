"""Runs beside each other: forks, comparisons, two iterations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from drawn import figures, html, said
from table_runner import random_probs, table_pair
from view_samples import TEXTS, build_step, five_nodes, odd_tokens, one_node, sixty_nodes, trace, words

import speclab
from speclab.analysis.compare import ComparedRun, Comparison
from speclab.trace.records import PHASES, Event, Step
from speclab.tree import DraftTree
from speclab.views import runs, side_by_side
from speclab.views.runs import Fork
from speclab.views.side_by_side import Beside, runs_words, steps_words, texts_words


def smaller(*, pruned=False):
    """The five nodes, but ␣old (node 1) was not expanded, or lost its second child."""
    tokens, parents = ([0, 1, 8, 2], [-1, 0, 0, 1]) if pruned else ([0, 1, 8], [-1, 0, 0])
    log_prob = [0.0, math.log(0.6), math.log(0.3), math.log(0.7)][: len(tokens)]
    tree = DraftTree.of(tokens, parents, log_prob, ["target", *["draft"] * (len(tokens) - 1)])
    step = build_step(tree, (1, 3) if pruned else (1,), bonus=2, prefix=12, index=2)
    others = tuple(event for event in step.events if event.node != 1)
    reason = "path 0.12 < prune_probability 0.2" if pruned else "path probability 0.6 < stop_probability 0.7"
    own = Event("prune", 1, reason, {"token": 9}) if pruned else Event("stop", 1, reason, {"gate": "stop_probability"})
    expand = [event for event in step.events if event.node == 1 and event.kind == "expand"]
    return replace(step, events=(*others, *expand, own))


def test_how_two_trees_differ_and_why_is_said():
    figures, why = steps_words(smaller(), five_nodes())
    for fact in ("drafted: 2 against 4", "accepted: 1 against 2", "committed: 2 against 3"):
        assert fact in figures
    for fact in ("The other expanded '␣old' into 2", "this run stopped", "0.6 < stop_probability 0.7"):
        assert fact in why
    assert "This run expanded '␣old' into 2, where the other stopped" in steps_words(five_nodes(), smaller())[1]
    (why,) = steps_words(smaller(pruned=True), five_nodes())[1:]
    for fact in (f"drafted '{five_nodes().texts[9].replace(' ', '␣')}' after '␣old'", "this run pruned it: path 0.12"):
        assert fact in why
    assert "the same tree" in steps_words(five_nodes(), five_nodes())[1]
    assert "different places of the text: behind 12 and 139 tokens" in steps_words(five_nodes(), sixty_nodes())[1]


@pytest.fixture
def two():
    """A run, and its fork that commits one token less in iteration 3 and another one in iteration 5."""
    one = trace(6)
    steps = list(one.steps)
    steps[2] = replace(steps[2], committed=steps[2].committed[:-1])
    return one, replace(one, steps=tuple(steps))


def test_texts_are_compared_token_by_token(two):
    one, other = two
    assert f"Same text so far: {len(one.token_ids(2))} tokens" in texts_words(one, other, 2)
    said = texts_words(one, other, 3)
    assert f"up to token {len(other.token_ids(3))}; this run is 1 token ahead" in said
    assert "the other is 1 token ahead" in texts_words(other, one, 3)
    at = side_by_side.common(one.token_ids(), other.token_ids())
    assert f"Same text up to token {at}; then '" in texts_words(one, other, 6)
    assert "differ from the first token" in texts_words(one, replace(other, first_token=9), 1)
    short = replace(other, steps=other.steps[:2])
    assert "nothing is drafted yet" in runs_words(one, short, 0)[0]
    assert "The other run has 2 iterations" in runs_words(one, short, 4)[0]
    assert "prompts differ" in runs_words(one, replace(other, prompt_ids=(1,)), 2)[1]


def test_texts_that_part_stand_below_each_other_around_that_place(two):
    one, other = two
    at = side_by_side.common(one.token_ids(), other.token_ids())
    page = words(side_by_side.texts_table(one, Beside(1, "<fork>", other), 6))
    for ids in (one.token_ids(), other.token_ids()):
        assert "".join(side_by_side.label(token, one.texts) for token in ids[at - 4 : at + 8]) in page
    assert f"{at + 1} ≠" in page
    assert "<fork>" in page
    assert side_by_side.texts_table(one, Beside(1, "fork", one), 6) == ""


def titles(drawing) -> list[str]:
    return [note["text"] for one in figures(drawing) for note in one["layout"]["annotations"]]


def test_both_trees_stand_side_by_side_and_a_pinned_step_alone(two):
    one, other = two
    assert titles(side_by_side.beside_drawing(one, 2, Beside(1, "fork", other), None)) == [], "the stage has that tree"
    other = replace(other, steps=(other.steps[0], five_nodes()))
    drawing = side_by_side.beside_drawing(one, 2, Beside(1, "<fork>", other), None)
    assert titles(drawing) == ["<b>This run</b>", "<b>&lt;fork&gt;</b>"]
    for step in (odd_tokens(), one_node(), sixty_nodes(), five_nodes()):
        drawing = side_by_side.beside_drawing(replace(one, steps=(step,)), 1, None, five_nodes())
        assert "Nodes drafted: " in words(html(drawing))
        assert len(titles(drawing)) == 2
    alone = five_nodes()
    drawing = side_by_side.beside_drawing(replace(one, steps=(alone,)), 1, None, alone)
    assert titles(drawing) == ["<b>Pinned: iteration 3</b>"]
    assert side_by_side.beside_drawing(one, 2, None, None) == ""


def test_an_iteration_redone_stands_beside_itself_with_what_was_changed_and_what_came_of_it():
    old = replace(smaller(), settings=five_nodes().settings | {"base_depth": 1})
    page = words("".join(map(str, side_by_side.pair_facts(old, five_nodes()))))
    for fact in ("The new one expanded '␣old' into 2, where the old tree stopped", "base\u00a0depth15", "␣old␣woman"):
        assert fact in page
    drawn = figures(side_by_side.twice_drawing(old, five_nodes(), 600, 400))
    assert [any(trace.get("meta") == {"click": "node"} for trace in each["data"]) for each in drawn] == [False, True]
    assert drawn[0]["layout"]["xaxis"]["range"] == drawn[1]["layout"]["xaxis"]["range"], "common columns"
    assert sum([each["layout"]["height"] for each in drawn]) <= 400


FORKS = (
    Fork(0, "DynaTree", None, 0, 6, 21, 3.5, 1_048_576, present=False),
    Fork(1, "node budget 24 → 8", 0, 3, 5, 14, 2.8, 524_288, present=True),
    Fork(2, "strategy DynaTree → <Goose>", 0, 2, 9, 30, 3.1, 0, present=False),
    Fork(3, "temperature 0 → 0.7", 1, 4, 4, 11, 2.5, 0, present=False),
)


def test_every_fork_is_drawn_with_its_name_and_the_one_shown_is_said():
    for forks in (FORKS, FORKS[1:], (*FORKS, Fork(4, "seed 0 → 1", 1, 1, 3, 9, 2.5, 0, present=False))):
        drawn = runs.forks_spec(forks)
        assert all(fork.name in said(drawn) for fork in forks)
        shown = drawn["data"][-1]
        names = dict(zip(shown["customdata"], shown["text"], strict=True))
        assert shown["meta"] == {"click": "run"}
        assert sorted(names) == [fork.number for fork in forks]
        assert [number for number, text in names.items() if "· shown ·" in text] == [1]
    for fact in ("4 runs", "1.5 MiB", "shown: fork 1 of 0 at iteration 3: node budget 24 → 8"):
        assert fact in runs.summary(FORKS)
    assert "1.0 MiB" in runs.forks_table(FORKS)
    assert "No run has begun" in runs.summary(())


def entry(name, run, finished="max_new_tokens"):
    return ComparedRun(name, replace(run, finished=finished, prefill_calls=1))


def test_equal_texts_are_said_to_be_equal_and_the_first_difference_is_marked(two):
    one, other = two
    same = Comparison((entry("A", one), entry("B", one)))
    assert f"all 2 texts are the same, {len(one.token_ids())} tokens" in runs.text_words(same)
    assert "wavy" not in html(runs.compared_drawing(same))
    found = Comparison((entry("A", one), entry("B <b>", other)))
    at = side_by_side.common(one.token_ids(), other.token_ids())
    assert f"B <b> differs from token {at + 1}: '" in runs.text_words(found)
    assert runs._shared(found) == one.token_ids()[:at]
    assert found.differs_at(found.runs[1]) == at
    page = html(runs.compared_drawing(found))
    assert page.count("wavy") == 1
    assert f"differs from token {at + 1}" in words(page)


def test_an_ending_of_its_own_is_a_difference_and_a_stop_or_a_cut_is_none():
    run = trace(5)
    short = replace(run, steps=run.steps[:3])
    ended = Comparison((entry("A", run), entry("B", short, "end of text")))
    assert "the end against" in runs.text_words(ended)
    assert Comparison(ended.runs[::-1]).differs_at(ended.runs[0]) == len(short.token_ids())
    stopped = Comparison((entry("A", run), entry("B", short, "")), stopped=True)
    assert stopped.differs_at(stopped.runs[1]) is None
    assert "1 of 2 that began came to the end" in html(runs.compared_drawing(stopped))
    assert Comparison(stopped.runs[::-1]).reference == run.token_ids()
    cut = entry("B", short)
    for found in (Comparison((entry("A", run), cut)), Comparison((cut, entry("A", run)))):
        assert [found.differs_at(each) for each in found.runs] == [None, None]


def test_one_that_did_not_run_has_a_row_that_says_why():
    found = Comparison((entry("A", trace(4)), ComparedRun("B", None, "it needs a draft model")))
    page = said(runs.compared_drawing(found))
    assert "did not run: it needs a draft model" in page
    assert "all 1 texts" not in page
    assert runs.compared_drawing(Comparison(())) == []
    odd = replace(trace(1), steps=(odd_tokens(),), texts=TEXTS)
    for other in (ComparedRun("B", None, "no"), entry("A", odd)):
        assert figures(runs.compared_drawing(Comparison((other,))))
    assert runs.compared_drawing(Comparison((other,)), "run") == []


def test_bars_are_the_figures_of_the_runs(two):
    one, other = two
    found = Comparison((entry("<b>A", one), entry("B", other), ComparedRun("C", None, "no")))
    drawn = runs.compare_spec(found)
    assert drawn["data"][0]["x"][::-1] == [round(run.tokens_per_iteration, 3) for run in found.runs]
    assert drawn["layout"]["yaxis"]["ticktext"][::-1] == ["&lt;b&gt;A", "B", "C"]
    for run, *phases in zip(found.runs[::-1], *(bars["x"] for bars in drawn["data"][2:]), strict=True):
        seconds = sum(map(run.seconds, PHASES)) / max(len(run.token_ids) - 1, 1)
        assert sum(phases) == pytest.approx(1000 * seconds, abs=0.01)


PROBS = random_probs(24, 3, low=0.5, high=2.0)
SMALL = speclab.DraftHead(node_budget=3, depth=2, children=4)


def twins(other: speclab.DraftHead) -> list[tuple[Step, Step]]:
    """Iterations of the larger tree and of the small one in its place."""
    run = speclab.Session(table_pair(PROBS, PROBS, 24), other, [1, 2, 3], max_new_tokens=40)
    return [(step, run.fork(at=step.index, strategy=SMALL).step()) for step in (run.step(), run.step(), run.step())]


def told(more: Step, less: Step) -> dict[int, str]:
    """What is said of each token that `more` drafted after the root and `less` did not."""
    kept = {int(less.tree.token[child]) for child in less.tree.children[0]}
    extra = [int(more.tree.token[child]) for child in more.tree.children[0]]
    return {token: side_by_side.why_absent(less, 0, token) for token in extra if token not in kept}


def test_every_token_dropped_is_told_by_its_own_figures():
    later = 0
    for more, less in twins(SMALL.changed(node_budget=16)):
        least = min(node.path_prob for node in less.nodes)
        for token, why in told(more, less).items():
            prob = dict(less.nodes[0].draft_top)[token]
            assert prob <= least
            assert why.startswith(f"pruned it: path probability {prob:.2g}, and the ")
            assert why.endswith(f"{least:.2g} and more")
            later += "the nodes kept" in why
        words = side_by_side.steps_words(less, more)
        assert any("; this run pruned it: path probability" in sentence for sentence in words)
    assert later


def test_a_token_that_it_did_not_look_at_is_not_said_to_be_dropped():
    unseen = 0
    for more, less in twins(SMALL.changed(node_budget=16, children=8)):
        seen = {token for token, _ in less.nodes[0].draft_top[:4]}
        for token, why in told(more, less).items():
            assert why.startswith("pruned it" if token in seen else "looked at its 4 most probable tokens alone")
            unseen += token not in seen
    assert unseen
