"""The exported page: every iteration is on it, whole and unpackable, and a long run of large trees stays small."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from dataclasses import replace
from html import unescape

import pytest
from draft_samples import routed
from made_run import made_run
from traces import TREE, step_of, trace_of
from view_samples import trace

from speclab.errors import TraceError
from speclab.trace.records import Trace
from speclab.views import proposals, side_by_side
from speclab.views.drafter_state import strategy_html
from speclab.views.export import describe, export_html, iteration_html, page
from speclab.views.registry import Frame
from speclab.views.side_by_side import Beside
from speclab.views.token_text import text_pieces

MEGABYTE = 1_000_000


def frame(run: Trace, cursor: int, other: Beside | None = None) -> str:
    return iteration_html(Frame(run, cursor, beside=other, brief=True))


def data_of(page_: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page_, re.DOTALL)[1])


def frames_of(page_: str) -> list[str]:
    return [gzip.decompress(b64decode(part)).decode() for part in data_of(page_)["frames"]]


def test_every_iteration_is_packed_as_it_is_drawn():
    run = made_run(3, 6)
    drawn = page(run, 2)
    assert frames_of(drawn) == [frame(run, i) for i in range(4)]
    assert data_of(drawn)["said"] == [describe(Frame(run, i)) for i in range(4)]
    assert frame(run, 2) in drawn.split("<script")[0], "it opens at the iteration named and shows no later text"
    assert re.findall(r'<span data-after="(\d)"( hidden="")?', drawn) == [
        ("0", ""), ("1", ""), ("2", ""), ("3", ' hidden=""'),
    ]  # fmt: skip
    assert [piece.count('class="sl-t ') for piece in text_pieces(run)[1:]] == [len(s.committed) for s in run.steps]


def test_the_page_asks_nobody_and_a_text_cannot_break_out_of_it():
    evil = '</script><script>alert(1)</script>"&\u2028'
    run = trace_of(step_of(TREE))
    run = type(run)(**{**vars(run), "texts": {**run.texts, 4: evil}, "settings": {"strategy": evil}})
    drawn = page(run, 1, evil)
    assert drawn.count("<script") == 2
    assert "alert(1)</script>" not in drawn

    links = re.findall(r'\b(?:src|href|action)="([^"]*)"', drawn)
    assert [link for link in links if not link.startswith("data:")] == []
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org)", drawn)
    assert len(frames_of(page(trace_of(), 0))) == 1, "a run without iterations is a page too"


def test_its_size_grows_linearly_and_stays_below_three_megabytes_for_a_hundred_large_trees(tmp_path):
    """Each frame packs alone, and text and metrics stand on it once: ten iterations say what a hundred cost."""

    def size(count: int) -> int:
        run, fork = made_run(count, 60), made_run(count, 60, seed=1)
        beside = Beside(1, "fork 1 of 0", replace(fork, prompt_ids=run.prompt_ids))
        return export_html(run, tmp_path / "run.html", other=beside).stat().st_size

    sizes = [size(count) for count in (2, 6, 10)]
    each = (sizes[2] - sizes[0]) / 8
    assert sizes[1] == pytest.approx((sizes[0] + sizes[2]) / 2, rel=0.1)
    assert sizes[0] + 98 * each < 3 * MEGABYTE


def test_an_iteration_tells_what_the_drafter_decided_and_how_a_run_beside_differs():
    run = trace(4)
    assert strategy_html(run, 2) in frame(run, 2)
    two = replace(run, steps=(routed(),))
    assert proposals.choice_words(routed()) in unescape(frame(two, 1))
    other = Beside(1, "fork 1 of 0", replace(run, steps=(run.steps[0], *made_run(3, 6).steps)))
    assert side_by_side.SAME in frame(run, 1, other)
    assert frame(run, 1, other).count("<svg") == frame(run, 1).count("<svg"), "one tree need not be drawn thrice"
    assert frame(run, 2, other).count("<svg") == frame(run, 2).count("<svg") + 2
    assert "The other run has 1 iteration" in frame(run, 2, replace(other, trace=replace(run, steps=run.steps[:1])))
    assert [frame(run, i, other) for i in range(5)] == frames_of(page(run, 1, "run", other))


def test_a_run_is_exported_from_its_first_iteration_with_another_beside(tmp_path):
    run = made_run(2, 4)
    path = export_html(run, tmp_path / "run.html")
    assert path.read_text(encoding="utf-8") == page(run, 1, "run")
    export_html(run, path, other=Beside(1, "fork", made_run(3, 4, seed=1)))
    assert "Beside fork." in path.read_text(encoding="utf-8")
    with pytest.raises(TraceError, match=r"cannot be written .* choose another folder"):
        export_html(trace_of(), tmp_path / "missing" / "run.html")
