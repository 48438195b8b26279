"""What a drafter knew and decided, and the budget that costs chose: words, tables, bars with numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawn import figures, html, said
from spine_samples import TABLE, bypass, found, left_spine, plain, run
from view_samples import drafted_root, five_nodes, one_node, parse, trace

from speclab.trace.records import Adaptation, Event, Row
from speclab.views import drafter_state, markup


def cells(page: str) -> list[list[str]]:
    """The texts of the cells, row by row."""
    rows = [["".join(cell.itertext()).strip() for cell in row if cell.tag == "td"] for row in parse(page).iter("tr")]
    return [row for row in rows if row]


def row_of(page: str, name: str) -> list[str]:
    (row,) = [row for row in cells(page) if row[0].replace("\u00a0", " ") == name]
    return row[1:]


def test_the_route_is_said_with_its_reason_and_routes_within_it_after_it():
    assert drafter_state.route_words(plain()) == "plain: no n-gram occurred before."
    assert "2 of 2 lengths agree, 3 tokens to copy" in drafter_state.route_words(left_spine())
    assert drafter_state.route_words(five_nodes()) == ""
    inner = Event("route", None, "chain: 3 tokens", {"route": "chain", "copied": 3, "mean": 9.0})
    outer = Event("route", None, "second: its mean is higher", {"route": "second", "mean": 2.0})
    step = replace(five_nodes(), events=(outer, inner))
    assert drafter_state.route_words(step) == "second: its mean is higher. Within it, chain: 3 tokens."
    assert drafter_state.values_of([step]) == [{"copied": 3, "mean": 2.0}]


@pytest.mark.parametrize(
    ("step", "facts"),
    [
        (left_spine(), ("1 copied token", "left it at '␣to'", "2 tokens from transition")),
        (bypass(), ("stayed on the spine for 2 copied tokens",)),
        (replace(left_spine(), accepted=(2,)), ("left the spine at the root", "1 token from transition")),
        (replace(left_spine(), accepted=()), ("No drafted token was accepted",)),
        (five_nodes(), ("2 tokens from draft",)),
        (one_node(), ("Nothing was drafted",)),
    ],
    ids=["left", "stayed", "at the root", "none", "draft", "nothing"],
)
def test_where_the_accepted_path_came_from_is_said(step, facts):
    assert [fact for fact in facts if fact not in drafter_state.path_words(step)] == []


def test_matches_are_shown_per_length_and_of_any_kind():
    rows = [["5", "not found", "0", ""], ["4", "9", "3", "'␣old'"], ["3", "17", "6", "'␣old'"]]
    assert cells(drafter_state.matches_table(left_spine())) == rows
    assert drafter_state.matches_table(five_nodes()) == ""
    pool = tuple(Event("match", None, "of the pool", {"ngram": 4, "token": token}) for token in (1, 2))
    page = drafter_state.matches_table(replace(five_nodes(), events=pool))
    assert cells(page) == [["4", "'␣old'"], ["4", "'␣woman'"]], "found in no place of the text"


def test_values_of_any_strategy_stand_before_and_after_with_their_change():
    page = drafter_state.values_table(run().steps[:2])
    assert row_of(page, "spine acceptance")[:3] == ["0.5", "0.83", "▲\u00a00.33"]
    assert row_of(page, "table rows")[:3] == ["25", "30", "▲\u00a05"]
    assert row_of(page, "consensus")[:3] == ["2", "", ""]
    assert row_of(page, "table memory")[0] == "3.0 MiB"
    kinds = {None: "–", True: "yes", "cold": "cold", 12345: "12,345", 0.12345: "0.123"}
    assert {value: markup.written("x", value) for value in kinds} == kinds
    told = Event("route", None, "deep: it gave more", {"route": "deep", "mean_wide": 2.5, "mean_deep": 3.25})
    change = Adaptation("deep gave 4", {"mean_deep": 3.25, "armed": True}, {"mean_deep": 3.5, "armed": False})
    step = replace(five_nodes(), events=(told,), adaptation=change)
    page = html(drafter_state.strategy_drawing(replace(trace(1), steps=(step,))))
    assert row_of(page, "mean deep")[:3] == ["3.25", "3.5", "▲\u00a00.25"]
    assert row_of(page, "armed")[:3] == ["yes", "no", "changed"]
    assert "deep: it gave more." in page


def test_thresholds_that_history_moved_stand_with_the_values_in_force():
    run = trace(6)
    (moved,) = {name for step in run.steps for name in step.adaptation.after}
    course = [step.settings[moved] for step in run.steps]
    assert row_of(drafter_state.values_table(run.steps), moved.replace("_", " "))[0] == str(course[-1])
    (drawn,) = figures(drafter_state.course_drawing(run))
    assert [trace["y"] for trace in drawn["data"] if trace.get("line", {}).get("shape") == "hv"] == [course]


def test_the_course_of_a_run_shows_accepted_tokens_by_source_and_every_value_that_moved():
    drawing = drafter_state.course_drawing(run())
    (drawn,) = figures(drawing)
    bars = [trace for trace in drawn["data"] if trace.get("type") == "bar"]
    assert sum(sum(trace["y"]) for trace in bars) == sum(len(step.accepted) for step in run().steps)
    assert all(trace["customdata"] == [1, 2, 3] and trace["meta"] == {"click": "iteration"} for trace in drawn["data"])
    for fact in ("accepted, by source", "consensus", "table\u00a0rows", "spine\u00a0acceptance", "1 copied token"):
        assert fact in said(drawing)


def test_a_strategy_that_decides_nothing_of_its_own_has_no_panel():
    steps = tuple(replace(step, adaptation=Adaptation("nothing to adapt")) for step in trace(3).steps)
    plain_run = replace(trace(3), steps=steps)
    assert drafter_state.strategy_drawing(plain_run) == drafter_state.course_drawing(plain_run) == ""
    assert drafter_state.strategy_drawing(run(), 0) == ""


def test_a_long_run_costs_no_more_than_its_newest_iterations():
    few = replace(trace(1), steps=tuple(replace(step, index=i) for i, step in enumerate(run().steps * 40)))
    many = replace(few, steps=tuple(replace(step, index=i) for i, step in enumerate(run().steps * 80)))
    sizes = [len(str(drafter_state.course_drawing(each))) for each in (few, many)]
    assert sizes[1] < 1.1 * sizes[0]
    assert f"in {drafter_state.NEWEST} iterations" in said(drafter_state.course_drawing(many))


def test_tokens_are_counted_by_source_by_kind_of_path_and_by_route():
    assert drafter_state.source_counts(run().steps) == {"context": (5, 3), "transition": (3, 2)}
    page = drafter_state.sources_table(run().steps[:2], ("target", "context", "transition"))
    assert row_of(page, "context")[:5] == ["3", "1", "3", "1", "33.3%"]
    assert row_of(page, "transition")[:5] == ["3", "2", "3", "2", "66.7%"]
    shown = {row[0]: row[1] for row in cells(drafter_state.paths_table(run().steps))}
    assert shown == {"spine only": "2", "spine continuation": "3", "… after leaving it": "2", "branch only": "0"}
    rates = [["plain", "1.00"], ["spine tree", "4.00"], ["bypass", "3.00"]]
    assert [row[::3] for row in cells(drafter_state.routes_table(run().steps))] == rates
    none = drafter_state.paths_table(trace(3).steps), drafter_state.routes_table(trace(3).steps)
    assert (*none, drafter_state.sources_table(run().steps[:1], ())) == ("", "", "")


def test_successors_with_scores_by_row_and_where_nothing_is_known():
    said = drafter_state.lookup_sentence(found())
    for fact in ("After '␣woman' '␣old'", "as iteration 2 left the table", "'␣said' 50%, '␣to' 25% (bigram)"):
        assert fact in said
    page = drafter_state.lookup_html(found(), {3: "accepted"})
    rows = cells(page)
    assert rows[:2] == [["1", "'␣said'", "3", "0.500", "", "accepted"], ["2", "'␣to'", "4", "0.250", "", ""]]
    assert len(rows) == 5
    assert "not used: the longer key is known" in page
    assert "<script" not in page
    page = drafter_state.lookup_html(found(rows=(Row((2, 1), ()), Row((1,), ((4, 0.4),))), after=0))
    assert [fact for fact in ("Not seen yet", "as the prompt left the table", "Unigram") if fact not in page] == []
    nothing = drafter_state.lookup_sentence(found(rows=(Row((1,), ()),), values=TABLE))
    assert "Nothing was learned of what follows '␣old'" in nothing


def test_the_tokens_that_are_looked_up():
    made = run()
    assert drafter_state.key_at(made, 0) == (*made.prompt_ids, made.first_token)[-2:]
    assert drafter_state.key_at(made, 2, 4) == (1, 4)
    assert drafter_state.key_at(made, 3) == (*made.prompt_ids, *made.token_ids(2))[-2:]
    assert drafter_state.key_at(replace(made, steps=(drafted_root(),)), 1)[0] == made.first_token
    assert drafter_state.children_of(left_spine(), 0) == {1: "accepted", 5: "rejected"}
