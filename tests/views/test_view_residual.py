"""Where sampling stopped: the numbers in the sentence and beside the bars; a lossy rule says that it is one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from draft_samples import drew_once, stopped, typical
from view_samples import five_nodes, trace, words

from speclab.trace.records import Residual, TokenProb
from speclab.views import explain, residual

LEAF = replace(stopped(), residual=Residual(1, (TokenProb(3, 0.5, 0.5, None),)))


@pytest.mark.parametrize(
    ("step", "facts"),
    [
        (stopped(), ("'␣the' would be accepted with probability 0.31 / 0.80 = 0.39: rejected", "0.10 / 0.50 = 0.20",
                     "sampled '␣said' from the residual, where it has 0.75")),
        (drew_once(), ("sampled '␣said' (p = 0.50)", "'␣the' or '␣old'", "0.41", "0.75")),
        (typical(), ("'␣the' has 0.31, not above the threshold 0.80: rejected",)),
        (LEAF, ("no candidate after node 1 '␣the'", "from its own distribution (p = 0.50)")),
    ],
    ids=["trials", "drew once", "typical", "leaf"],
)  # fmt: skip
def test_each_candidate_is_told_with_its_numbers_and_what_was_drawn_instead(step, facts):
    assert [fact for fact in facts if fact not in residual.sentence(step)] == []


def test_the_bars_have_their_numbers_and_the_draft_stands_there_only_where_it_was_drawn_from():
    shown = words(residual.residual_svg(stopped()))
    for figure in ("0.50", "0.75", "0.80", "0.31", "drawn", "candidate", "target p", "draft q", "residual"):
        assert figure in shown
    assert "0.31 / 0.80 = 0.39" in residual.residual_svg(stopped()), "in the label of the picture too"
    other = words(residual.residual_svg(drew_once()))
    assert "draft q" not in other
    assert "target p" in other


def test_the_rule_is_named_and_a_lossy_one_in_red_words():
    page = residual.residual_html(stopped())
    assert "draws without replacement." in page
    assert explain.CHANGES not in page
    assert explain.CHANGES in residual.residual_html(typical())
    run = trace(3)
    assert explain.run_words(run) == explain.step_words(None) == ""
    run = replace(run, steps=(*run.steps[:2], typical()))
    assert "1 of 3 iterations" in explain.run_words(run)
    assert explain.run_words(run, 2) == ""
    assert "color:" in explain.warning("x")


def test_many_tokens_are_cut_to_the_candidates_and_the_most_probable():
    shares = tuple(TokenProb(token, 0.01, 0.02, 0.01) for token in range(20))
    step = replace(stopped(), residual=Residual(0, shares))
    kept = [share.token for share in residual.shown(step, step.residual)]
    assert len(kept) == residual.MOST
    assert {0, 1, 3} <= set(kept)
    assert "10 less likely tokens" in residual.residual_svg(step)
    assert residual.table(step).count("<tr>") == 21


def test_nothing_drawn_nothing_shown_and_before_a_drafted_root_the_place_is_said():
    assert residual.residual_html(five_nodes()) == residual.table(five_nodes()) == ""
    step = replace(stopped("sample and match"), residual=Residual(None, stopped().residual.tokens))
    assert residual.where(step) == "before the root"
    words(residual.residual_svg(step))
