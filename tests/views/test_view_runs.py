"""Two runs apart in words, side by side, as a tree of forks, and strategies in one table."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from picture import HTML, SVG, check_svg, parse
from view_samples import TEXTS, build_step, five_nodes, odd_tokens, one_node, sixty_nodes, trace

from speclab.analysis.compare import ComparedRun, Comparison
from speclab.trace.records import Event
from speclab.tree import DraftTree
from speclab.views import runs, side_by_side
from speclab.views.runs import Fork


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


def test_a_node_that_one_expanded_and_the_other_stopped():
    assert side_by_side.steps_words(smaller(), five_nodes()) == (
        "Nodes drafted: 2 against 4; accepted: 1 against 2; tokens committed: 2 against 3.",
        "The other expanded '␣old' into 2, where this run stopped: path probability 0.6 < stop_probability 0.7.",
    )
    assert side_by_side.steps_words(five_nodes(), smaller())[1] == (
        "This run expanded '␣old' into 2, where the other stopped: path probability 0.6 < stop_probability 0.7."
    )


def test_a_child_that_one_pruned():
    words = side_by_side.steps_words(smaller(pruned=True), five_nodes())
    token = five_nodes().texts[9].replace(" ", "␣")
    assert words[1:] == (
        f"The other drafted '{token}' after '␣old'; this run pruned it: path 0.12 < prune_probability 0.2.",
    )


def test_the_same_tree_and_different_places():
    assert side_by_side.steps_words(five_nodes(), five_nodes())[1] == "Both drafted the same tree."
    words = side_by_side.steps_words(five_nodes(), sixty_nodes())
    assert words[1] == "The two trees stand at different places of the text: behind 12 and 139 tokens."


@pytest.fixture
def two():
    """A run, and its fork that commits one token less in iteration 3 and another one in iteration 5."""
    one = trace(6)
    steps = list(one.steps)
    steps[2] = replace(steps[2], committed=steps[2].committed[:-1])
    return one, replace(one, steps=tuple(steps))


def test_texts_are_compared_token_by_token(two):
    one, other = two
    same = len(one.token_ids(2))
    assert side_by_side.texts_words(one, other, 2) == f"Same text so far: {same} tokens."
    assert side_by_side.texts_words(one, other, 3) == (
        f"Same text up to token {len(other.token_ids(3))}; this run is 1 token ahead."
    )
    assert "the other is 1 token ahead" in side_by_side.texts_words(other, one, 3)
    mine, theirs = one.token_ids(), other.token_ids()
    at = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
    assert side_by_side.texts_words(one, other, 6).startswith(f"Same text up to token {at}; then '")
    assert side_by_side.runs_words(one, other, 4)[2].startswith("The two trees stand at different places")
    elsewhere = replace(other, first_token=9)
    assert side_by_side.texts_words(one, elsewhere, 1).startswith("The texts differ from the first token: ")


def test_runs_that_do_not_reach_or_do_not_compare(two):
    one, other = two
    short = replace(other, steps=other.steps[:2])
    assert side_by_side.runs_words(one, short, 0) == ("Before the first iteration: nothing is drafted yet.",)
    assert "The other run has 2 iterations" in side_by_side.runs_words(one, short, 4)[0]
    assert "prompts differ" in side_by_side.runs_words(one, replace(other, prompt_ids=(1,)), 2)[1]


def test_both_trees_stand_side_by_side_on_one_scale(two):
    one, other = two
    page = side_by_side.run_html(one, side_by_side.Beside(1, "fork 1 of 0", other), 2)
    parse(page, HTML | SVG)
    assert page.count("<svg") == 2
    assert "Beside fork 1 of 0." in page
    assert "Both drafted the same tree." in page
    parse(side_by_side.run_html(one, side_by_side.Beside(1, "fork", replace(other, steps=())), 2), HTML | SVG)
    parse(side_by_side.run_html(one, side_by_side.Beside(1, "fork", other), 0), HTML | SVG)
    for step in (odd_tokens(), one_node(), sixty_nodes()):
        parse(side_by_side.step_html(step, five_nodes()), HTML | SVG)
    assert side_by_side.step_html(five_nodes(), five_nodes()).count("<svg") == 2
    alone = five_nodes()
    assert side_by_side.step_html(alone, alone).count("<svg") == 1


FORKS = (
    Fork(0, "DynaTree", None, 0, 6, 21, 3.5, 1_048_576, present=False),
    Fork(1, "node budget 24 → 8", 0, 3, 5, 14, 2.8, 524_288, present=True),
    Fork(2, "strategy DynaTree → <Goose>", 0, 2, 9, 30, 3.1, 0, present=False),
    Fork(3, "temperature 0 → 0.7", 1, 4, 4, 11, 2.5, 0, present=False),
)


def test_a_fork_leaves_the_line_of_its_parent_where_it_was_made():
    svg = runs.forks_svg(FORKS)
    check_svg(svg)
    assert svg.count("<circle") == 4
    assert svg.index("temperature 0") < svg.index("&lt;Goose&gt;")  # a run right before its forks
    assert svg.count(" · shown · ") == 1
    unit = runs.WIDE / 9
    assert f"M{runs.LEFT + 3 * unit:.1f} " in svg
    assert runs.summary(FORKS) == (
        "4 runs, their KV caches 1.5 MiB; shown: fork 1 of 0 at iteration 3: node budget 24 → 8."
    )
    assert "1.0 MiB" in runs.forks_table(FORKS)
    assert "No run has begun" in runs.summary(())


def test_a_fork_from_before_its_parent_s_own_beginning_leaves_the_line_that_reaches_so_far_back():
    """Iteration 1 of fork 1 is iteration 1 of run 0: there alone is a line to leave."""
    early = Fork(4, "seed 0 → 1", 1, 1, 3, 9, 2.5, 0, present=False)
    later = Fork(5, "seed 0 → 2", 4, 0, 2, 6, 2.5, 0, present=False)
    svg = runs.forks_svg((*FORKS, early, later))
    starts, rows = {}, {}
    for path in re.findall(r'd="M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)"', svg):
        x, top, y, end = map(float, path)
        starts[y], rows[y] = (x, top), (x, end)
    for y, (x, top) in starts.items():
        assert top == y or rows[top][0] <= x <= rows[top][1], f"the line at {y} hangs in empty space"
    assert [top for y, (_, top) in sorted(starts.items()) if top != y].count(min(rows)) == 4


def test_a_fork_whose_parent_is_gone_stands_alone():
    svg = runs.forks_svg(FORKS[1:])
    check_svg(svg)
    assert svg.count("<circle") == 3


def entry(name, run, finished="max_new_tokens"):
    return ComparedRun(name, replace(run, finished=finished, prefill_calls=1))


def test_equal_texts_are_said_to_be_equal():
    run = trace(5)
    found = Comparison((entry("A", run), entry("B", run)))
    words = runs.text_words(found)
    assert words == f"Greedy: all 2 texts are the same, {len(run.token_ids())} tokens, as they must be."
    page = runs.compared_html(found)
    parse(page, HTML | SVG)
    assert "wavy" not in page
    assert "(30 tokens)." in page


def test_the_first_difference_is_marked(two):
    one, other = two
    found = Comparison((entry("A", one), entry("B <b>", other)))
    at = side_by_side.common(one.token_ids(), other.token_ids())
    assert f"B <b> differs from token {at + 1}: '" in runs.text_words(found)
    assert found.shared == one.token_ids()[:at]
    page = runs.compared_html(found)
    parse(page, HTML | SVG)
    assert page.count("wavy") == 1
    assert f"differs from token {at + 1}" in runs.figures_table(found)
    assert found.rows()[1]["differs_from_token"] == at + 1


def test_an_ending_of_its_own_is_a_difference_and_a_stop_is_none():
    run = trace(5)
    short = replace(run, steps=run.steps[:3])
    ended = Comparison((entry("A", run), entry("B", short, "end of text")))
    assert "against '" in runs.text_words(ended)
    assert "the end against" in runs.text_words(ended)
    stopped = Comparison((entry("A", run), entry("B", short, "")), stopped=True)
    assert stopped.differs_at(stopped.runs[1]) is None
    assert "1 of 2 that began came to the end" in runs.compared_html(stopped)
    first = Comparison((entry("B", short, ""), entry("A", run)))
    assert first.reference == run.token_ids()


def test_a_text_cut_at_a_number_of_tokens_is_no_difference():
    run = trace(5)
    short = entry("B", replace(run, steps=run.steps[:3]))
    for found in (Comparison((entry("A", run), short)), Comparison((short, entry("A", run)))):
        assert [found.differs_at(each) for each in found.runs] == [None, None]
    ended = replace(run, steps=run.steps[:3])
    found = Comparison((entry("B", ended, "end of text"), entry("A", run)))
    assert found.differs_at(found.runs[1]) == len(ended.token_ids()), "the first ended where the other went on"


def test_one_that_did_not_run_has_a_row_that_says_why():
    found = Comparison((entry("A", trace(4)), ComparedRun("B", None, "it needs a draft model")))
    page = runs.compared_html(found)
    parse(page, HTML | SVG)
    assert "did not run: it needs a draft model" in page
    assert "all 1 texts" not in page
    assert found.to_csv().count("\n") == 3
    assert runs.compared_html(Comparison(())) == ""
    parse(runs.compared_html(Comparison((ComparedRun("B", None, "no"),))), HTML | SVG)


def test_texts_of_odd_tokens_are_escaped():
    step = odd_tokens()
    run = replace(trace(1), steps=(step,), texts=TEXTS)
    parse(runs.compared_html(Comparison((entry("A", run),))), HTML | SVG)
