"""The papers' figures agree with each other where a paper gives both: a slip in copying a number would show."""

from __future__ import annotations

from statistics import mean

import pytest
from refusals import refused

from speclab.bench import papers
from speclab.bench.papers import paper_tables
from speclab.bench.protocol import protocols
from speclab.errors import MeasurementError

TABLES = paper_tables()
TREE = "DynaTree"


def _values(published, metric, method=None):
    return {
        (figure.setting, figure.method): figure.value
        for figure in published.figures
        if figure.metric == metric and method in {None, figure.method}
    }


def test_each_says_where_it_is_from_and_what_differs():
    for name, table in TABLES.items():
        assert table.place and table.models and table.differs, name  # noqa: PT018
        assert set(table.protocols) <= protocols().keys(), name
        assert table.figures or table.remarks, f"{name}: a figure without numbers says what is known of it"
        places = [figure[:3] for figure in table.figures]
        assert len(places) == len(set(places)), name


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"AR" = [1.0, 1.0, 1.0, 1.0, 1.0]', '"AR" = [1.0, 1.0]', "too many or too few cells"),
        ('paper = "GOOSE"', 'paper = "GUS"', "models: Field required"),
        ('place = "Table 2"', 'place = "Table 2"\nplaice = ""', "plaice"),
        ("\n[papers", "\n[[papers", "is no TOML file"),
    ],
)
def test_a_wrong_entry_is_one_sentence(monkeypatch, old, new, said):
    shipped = papers.shipped_toml("papers.toml").decode()
    assert old in shipped
    monkeypatch.setattr(papers, "shipped_toml", lambda name: shipped.replace(old, new, 1).encode())
    with refused(MeasurementError, "papers.toml", said):
        paper_tables.__wrapped__()


def test_speedups_are_ratios_of_throughputs():
    speed = _values(TABLES["dynatree-main"], "throughput")
    for (setting, method), value in _values(TABLES["dynatree-main"], "speedup").items():
        assert value == pytest.approx(speed[setting, method] / speed[setting, "AR"], abs=0.006)


def test_iterations_and_tokens_an_iteration_give_the_text():
    brought = _values(TABLES["dynatree-verification"], "tokens_per_iteration")
    for place, rounds in _values(TABLES["dynatree-verification"], "iterations").items():
        assert brought[place] * rounds == pytest.approx(1500, rel=0.002)


def test_texts_and_prompts_of_a_length_take_the_same_iterations_whenever_they_are_run():
    """DynaTree's counts are not timed: two runs of one length agree, so a slip in copying either would show."""
    for one, other in (
        (TABLES["dynatree-length"], TABLES["dynatree-length-again"]),
        (TABLES["dynatree-prompt-length"], TABLES["dynatree-prompt-length-again"]),
    ):
        both = set(one.settings) & set(other.settings)
        assert len(both) >= 5
        for setting in both:
            counts = [each.value(TREE, setting, "tokens_per_iteration").value for each in (one, other)]
            assert counts[0] == counts[1]


def test_sweeps_measure_the_papers_points_and_nothing_else():
    for name in ("dynatree-thresholds", "dynatree-breadth", "dynatree-depth", "dynatree-fixed-sweep"):
        (table,) = (table for table in TABLES.values() if name in table.protocols)
        ours = {(table.beside[one.name], f"{one.x:g}, {one.x2:g}") for one in protocols()[name].methods if one.x2}
        assert ours == {(figure.method, figure.setting) for figure in table.figures}, name
    for name in ("dynatree-length", "dynatree-prompt-length"):
        ours = {f"{one.x:g}" for one in protocols()[name].methods}
        assert ours == {at for table in TABLES.values() if name in table.protocols for at in table.settings}, name


def test_every_protocol_of_a_paper_is_read_beside_it():
    """Names of methods are written in two files: here they are held to each other."""
    shown = {method.name for protocol in protocols().values() for method in protocol.methods}
    for name, protocol in protocols().items():
        beside = [table for table in TABLES.values() if name in table.protocols]
        assert bool(beside) == (protocol.source != "speclab") or name == "main"
        for table in beside:
            assert table.beside.keys() <= shown
            known = {table.beside.get(method.name) for method in protocol.methods}
            assert known & set(table.methods) or not table.beside or not table.figures


def test_goose_main_table_gives_its_own_averages():
    speedups = _values(TABLES["goose-main"], "speedup")
    for (model, method), average in _values(TABLES["goose-averages"], "speedup").items():
        over = [
            value for (setting, name), value in speedups.items() if (setting.split(", ")[0], name) == (model, method)
        ]
        assert len(over) == 5
        assert mean(over) == pytest.approx(average, abs=0.011), (model, method)


def test_the_published_synergy_follows_from_the_main_table():
    """A ratio of averages over the benchmarks of each model; GSM8K's own figure is its largest single ratio."""
    tokens = _values(TABLES["goose-main"], "tokens_per_iteration")
    both: dict[str, list[tuple[float, float]]] = {}
    for setting in TABLES["goose-main"].settings:
        best = max(tokens[setting, name] for name in ("PLD", "TR"))
        both.setdefault(setting.split(", ")[0], []).append((tokens[setting, "Goose"], best))
    models = [sum(own for own, _ in pairs) / sum(best for _, best in pairs) for pairs in both.values()]
    published = [figure.value for figure in TABLES["goose-decomposition"].figures if figure.metric == "synergy"]
    assert [min(models), mean(models), max(models)] == pytest.approx(published[:3], abs=0.011)
    assert min(own / best for pairs in both.values() for own, best in pairs) > 1
    assert max(own / best for pairs in both.values() for own, best in pairs) == pytest.approx(published[3], abs=0.011)


def test_the_ablation_gives_the_published_changes():
    table = TABLES["goose-ablation"]
    whole, *parts = (_values(table, "tokens_per_iteration", method) for method in table.methods)
    changes = [
        100 * mean(value / whole[setting, "Goose"] - 1 for (setting, _), value in part.items()) for part in parts
    ]
    assert changes == pytest.approx([-2.9, -3.7, -5.1, -3.4, 0.2], abs=0.06)
