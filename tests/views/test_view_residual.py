"""Where a sampled walk stopped: the numbers in the sentence and beside the bars; the red words of a lossy rule."""

from __future__ import annotations

import re
from dataclasses import replace

from draft_samples import drew_once, stopped, typical
from picture import HTML, SVG, check_svg, parse, texts
from view_samples import TEXTS, five_nodes, trace

from speclab.trace.records import Residual, TokenProb
from speclab.views import explain, residual


def bars(svg: str) -> list[float]:
    """Widths of the bars, in order."""
    return [float(width) for width in re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)"', svg)]


def test_each_candidate_is_told_with_its_numbers_and_what_was_drawn_instead():
    assert residual.sentence(stopped()) == (
        "The draft's '␣the' would be accepted with probability 0.31 / 0.80 = 0.39: rejected; then '␣old' would be "
        "accepted with probability 0.10 / 0.50 = 0.20: "
        "rejected. The target sampled '␣said' from the residual, where it has 0.75."
    )
    assert residual.sentence(drew_once()) == (
        "The target sampled '␣said' (p = 0.50). A candidate, '␣the' or '␣old', would have come with 0.41 in "
        "all; given that none did, '␣said' has 0.75."
    )
    assert residual.sentence(typical()).startswith("'␣the' has 0.31, not above the threshold 0.80: rejected; ")
    leaf = Residual(1, (TokenProb(3, 0.5, 0.5, None),))
    assert residual.sentence(replace(stopped(), residual=leaf)) == (
        "There was no candidate after node 1 '␣the': the target sampled '␣said' from its own distribution (p = 0.50)."
    )


def test_the_bars_are_the_distributions_on_one_scale_with_their_numbers():
    svg = residual.residual_svg(stopped())
    root = check_svg(svg)
    rows = [(share.target, share.draft, share.residual) for share in stopped().residual.tokens]
    drawn = [value for row in rows for value in row if value]
    assert bars(svg) == [round(residual.BAR * value, 1) for value in drawn]
    shown = texts(root)
    for figure in ("0.50", "0.75", "0.80", "0.31", "0", "drawn", "candidate", "target p", "draft q", "residual"):
        assert figure in shown
    assert "0.31 / 0.80 = 0.39" in root[0].get("aria-label")
    assert "draws without replacement" in root[0].get("aria-label")


def test_where_no_candidate_was_drawn_there_is_no_distribution_of_the_draft():
    shown = texts(check_svg(residual.residual_svg(drew_once())))
    assert "draft q" not in shown
    assert "target p" in shown


def test_the_rule_is_named_and_a_lossy_one_in_red_words():
    page = residual.residual_html(stopped())
    parse(page, HTML | SVG)
    assert "draws without replacement." in page
    assert explain.CHANGES not in page
    assert "typical acceptance changes the output distribution." in residual.residual_html(typical())


def test_many_tokens_are_cut_to_the_candidates_and_the_likeliest():
    shares = tuple(TokenProb(token, 0.01, 0.02, 0.01) for token in range(20))
    step = replace(stopped(), residual=Residual(0, shares))
    kept = [share.token for share in residual.shown(step, step.residual)]
    assert len(kept) == residual.MOST
    assert {0, 1, 3} <= set(kept)
    assert "not drawn: 10 less likely tokens of the record" in residual.residual_svg(step)
    assert residual.table(step).count("<tr>") == 21


def test_nothing_drawn_nothing_shown():
    assert residual.residual_html(five_nodes()) == ""
    assert residual.table(five_nodes()) == ""
    check_svg(residual.residual_svg(five_nodes()))


def test_before_a_drafted_root_the_place_is_said():
    step = replace(stopped("sample and match"), residual=Residual(None, stopped().residual.tokens))
    assert residual.where(step) == "before the root"
    check_svg(residual.residual_svg(step))


def test_a_run_says_how_much_of_it_is_lossy():
    run = replace(trace(3), texts=TEXTS)
    assert explain.run_words(run) == ""
    run = replace(run, steps=(*run.steps[:2], typical()))
    assert explain.run_words(run) == (
        "typical acceptance changes the output distribution: 1 of 3 iterations are under this rule."
    )
    assert explain.run_words(run, 2) == ""
    assert explain.step_words(None) == ""
    assert "color:var(--jp-error-color1,#d32f2f)" in explain.warning("x")
