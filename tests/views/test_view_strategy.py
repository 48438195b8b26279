"""What a drafter knew and decided: words, tables, bars with numbers; whatever the names of the values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawn import steps
from hypothesis import given, settings
from picture import HTML, SVG, parse
from spine_samples import TABLE, bypass, compared, found, left_spine, plain, run
from view_samples import drafted_root, ended_inside, five_nodes, odd_tokens, one_node, trace

from speclab.trace.records import Adaptation, Event, Row
from speclab.views import drafter_state, markup


def cells(page: str) -> list[list[str]]:
    """The texts of the cells, row by row."""
    rows = parse(page, HTML | SVG).iter("tr")
    return [["".join(cell.itertext()).strip() for cell in row if cell.tag == "td"] for row in rows]


def row_of(page: str, name: str) -> list[str]:
    found = [row for row in cells(page) if row and row[0].replace("\u00a0", " ") == name]
    assert len(found) == 1, name
    return found[0]


def test_the_route_is_said_with_its_reason():
    assert drafter_state.route_words(plain()) == "plain: no n-gram occurred before."
    assert drafter_state.route_words(left_spine()) == "spine tree: 2 of 2 lengths agree, 3 tokens to copy."
    assert drafter_state.route_words(five_nodes()).startswith("None recorded")


def test_a_path_that_leaves_the_spine_is_said_in_words():
    assert drafter_state.path_words(left_spine()) == (
        "Spine continuation: the accepted path followed the spine for 1 copied token, left it at '␣to' and went on "
        "with 2 tokens from transition."
    )
    assert drafter_state.path_words(bypass()) == "The accepted path stayed on the spine for 2 copied tokens."
    assert drafter_state.path_words(replace(left_spine(), accepted=(2,))) == (
        "The accepted path left the spine at the root and took 1 token from transition."
    )
    assert drafter_state.path_words(replace(left_spine(), accepted=())) == "No drafted token was accepted."
    assert drafter_state.path_words(five_nodes()) == "The accepted path took 2 tokens from draft."
    assert drafter_state.path_words(one_node()) == "Nothing was drafted."


def test_matches_per_length_and_those_that_were_not_found():
    assert cells(drafter_state.matches_table(left_spine()))[1:] == [
        ["5", "not found", "0", "", ""],
        ["4", "9", "3", "", "'␣old'"],
        ["3", "17", "6", "", "'␣old'"],
    ]
    assert drafter_state.matches_table(five_nodes()) == ""


def test_matches_of_any_kind_are_shown():
    """Several of one length, found in no place of the text, as a pool of n-grams gives them."""
    pool = tuple(Event("match", None, "of the pool", {"ngram": 4, "token": token}) for token in (1, 2))
    page = drafter_state.matches_table(replace(five_nodes(), events=pool))
    assert cells(page)[1:] == [["4", "'␣old'"], ["4", "'␣woman'"]]


def test_routes_within_a_route_are_told_after_it():
    inner = Event("route", None, "chain: 3 tokens", {"route": "chain", "copied": 3, "mean": 9.0})
    outer = Event("route", None, "second: its mean is higher", {"route": "second", "mean": 2.0})
    step = replace(five_nodes(), events=(outer, inner))
    assert drafter_state.route_words(step) == "second: its mean is higher. Within it, chain: 3 tokens."
    assert drafter_state.values_of(step) == {"copied": 3, "mean": 2.0}


def test_values_stand_before_and_after_with_their_change():
    page = drafter_state.values_table(run().steps[:2], "#000")
    assert row_of(page, "spine acceptance")[1:4] == ["0.5", "0.83", "▲\u00a00.33"]
    assert row_of(page, "spine ratio")[1:4] == ["0.3", "0.5", "▲\u00a00.2"]
    assert row_of(page, "table rows")[1:4] == ["25", "30", "▲\u00a05"]
    assert row_of(page, "consensus")[1:4] == ["2", "", ""]
    assert row_of(page, "table memory")[1] == "3.0 MiB"
    assert "over the iterations from 0 to 2" in page
    assert "match" not in page


def test_any_strategys_values_are_shown():
    """Two means and a choice, as a drafter of two trees would record them."""
    told = Event("route", None, "deep: it gave more", {"route": "deep", "mean_wide": 2.5, "mean_deep": 3.25})
    change = Adaptation("deep gave 4", {"mean_deep": 3.25, "armed": True}, {"mean_deep": 3.5, "armed": False})
    made = replace(trace(1), steps=(replace(five_nodes(), events=(told,), adaptation=change),))
    page = drafter_state.strategy_html(made)
    assert row_of(page, "mean wide")[1] == "2.5"
    assert row_of(page, "mean deep")[1:4] == ["3.25", "3.5", "▲\u00a00.25"]
    assert row_of(page, "armed")[1:4] == ["yes", "no", "changed"]
    assert "deep: it gave more." in page


def test_tokens_by_source_in_the_iteration_and_in_the_run():
    assert drafter_state.source_counts(run().steps) == {"context": (5, 3), "transition": (3, 2)}
    page = drafter_state.sources_table(run(), 2)
    assert row_of(page, "context")[1:6] == ["3", "1", "3", "1", "33.3%"]
    assert row_of(page, "transition")[1:6] == ["3", "2", "3", "2", "66.7%"]
    assert sum(drafter_state.source_counts([drafted_root()])["draft"]) == 9
    assert drafter_state.sources_table(run(), 1) == ""


def test_accepted_tokens_by_kind_of_path():
    page = drafter_state.paths_table(run().steps)
    shown = {row[0]: row[1] for row in cells(page)[1:]}
    assert shown == {"spine only": "2", "spine continuation": "3", "… after leaving it": "2", "branch only": "0"}
    assert drafter_state.paths_table(trace(3).steps) == ""


def test_routes_are_counted_where_there_are_several():
    assert [row[::3] for row in cells(drafter_state.routes_table(run().steps))[1:]] == [
        ["plain", "1.00"],
        ["spine tree", "4.00"],
        ["bypass", "3.00"],
    ]
    assert drafter_state.routes_table(trace(3).steps) == ""


def test_synergy_names_the_best_source_alone():
    page = drafter_state.strategy_html(run(), comparison=compared())
    assert "1.25: 3.00 tokens per iteration against Table with 2.40, over the same first 40 tokens." in page
    assert "Synergy" not in drafter_state.strategy_html(run())


@settings(max_examples=20)
@given(steps())
def test_any_step_has_a_panel(step):
    parse(drafter_state.strategy_html(replace(trace(1), steps=(step,))), HTML | SVG)
    assert drafter_state.summary(step).endswith(".")


def test_of_other_strategies_and_odd_tokens():
    for step in (five_nodes(), one_node(), odd_tokens(), ended_inside(), drafted_root(accept=False)):
        page = drafter_state.strategy_html(replace(trace(1), steps=(step,)))
        parse(page, HTML | SVG)
        assert "<script" not in page
    assert "Nothing is drafted yet." in drafter_state.strategy_html(trace(2), 0)


def test_a_long_run_is_shown_in_a_few_bytes():
    long = trace(300)
    assert len(drafter_state.strategy_html(long)) < 20_000
    many = replace(run(), steps=run().steps * 100)
    assert len(drafter_state.strategy_html(many)) < 24_000


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("x", None, "–"), ("x", True, "yes"), ("x", "cold", "cold"), ("x", 12345, "12,345"), ("x", 0.12345, "0.123"),
        ("cache_bytes", 2048, "2.0 KiB"),
    ],
)  # fmt: skip
def test_values_are_written_by_their_kind(name, value, shown):
    assert markup.written(name, value) == shown


def test_successors_with_scores_by_row():
    page = drafter_state.lookup_html(found(), {3: "accepted"})
    assert drafter_state.lookup_sentence(found()) == (
        "After '␣woman' '␣old', as iteration 2 left the table, the most probable are '␣said' 50%, '␣to' 25% (bigram)."
    )
    assert "Bigram: after &#x27;␣woman&#x27; &#x27;␣old&#x27; (drafts are made from this row)" in page
    assert "(not used: the longer key is known)" in page
    rows = [row for row in cells(page) if row]
    assert rows[:2] == [["1", "'␣said'", "3", "0.500", "", "accepted"], ["2", "'␣to'", "4", "0.250", "", ""]]
    assert len(rows) == 5
    assert "table\u00a0rows 1,204 · bigrams 7 · carry cold · table dense · table\u00a0memory 3.0 MiB." in page
    assert "<script" not in page


def test_a_pair_that_was_not_seen_leaves_the_token_alone():
    rows = (Row((2, 1), ()), Row((1,), ((4, 0.4),)))
    page = drafter_state.lookup_html(found(rows=rows, after=0))
    assert "Not seen yet." in page
    assert "as the prompt left the table" in page
    assert "Unigram: after &#x27;␣old&#x27; (drafts are made from this row)" in page
    nothing = drafter_state.lookup_sentence(found(rows=(Row((1,), ()),), values=TABLE))
    assert nothing == "Nothing was learned of what follows '␣old' as iteration 2 left the table."


def test_the_tokens_that_are_looked_up():
    made = run()
    newest = (*made.prompt_ids, made.first_token)[-2:]
    assert drafter_state.key_at(made, 0) == newest
    assert drafter_state.key_at(made, 2, 4) == (1, 4)
    assert drafter_state.key_at(made, 3) == (*made.prompt_ids, *made.token_ids(2))[-2:]
    assert drafter_state.key_at(replace(made, steps=(drafted_root(),)), 1)[0] == made.first_token
    assert drafter_state.children_of(left_spine(), 0) == {1: "accepted", 5: "rejected"}
