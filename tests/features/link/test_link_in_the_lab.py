"""The lab opens links, and draws QR codes of them."""

import json
from pathlib import Path

import pytest

import speclab
from speclab.features.link.lab import qr_rows

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))


def test_a_link_is_opened_beside_the_run_of_the_lab(page):
    page.do("step")
    known = GOLDEN["a run of DynaTree"]
    page.do("link", text=known["link"])
    assert page.error is None
    assert page.holds_the_run()
    assert [list(step.accepted) for step in page.lab.state.trace.steps] == known["accepted"]
    page.do("link", text=known["link"][:50])
    assert "cut short" in page.error["sentence"]
    assert len(page.lab.state.trace.steps) == len(known["accepted"])


def test_a_qr_code_holds_an_iteration(page):
    pytest.importorskip("segno")
    link = page.lab.session.trace.link(0, 0) + "&i=1&guess"
    rows = qr_rows(link)
    assert len(rows) == len(rows[0])
    assert rows[0][:7] == "1111111"
    with pytest.raises(speclab.SpeclabError, match="2,953"):
        qr_rows("a" * 3000)
