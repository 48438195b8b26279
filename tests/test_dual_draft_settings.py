"""Two strategies inside one: as text, JSON and records, and what cannot be put together, refused in one sentence."""

from __future__ import annotations

import pytest
from dual_pairs import MODES
from records import assert_same
from refusals import refused
from table_runner import random_law, table_pair

import speclab


def test_strategies_inside_go_through_text_json_and_changes_unharmed():
    inner = speclab.DynaTree(base_depth=3, prune_probability=0.125)
    strategy = speclab.DualDraft(mode="merge", first=inner, second=speclab.DualDraft(first=speclab.PromptLookup()))
    assert speclab.DualDraft(**strategy.model_dump()) == strategy
    assert speclab.DualDraft.model_validate_json(strategy.model_dump_json()) == strategy
    assert strategy.changed(mode="route").first == inner
    assert speclab.DualDraft(first="PromptLookup").first == speclab.PromptLookup()
    assert strategy.describe()["first"] == "DynaTree(base_depth=3, prune_probability=0.125)"
    assert {type(value) for value in strategy.describe().values()} <= {str, int, float, bool, type(None)}


def test_proposals_are_saved_with_the_trace(tmp_path):
    strategy = speclab.DualDraft(first=speclab.TokenRecycling(), second=speclab.PromptLookup())
    session = speclab.Session(table_pair(random_law(8, 1), None, 8), strategy, [1, 2, 3], max_new_tokens=20)
    session.run()
    again = speclab.load_trace(session.trace.save(tmp_path / "run.json.gz"))
    assert_same(again, session.trace)
    assert all(len(step.proposals) == 2 for step in again.steps)
    assert all(set(one.tree.token.tolist()) <= step.texts.keys() for step in again.steps for one in step.proposals)


@pytest.mark.parametrize("mode", MODES)
def test_fewer_than_two_heads(mode):
    for draft in (None, random_law(8, 2)):
        with refused(speclab.NoDraftError, "two heads", "heads=", "first=DynaTree()"):
            speclab.generate(
                table_pair(random_law(8, 1), draft, 8), speclab.DualDraft(mode=mode), [1], max_new_tokens=4
            )


@pytest.mark.parametrize("wrong", [{"root": "drafted"}, {"commit": "rebuild"}], ids=str)
def test_a_part_with_a_root_or_a_cache_of_its_own_way(wrong):
    strategy = speclab.DualDraft(first=speclab.PromptLookup(), second=speclab.DynaTree(**wrong))
    with refused(speclab.SettingsError, "DynaTree", "verified", "gather"):
        speclab.generate(table_pair(random_law(8, 1), random_law(8, 2), 8), strategy, [1, 2], max_new_tokens=4)


def test_two_parts_on_one_draft_model():
    strategy = speclab.DualDraft(first=speclab.DynaTree(), second=speclab.LinearSpeculation())
    with refused(speclab.SettingsError, "one cache", "heads="):
        speclab.generate(table_pair(random_law(8, 1), random_law(8, 2), 8), strategy, [1, 2], max_new_tokens=4)


@pytest.mark.parametrize("mode", ["route", "merge"])
def test_a_choice_between_draws(mode):
    drawing = speclab.LinearSpeculation(candidates="independent")
    strategy = speclab.DualDraft(mode=mode, first=drawing, second=speclab.PromptLookup())
    pair = table_pair(random_law(8, 1), random_law(8, 2), 8)
    session = speclab.Session(pair, strategy, [1, 2], max_new_tokens=4, temperature=1.0)
    with refused(speclab.SettingsError, "samples its candidates", "'top'"):
        session.step()
    assert len(session.token_ids) == 1
    assert session.fork(mode="first").step().committed


@pytest.mark.parametrize("text", ["", "DynaTree(", "Nonsense()", "DynaTree(base_depth=one)", "3", "DynaTree(3)"])
def test_text_that_is_no_strategy(text):
    with pytest.raises(speclab.SettingsError, match=r"DynaTree") as caught:
        speclab.DualDraft(first=text)
    assert "\n" not in str(caught.value)
