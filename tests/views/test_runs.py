"""Pictures of runs: timeline, metrics, comparisons, curves, previews; themes, refusals, and the data of the page."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import pytest
from support.engine import evaluated
from support.refusals import refused
from support.sessions import PROMPT
from support.table_runner import mixed_probs, random_probs, table_pair
from support.view_samples import five_nodes, sixty_nodes, trace
from test_pictures import nodes, stopped

import speclab
from speclab import views
from speclab.analysis.compare import ComparedRun, Comparison
from speclab.analysis.curves import Curve, Point
from speclab.analysis.whatif import in_force, what_if
from speclab.errors import SpeclabError
from speclab.trace.codecs import adapter
from speclab.trace.records import Finding, Proposal, Step
from speclab.tree import DraftTree
from speclab.views.drawing import call
from speclab.views.exported_page import page
from speclab.views.run_data import looks, run_header, step_data


def test_the_timeline_has_a_bar_per_iteration_and_frames_the_one_shown():
    run = trace(12)
    figure = views.timeline(run, 5)
    assert figure.data[0].x == (*range(1, 13),)
    assert [*figure.data[1].y] == [len(step.accepted) for step in run.steps]
    frame, veil = figure.layout.shapes
    assert (frame.x0, frame.x1, veil.x0) == (4.5, 5.5, 5.5)
    assert max(figure.layout.xaxis.tickvals) == 12, "no ticks for iterations that do not exist"
    kinds = {trace.name for trace in figure.data}
    assert {"drafted", "accepted"} < kinds <= {"drafted", "accepted", "bonus", "corrected"}
    assert len(views.timeline(trace(400), 390).data[0].x) == 120
    assert views.timeline(replace(run, steps=()), 0).layout.meta["sentence"]


def test_metrics_are_of_the_iterations_until_the_cursor():
    run = trace(12)
    figure = views.metrics(run, 4)
    assert figure.data[0].x == (1, 2, 3, 4)
    tokens = [*map(sum, zip(figure.data[0].y, figure.data[1].y, strict=True))]
    assert tokens == [len(step.committed) for step in run.steps[:4]]
    seconds = sum(sum(bar.y) for bar in figure.data[2:]) / 1000
    expected = sum(sum(step.seconds.values()) for step in run.steps[:4])
    assert seconds == pytest.approx(expected, abs=1e-4)
    rate = f"{sum(tokens) / 4:.2f} tokens per iteration"
    assert rate in figure.layout.meta["sentence"]


def test_of_two_proposed_trees_what_the_text_tells_of_the_other_is_known():
    probs = [math.log(each) for each in (1, 0.5, 0.1, 0.6, 0.5, 0.5)]
    other = DraftTree.of([0, 1, 5, 2, 3, 6], [-1, 0, 0, 1, 3, 4], probs, "prose")
    step = five_nodes()
    proposals = (
        Proposal("prose", other, 0.25, 0.3, False),
        Proposal("code", step.tree, 0.5, 0.5, True),
    )
    drawn = call("draftsFigure", replace(step, proposals=proposals))
    titles = [note["text"] for note in drawn["layout"]["annotations"]]
    for title, facts in zip(titles, [("prose", "0.2500"), ("code", "0.5000")], strict=True):
        assert all(fact in title for fact in facts)
    marks = [trace["marker"]["color"] for trace in drawn["data"] if trace.get("name") == "nodes"]
    assert marks[0].count("#0072B2") == 3, "' old', ' woman' and ' said' are on the text"
    assert marks[1].count("#0072B2") == 2
    assert drawn["layout"]["meta"]["sentence"].endswith("code was verified.")


def test_an_iteration_decoded_again_stands_beside_itself_with_both_trees_whole():
    drawn = call("pairFigure", sixty_nodes(), five_nodes(), ["As it was", "With depth 2"])
    marks = [trace for trace in drawn["data"] if trace.get("name") == "nodes"]
    assert [len(trace["x"]) for trace in marks] == [61, 6]
    assert "With depth 2: 4 drafted, 2 accepted" in drawn["layout"]["annotations"][1]["text"]
    columns = [{*trace["x"]} for trace in marks]
    assert columns[1] <= columns[0], "the same columns"


def test_what_would_be_gone_or_new_is_told_apart():
    target = random_probs(24, 3, low=0.5, high=2.5)
    models = table_pair(target, mixed_probs(target, random_probs(24, 4), 0.15), 24)
    tree = speclab.FixedTree(depth=3, branching=2)
    run = speclab.Session(models, tree, PROMPT, max_new_tokens=24)
    run.run()
    step = run.steps[0]

    def seen(step=step, **changes):
        figure = views.whatif(step, what_if(step, in_force(step).changed(**changes)))
        symbols = Counter(next(one.marker.symbol for one in figure.data if one.name == "nodes"))
        return symbols, figure.data[-1].text, figure.layout.meta["sentence"]

    _, labels, _ = seen(depth=2)
    assert sum("<s>" in text for text in labels) == 8, "the lowest level"
    new = looks()["nodes"]["new"]["symbol"]
    symbols, _, sentence = seen()
    assert not symbols[new]
    assert "the same tree, 14 drafted" in sentence
    symbols, labels, sentence = seen(branching=3)
    assert symbols[new] > 0
    assert "→ ?" in labels
    assert "did not record" in sentence
    short = next(step for step in run.steps if len(step.accepted) == 3)
    assert "2 drafted instead of 14, 1 accepted instead of 3" in seen(short, depth=1)[2]
    drawn = nodes(views.whatif(short, what_if(short, in_force(short).changed(depth=2))))
    assert drawn["own"][0] == drawn[14][0], "after the second level"


def test_every_run_has_a_bar_and_a_curve_marks_the_current_value():
    runs = (ComparedRun("plain <b>", trace(6)), ComparedRun("head", None, "no head here"))
    figure = views.compare(Comparison(runs))
    assert figure.data[0].text[1] == "did not run"
    assert "<b>" not in figure.layout.yaxis.ticktext[0]
    strategy = speclab.FixedTree(depth=3)
    points = [
        Point(depth, strategy.changed(depth=depth), 10, 1 + depth / 4, refused="deep" * (depth > 4))
        for depth in (1, 2, 3, 4, 5)
    ]
    plain = Point("", iterations=40)
    figure = views.curve(Curve(strategy, "depth", (1, 2, 3, 4, 5), plain, tuple(points)))
    assert figure.data[0].y == (1.25, 1.5, 1.75, 2.0), "what was refused has no point"
    assert (figure.data[1].x, figure.data[1].y) == ((3,), (1.75,))


def test_the_tab_check_has_quantiles_of_gaps_and_two_timelines():
    step = replace(five_nodes(), gaps=((0.2, 0.1), (0.4, None), None, (0.1, 0.1), (0.3, 0.1)))
    rows = call("gapTable", [step])["rows"]
    assert [row[:2] for row in rows] == [[0, 1], [1, 1], [2, 2]]
    assert (rows[2][2], rows[2][4], rows[1][5]) == (0.2, 0.3, "–")
    assert call("gapTable", [five_nodes()]) is None
    passes = [[[9, 2, 1], [12, 0, 1]], [[9, 1, 1], [11, 1, 1]]]
    diff = {"passes": passes, "names": ["a", "b"], "text": 11, "answers": None, "proposals": 12}
    drawn = call("diffFigure", {**diff, "sentence": "a and b part."})
    assert [trace["base"] for trace in drawn["data"]] == [[9, 12], [11, 12], [9, 11], [10, 12]]
    assert {shape["x0"] for shape in drawn["layout"]["shapes"]} == {11, 12}


def test_findings_are_marked_where_they_are():
    finding = Finding(2, 2, "mask", "node 2 sees its sibling.")
    step = replace(five_nodes(), findings=(finding,), plain=(((1, 0.5), (8, 0.25)),) * 5)
    shown = [text for one in views.tree(step).data if one.mode == "text" for text in one.text]
    assert "⚠ mask" in shown
    assert finding.sentence in call("nodeSentence", step, 2)
    assert len(views.node(step, 2).data) == 3, "the plain run, too"
    assert any("⚠" in note.text for note in views.mask(step).layout.annotations)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_is_a_figure_in_the_colours_of_its_theme(theme):
    step = five_nodes()
    run = trace(4)
    for figure in (
        views.tree(step, 1, theme=theme), views.mask(step, 1, theme=theme), views.node(step, theme=theme),
        views.cache(step, 1, prompt_length=5, theme=theme), views.timeline(run, 2, theme=theme),
        views.metrics(run, theme=theme), views.residual(stopped(), theme=theme),
    ):  # fmt: skip
        assert "var(--" not in figure.to_json()
        assert figure.layout.meta["sentence"].strip().endswith(".")
        assert figure.layout.paper_bgcolor == {"light": "#FFFFFF", "dark": "#111111"}[theme]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: views.tree(five_nodes(), 9),
        lambda: views.tree(five_nodes(), phase="learn"),
        lambda: views.mask(five_nodes(), phase="verify", level=1),
        lambda: views.tree(five_nodes(), phase="draft", level=-1),
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
    state = {"header": run_header(run), "steps": [], "cursor": 0, "catalog": None, "status": {}}
    assert "DynaTree" in evaluated("titleOf(data)", state)
    step = json.loads(json.dumps(step_data(run.steps[2])))
    assert adapter(Step).validate_python(step) == run.steps[2]
    assert len(json.dumps(step_data(sixty_nodes()))) < 80_000
    hostile = replace(run, texts={**run.texts, 0: "</script><i>"})
    assert "<i>" not in page(hostile, "name")
    assert page(run, "name").count("<li>") == 6, "without scripts, a sentence on each iteration"
