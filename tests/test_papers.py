"""The papers' figures agree with each other where a paper gives both: a slip in copying a number would show."""

from __future__ import annotations

from statistics import mean

import pytest

from speclab.bench import paper_tables

TABLES = paper_tables()


def _values(name, metric):
    return {(row.setting, row.method): row.value for row in TABLES[name].figures if row.metric == metric}


def test_each_says_where_it_is_from_and_what_differs():
    for name, table in TABLES.items():
        assert table.place and table.models and table.differs, name  # noqa: PT018
        assert table.figures or table.remarks, f"{name}: a figure without numbers says what is known of it"
        places = [figure[:3] for figure in table.figures]
        assert len(places) == len(set(places)), name


def test_speedups_are_ratios_of_throughputs():
    speed = _values("dynatree-main", "throughput")
    for (setting, method), value in _values("dynatree-main", "speedup").items():
        assert value == pytest.approx(speed[setting, method] / speed[setting, "AR"], abs=0.006)


def test_iterations_and_tokens_per_iteration_give_the_text():
    tokens = _values("dynatree-verification", "tokens_per_iteration")
    for place, rounds in _values("dynatree-verification", "iterations").items():
        assert tokens[place] * rounds == pytest.approx(1500, rel=0.002)


def test_two_runs_of_one_length_take_the_same_iterations():
    """DynaTree's counts are not timed."""
    for first, second in (
        ("dynatree-length", "dynatree-length-again"),
        ("dynatree-prompt-length", "dynatree-prompt-length-again"),
    ):
        counts, again = (_values(name, "tokens_per_iteration") for name in (first, second))
        shared = [place for place in counts if place in again and place[1] == "DynaTree"]
        assert len(shared) >= 5
        assert [counts[place] for place in shared] == [again[place] for place in shared]


def test_goose_main_table_gives_its_own_averages():
    speedups = _values("goose-main", "speedup")
    for (model, method), average in _values("goose-averages", "speedup").items():
        over = [
            value for (setting, name), value in speedups.items() if (setting.split(", ")[0], name) == (model, method)
        ]
        assert len(over) == 5
        assert mean(over) == pytest.approx(average, abs=0.011), (model, method)
