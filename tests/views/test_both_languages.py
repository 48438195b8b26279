"""What the page draws, in Node, equals what notebooks draw: every position of recorded runs of every strategy."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from support import pairs
from support.every_strategy import ALONE, DRAFTED, PROMPT, pair_of
from support.node import assert_equal, evaluated
from support.outside_decoder import decode
from support.view_samples import (
    drafted_root,
    ended_inside,
    five_nodes,
    heap,
    large,
    odd_tokens,
    one_node,
    sixty_nodes,
)

import speclab
from speclab import clinic
from speclab.trace.records import ExtraRow, Finding
from speclab.views.cache_picture import cache_lines, draw_cache
from speclab.views.mask_picture import draw_mask
from speclab.views.mask_picture import verdict as verdict_of_mask
from speclab.views.node_picture import draw_node, draw_residual
from speclab.views.phases import positions
from speclab.views.preview import draw_whatif
from speclab.views.run_data import run_header, step_data
from speclab.views.run_picture import draw_metrics, draw_timeline, metric_numbers
from speclab.views.sentences import node_sentence, position_sentence, verdict_words
from speclab.views.text_html import text_pieces
from speclab.views.tokens import clip, display, percent, width
from speclab.views.tree_picture import draw_tree, node_rows, step_kinds

AT_POSITION = """positions(step).map(at => ({
  at, kinds: kindsAt(step, at), sentence: positionSentence(step, at),
  tree: only(treeFigure(step, at, { width: 700, selected: 0 })), mask: maskFigure(step, at, { selected: 0 }),
  nodes: step.nodes.map((_, node) => nodeSentence(step, node, at)),
}))"""
OF_STEP = f"""step => ({{
  positions: {AT_POSITION},
  caches: cacheFigures(step, 9, 0), lines: cacheLines(step), mask: verdictOfMask(step),
  bars: step.nodes.map((_, node) => nodeFigure(step, node)), residual: residualFigure(step),
  rows: nodeRows(step).rows, verdicts: step.nodes.map((_, node) => verdictWords(step, node)),
}})"""
ONLY = "(only => data.map({}))(({{ data, layout }}) => ({{ data, layout }}))"


def of_step(step):
    at_position = [
        {
            "at": {"phase": position.phase, "level": position.level},
            "kinds": {str(node): kind for node, kind in step_kinds(step, position).items()},
            "sentence": position_sentence(step, position),
            "tree": draw_tree(step, 0, position=position, width=700),
            "mask": draw_mask(step, 0, position),
            "nodes": [node_sentence(step, node, position) for node in range(len(step.tree))],
        }
        for position in positions(step)
    ]
    return {
        "positions": at_position,
        "caches": [draw_cache(step, 0, prompt_length=9)] if step.caches else [],
        "lines": cache_lines(step),
        "mask": verdict_of_mask(step),
        "bars": [draw_node(step, node) for node in range(len(step.tree))],
        "residual": draw_residual(step) or None,
        "rows": node_rows(step),
        "verdicts": [verdict_words(step, node) for node in range(len(step.tree))],
    }


def compared(steps) -> int:
    """Compares the pictures of steps in both languages; returns the number of positions."""
    drawn = evaluated(ONLY.format(OF_STEP), [step_data(step) for step in steps])
    for step, page in zip(steps, drawn, strict=True):
        notebook = json.loads(json.dumps(of_step(step)))  # equal lists are compared at once
        assert_equal(page, notebook, where=f"iteration {step.index}")
    return sum(len(positions(step)) for step in steps)


RUNS = {
    **ALONE,
    **DRAFTED,
    "plain": speclab.Autoregressive(),
    "fixed tree": speclab.FixedTree(depth=3, branching=2),
    "drawn": speclab.FixedTree(depth=2, branching=2, candidates="independent"),
    "drawn without replacement": speclab.FixedTree(
        depth=2, branching=3, candidates="without_replacement"
    ),
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_position_of_runs_of_every_strategy_is_the_same_picture(temperature):
    steps = []
    for strategy in RUNS.values():
        settings = {"max_new_tokens": 9, "temperature": temperature}
        session = speclab.Session(pair_of(), strategy, PROMPT, **settings)
        session.run()
        steps += session.steps
    assert compared(steps) > 500


def checked():
    """Findings, another mask, a plain run beside the record, rows that are no candidates."""
    step = five_nodes()
    mask = step.mask.copy()
    mask[2, 1] = True
    mask[3, 0] = False
    findings = (
        Finding(2, 2, "mask", "node 2 sees its sibling."),
        Finding(2, 2, "tie", "Two tokens are closer than rounding."),
        Finding(2, None, "length", "The cache has one entry too many."),
    )
    return replace(
        step,
        mask=mask,
        findings=findings,
        plain=tuple([((1, 0.5), (8, 0.25))] * len(step.nodes)),
        missing=("log_prob", "seconds"),
        note="recorded",
        extra=(ExtraRow(3, 1, (0, 5), 9, 1), ExtraRow(1, 2, (0, 5, 6), 12, 3)),
        prefix_seen=(12, 12, 9, 12, 12),
    )


SAMPLES = [one_node, sixty_nodes, large, odd_tokens, drafted_root, ended_inside, heap, checked]


def test_odd_samples_are_the_same_pictures():
    assert compared([make() for make in SAMPLES] + [drafted_root(accept=False)]) > 60


def test_runs_and_whatifs_are_the_same_pictures():
    session = speclab.Session(pair_of(), speclab.DynaTree(node_budget=16), PROMPT)
    session.run()
    trace = session.trace
    data = {"header": run_header(trace), "steps": [step_data(step) for step in trace.steps]}
    page = evaluated(
        "({timeline: timelineFigure(data.steps, firstShown(data.steps.length, 3), null, 3),"
        " metrics: metricsFigure(data.steps), numbers: metricNumbers(data.steps).map(one => one.value),"
        " text: textPieces(data.header, data.steps)})",
        data,
    )
    notebook = {
        "timeline": draw_timeline(trace, 3),
        "metrics": draw_metrics(trace),
        "numbers": metric_numbers(trace),
        "text": [[asdict(piece) for piece in pieces] for pieces in text_pieces(trace)],
    }
    assert_equal(page, notebook)
    bolder = speclab.DynaTree(node_budget=24, low_confidence=0.8, prune_probability=0.0)
    found = [
        (step, speclab.what_if(step, strategy))
        for step in trace.steps
        for strategy in (speclab.DynaTree(node_budget=5), bolder)
    ]
    data = [
        {
            "step": step_data(step),
            "found": {
                "tree": step_data(replace(step, tree=what.tree))["tree"],
                "recorded": what.recorded,
                "accepted": what.accepted,
                "bonus": what.bonus,
                "unknown": what.unknown,
                "settled": what.settled,
                "texts": {},
            },
        }
        for step, what in found
    ]
    drawn = evaluated(
        "data.map(({step, found}) => treeFigure(step, undefined, {overlay: overlayOf(step, found)}))"
        ".map(({data, layout}) => ({data, layout}))",
        data,
    )
    assert_equal(drawn, [draw_whatif(step, what) for step, what in found])


def test_the_tab_check_has_the_report_s_quantiles_and_a_diff_s_passes(tmp_path):
    pair = pairs.pair_of("llama")
    runs = []
    for name, fault, seed in (("a", "sibling", 0), ("b", "", 5)):
        decode(pair.target.model, pairs.PROMPT, tmp_path / name, fault, seed=seed)
        runs.append(speclab.load_steps(tmp_path / name, pair))
    marked = clinic.marked(runs[0], pair)
    diff = clinic.diff(*runs, pair)
    steps = [step_data(step) for step in marked.steps]
    data = json.loads(json.dumps([steps, diff.as_dict()]))
    page = evaluated("[gapTable(data[0]), diffFigure(data[1]), gapTable([])]", data)
    table = clinic.report(runs[0], pair).table("depth")
    expected = [
        [depth, *values] for depth, values in zip(table.index, table.to_numpy(), strict=True)
    ]
    assert len(page[0]["head"]) == len(page[0]["rows"][0])
    assert [row[:2] for row in page[0]["rows"]] == [row[:2] for row in expected]
    for mine, its in zip(page[0]["rows"], expected, strict=True):
        assert mine[2:] == pytest.approx(its[2:], rel=0.05, abs=1e-9)
    assert page[2] is None
    bars = page[1]["data"]
    for run, (accepted, own) in zip(runs, (bars[:2], bars[2:]), strict=True):
        assert [*map(sum, zip(accepted["x"], own["x"], strict=True))] == [
            len(step.committed) for step in run.steps
        ]
        assert accepted["base"][0] == len(run.prompt_ids) + 1
        ends = [*map(sum, zip(own["base"], own["x"], strict=True))]
        assert ends[:-1] == accepted["base"][1:]
    parted = {diff.text, diff.answers, diff.proposals} - {None}
    assert {shape["x0"] for shape in page[1]["layout"]["shapes"]} == parted


def test_texts_and_numbers_are_the_same_texts():
    texts = [
        "",
        " the",
        "        ",
        "\n\n",
        "\u200b",
        "\u0301a",
        "日本",
        "שלום",
        "🙂",
        "$<b>&",
        "\t",
    ]
    shares = [0.0, 0.0002, 0.0374, 0.0995, 0.125, 0.5, 0.934, 0.995, 1.0]
    page = evaluated(
        "[data[0].map(text => [display(text), columnsOf(text), clip(text, 3)]), data[1].map(percent)]",
        [texts, shares],
    )
    notebook = [
        [[display(text), width(text), clip(text, 3)] for text in texts],
        [percent(share) for share in shares],
    ]
    assert page == notebook
    byte_texts = [
        "Zo<0xC3>",
        "<0xAB>",
        "<0xF0><0x9F>",
        "<0x99>",
        "<0x82>!",
        "<0xE2>",
        " a",
        "<0xFF>",
    ]
    joined = ["Zo", "ë", "", "", "🙂!", "<0xE2>", " a", "<0xFF>"]
    assert evaluated("joinedBytes(data)", byte_texts) == joined
