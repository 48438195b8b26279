"""Timeline, metrics, the distributions after a node, comparisons, curves, previews, and the public functions."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import pytest
from support.node import evaluated
from support.refusals import refused
from support.sessions import PROMPT
from support.table_runner import mixed_probs, random_probs, table_pair
from support.view_samples import five_nodes, odd_tokens, one_node, sixty_nodes, trace

import speclab
from speclab import views
from speclab.analysis.compare import ComparedRun, Comparison
from speclab.analysis.curves import Curve, Point
from speclab.analysis.whatif import in_force, what_if
from speclab.errors import SpeclabError
from speclab.trace.codecs import adapter
from speclab.trace.records import Proposal, Residual, Step, TokenProb, Trial
from speclab.tree import DraftTree
from speclab.views.compare_picture import curve_sentence, draw_compare, draw_curve
from speclab.views.node_picture import draw_node, draw_residual, residual_sentence
from speclab.views.preview import draw_whatif, whatif_sentence
from speclab.views.run_data import page, run_header, step_data
from speclab.views.run_picture import draw_metrics, draw_timeline, metrics_sentence
from speclab.views.theme import LOOKS, figure

# The run


def test_the_timeline_has_a_bar_per_iteration_and_frames_the_one_shown():
    run = trace(12)
    drawn = draw_timeline(run, 5)
    assert drawn["data"][0]["x"] == list(range(1, 13))
    assert drawn["data"][1]["y"] == [len(step.accepted) for step in run.steps]
    frame, veil = drawn["layout"]["shapes"]
    assert (frame["x0"], frame["x1"], veil["x0"]) == (4.5, 5.5, 5.5)
    assert max(drawn["layout"]["xaxis"]["tickvals"]) == 12, (
        "no ticks for iterations that do not exist"
    )
    kinds = {trace["name"] for trace in drawn["data"]}
    assert {"drafted", "accepted"} < kinds <= {"drafted", "accepted", "bonus", "corrected"}
    long = trace(400)
    assert len(draw_timeline(long, 390)["data"][0]["x"]) == 120
    figure(draw_timeline(replace(run, steps=()), 0))


def test_metrics_are_of_the_iterations_until_the_cursor():
    run = trace(12)
    drawn = draw_metrics(run, 4)
    assert drawn["data"][0]["x"] == [1, 2, 3, 4]
    tokens = [sum(pair) for pair in zip(drawn["data"][0]["y"], drawn["data"][1]["y"], strict=True)]
    assert tokens == [len(step.committed) for step in run.steps[:4]]
    seconds = sum(sum(bar["y"]) for bar in drawn["data"][2:]) / 1000
    assert seconds == pytest.approx(
        sum(sum(step.seconds.values()) for step in run.steps[:4]), abs=1e-4
    )
    assert f"{sum(tokens) / 4:.2f} tokens per iteration" in metrics_sentence(run, 4)


# Nodes


def test_target_and_draft_share_their_rows_and_children_are_marked():
    step = five_nodes()
    drawn = draw_node(step, 1)
    target, draft = drawn["data"]
    assert target["y"] == draft["y"]
    ticks = drawn["layout"]["yaxis"]["ticktext"]
    chosen = next(place for place, tick in enumerate(ticks) if "★ chosen" in tick)
    assert "node 3 ●" in ticks[chosen]
    assert draft["x"][chosen] == pytest.approx(0.7)
    assert target["customdata"][chosen] == 3
    for step in (odd_tokens(), one_node()):
        figure(draw_node(step, len(step.tree) - 1))


def stopped(draft: bool = True):
    """' the' and ' old' were rejected; the target then drew ' said' from the residual."""
    tree = DraftTree.of([5, 0, 1], [-1, 0, 0], [0.0, math.log(0.8), math.log(0.1)], "draft")
    rows = [(3, 0.75, 0.5, 0.05), (0, 0.0, 0.31, 0.8), (1, 0.05, 0.1, 0.1), (2, 0.2, 0.09, 0.05)]
    tokens = tuple(TokenProb(token, left, p, q if draft else None) for token, left, p, q in rows)
    trials = (Trial(1, 0.31, 0.8), Trial(2, 0.1, 0.5)) if draft else ()
    step = replace(five_nodes(), tree=tree, nodes=five_nodes().nodes[:3], accepted=(), bonus=3)
    return replace(
        step,
        rule="draws without replacement",
        residual=Residual(0, tokens),
        trials=trials,
    )


def test_where_sampling_stopped_the_draws_and_the_residual_are_shown():
    step = stopped()
    p, q, residual = draw_residual(step)["data"]
    assert (p["x"][0], q["x"][0], residual["x"][0]) == (0.5, 0.05, 0.75)
    for fact in (
        "p / q = 31 % / 80 %, accepted with 39 %",
        "p / q = 10 % / 50 %, accepted with 20 %",
        "' said'",
    ):
        assert fact in residual_sentence(step)
    assert len(draw_residual(stopped(draft=False))["data"]) == 2
    assert "The target sampled ' said' after node 0 (p = 50 %)" in residual_sentence(
        stopped(draft=False)
    )
    figure(draw_residual(step))


# What decided, and two trees


def test_of_two_proposed_trees_what_the_text_tells_of_the_other_is_known():
    probs = [math.log(each) for each in (1, 0.5, 0.1, 0.6, 0.5, 0.5)]
    other = DraftTree.of([0, 1, 5, 2, 3, 6], [-1, 0, 0, 1, 3, 4], probs, "prose")
    step = five_nodes()
    proposals = (
        Proposal("prose", other, 0.25, 0.3, False),
        Proposal("code", step.tree, 0.5, 0.5, True),
    )
    step = replace(step, proposals=proposals)
    drawn, sentence = evaluated("[draftsFigure(data), draftsSentence(data)]", step_data(step))
    titles = [note["text"] for note in drawn["layout"]["annotations"]]
    expected = ("prose: not verified", "0.2500"), ("code: verified", "0.5000")
    for title, facts in zip(titles, expected, strict=True):
        assert all(fact in title for fact in facts)
    marks = [trace["marker"]["color"] for trace in drawn["data"] if trace.get("name") == "nodes"]
    assert marks[0].count("#0072B2") == 3, "' old', ' woman' and ' said' are on the text"
    assert marks[1].count("#0072B2") == 2
    assert sentence.endswith("code was verified.")


def test_an_iteration_decoded_again_stands_beside_itself_with_both_trees_whole():
    drawn = evaluated(
        "pairFigure(...data, ['As it was', 'With depth 2'])",
        [step_data(sixty_nodes()), step_data(five_nodes())],
    )
    marks = [trace for trace in drawn["data"] if trace.get("name") == "nodes"]
    assert [len(trace["x"]) for trace in marks] == [61, 6]
    assert "With depth 2: 4 drafted, 2 accepted" in drawn["layout"]["annotations"][1]["text"]
    columns = [{*trace["x"]} for trace in marks]
    assert columns[1] <= columns[0], "the same columns"


# What would be


@pytest.fixture(scope="module")
def iterations():
    target = random_probs(24, 3, low=0.5, high=2.5)
    models = table_pair(target, mixed_probs(target, random_probs(24, 4), 0.15), 24)
    run = speclab.Session(
        models, speclab.FixedTree(depth=3, branching=2), PROMPT, max_new_tokens=24
    )
    run.run()
    return run.steps


def test_what_would_be_gone_or_new_is_told_apart(iterations):
    step = iterations[0]

    def seen(**changes):
        return what_if(step, in_force(step).changed(**changes))

    def symbols(found):
        (marks,) = [one for one in draw_whatif(step, found)["data"] if one.get("name") == "nodes"]
        return Counter(marks["marker"]["symbol"])

    fewer = seen(depth=2)
    struck = [text for text in draw_whatif(step, fewer)["data"][-1]["text"] if "<s>" in text]
    assert len(struck) == 8, "the lowest level"
    new = LOOKS["new"].symbol
    assert not symbols(seen())[new]
    assert "the same tree, 14 drafted" in whatif_sentence(step, seen())
    more = seen(branching=3)
    assert symbols(more)[new] > 0
    assert "→ ?" in draw_whatif(step, more)["data"][-1]["text"]
    assert "did not record" in whatif_sentence(step, more)
    short = next(step for step in iterations if len(step.accepted) == 3)
    found = what_if(short, in_force(short).changed(depth=1))
    assert "2 drafted instead of 14, 1 accepted instead of 3" in whatif_sentence(short, found)
    views.whatif(step, more)


# Comparing


def test_every_run_has_a_bar_and_a_row_and_differences_are_named():
    one = trace(6)
    other = replace(trace(6), first_token=5)
    runs = (
        ComparedRun("plain <b>", one),
        ComparedRun("tree", other),
        ComparedRun("head", None, "no head here"),
    )
    compared = Comparison(runs)
    drawn = draw_compare(compared)
    assert drawn["data"][0]["text"][0] == "did not run"
    assert "<b>" not in drawn["layout"]["yaxis"]["ticktext"][2]
    views.compare(compared)


def test_a_curve_marks_the_current_value_and_the_best():
    strategy = speclab.FixedTree(depth=3)
    points = tuple(
        Point(
            depth,
            strategy.changed(depth=depth),
            10,
            1.0 + depth / 4,
            50.0,
            refused="too deep" if depth == 5 else "",
        )
        for depth in (1, 2, 3, 4, 5)
    )
    curve = Curve(strategy, "depth", (1, 2, 3, 4, 5), Point("", iterations=40), points)
    (line,) = draw_curve(curve)["data"]
    assert line["y"] == [1.25, 1.5, 1.75, 2.0], "what was refused has no point"
    assert line["marker"]["symbol"] == ["circle", "circle", "square", "star"]
    assert "at depth 4: 2.00; now, at depth 3: 1.75" in curve_sentence(curve)
    views.curve(curve, theme="dark")


# The public functions, and the data of the page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_is_a_figure_in_the_colours_of_its_theme(theme):
    step = five_nodes()
    run = trace(4)
    for made in (
        views.tree(step, 1, theme=theme), views.mask(step, 1, theme=theme), views.node(step, theme=theme),
        views.cache(step, 1, prompt_length=5, theme=theme), views.timeline(run, 2, theme=theme),
        views.metrics(run, theme=theme), views.residual(stopped(), theme=theme),
    ):  # fmt: skip
        assert "var(--" not in made.to_json()
        assert made.layout.meta["sentence"].strip().endswith(".")
        assert made.layout.paper_bgcolor == {"light": "#FFFFFF", "dark": "#111111"}[theme]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: views.tree(five_nodes(), 9),
        lambda: views.tree(five_nodes(), phase="learn"),
        lambda: views.tree(five_nodes(), theme="blue"),
        lambda: views.residual(five_nodes()),
        lambda: views.metrics(replace(trace(1), steps=())),
        lambda: views.cache(replace(five_nodes(), caches=())),
        *(
            lambda draw=draw, wrong=wrong: draw(wrong)
            for draw in (views.tree, views.mask, views.cache, views.node, views.graph)
            for wrong in (None, trace(1))
        ),
        *(lambda draw=draw: draw(five_nodes()) for draw in (views.text, views.timeline)),
        *(lambda runs=runs: views.marginals(runs) for runs in ({}, trace(1))),
    ],
)
def test_what_a_record_lacks_is_one_sentence(draw):
    with refused(SpeclabError):
        draw()


def test_a_session_stands_for_its_trace():
    session = speclab.Session(table_pair(random_probs(8, 1), None, 8), speclab.ByHand(), PROMPT[:1])
    session.step()
    assert views.text(session) == views.text(session.trace)
    assert views.timeline(session) == views.timeline(session.trace)


def test_a_run_for_the_page_is_its_header_and_its_steps_as_a_trace_writes_them():
    run = trace(6)
    assert json.loads(json.dumps(run_header(run)))["title"]
    step = json.loads(json.dumps(step_data(run.steps[2])))
    assert adapter(Step).validate_python(step) == run.steps[2]
    assert len(json.dumps(step_data(sixty_nodes()))) < 80_000
    hostile = replace(run, texts={**run.texts, 0: "</script><i>"})
    assert "<i>" not in page(hostile, "name")
