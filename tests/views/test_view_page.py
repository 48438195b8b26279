"""The exported page: every iteration and phase is on it, whole and unpackable, and a long run stays small."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from dataclasses import replace
from html import unescape

import pytest
from draft_samples import routed
from hypothesis import given, settings
from hypothesis import strategies as st
from made_run import made_run
from traces import TREE, step_of, trace_of
from view_samples import odd_tokens, steps, trace

from speclab.errors import SpeclabError, TraceError
from speclab.trace.records import Trace
from speclab.views import explain, export
from speclab.views.export import describe, export_html, page, parts_of
from speclab.views.playback import WHOLE, positions
from speclab.views.registry import VIEWS, Frame
from speclab.views.side_by_side import SAME, Beside
from speclab.views.token_text import text_pieces

MEGABYTE = 1_000_000


def unpacked(packed: str):
    return json.loads(gzip.decompress(b64decode(packed)))


def data_of(page_: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page_, re.DOTALL)[1])


def blocks_of(run: Trace, other: Beside | None = None) -> list[dict]:
    return [unpacked(block) for block in data_of(page(run, 1, other=other))["frames"]]


def shown(block: dict, view: str, tick: int = -1) -> list:
    """The parts of a view at a tick."""
    parts, ticks = block["views"][view]
    return [parts[part] for part in ticks[min(tick, len(ticks) - 1)]]


def as_json(value):
    return json.loads(json.dumps(value))


@settings(max_examples=5)
@given(st.lists(steps(max_nodes=12), min_size=1, max_size=2))
def test_every_iteration_and_tick_is_packed_as_it_is_drawn(found):
    run = replace(trace(1), steps=tuple(replace(step, index=i) for i, step in enumerate(found)))
    for i, block in enumerate(blocks_of(run)):
        places = positions(run.steps[i - 1]) if i else (WHOLE,)
        for number, (position, tick) in enumerate(zip(places, block["ticks"], strict=True)):
            at = Frame(run, i, position, room=export.ROOM)
            for name in block["views"]:
                assert shown(block, name, number) == as_json(parts_of(VIEWS[name].render(at)))
            assert tick["committed"] == at.committed
            assert describe(at) in unescape(re.sub("<[^>]*>", "", tick["said"]))
            assert tick["phase"] == (position.phase if i else None)


def test_a_node_tells_its_facts_and_why_and_sentences_lead_to_nodes():
    run = trace(2)
    step, block = run.steps[0], blocks_of(run)[1]
    assert len(block["facts"]) == len(step.nodes)
    for node, (why, values, draft, target) in zip(step.nodes, block["facts"], strict=True):
        assert f'<a href="#" data-node="{node.index}">Node {node.index}</a>' in why
        assert unescape(re.sub("<[^>]*>", "", why)) == explain.why(step, node.index)
        facts = dict(zip(export.FACTS, values, strict=True))
        assert (facts["id"], facts["verdict"], facts["KV slot"]) == (node.token, node.verdict, node.kv_slot)
        assert (len(draft), len(target)) == (min(4, len(node.draft_top)), min(4, len(node.target_top)))


def test_text_grows_by_what_each_iteration_committed():
    run = made_run(3, 6)
    assert re.findall(r'data-after="(\d)"', page(run, 2)) == list("0123")
    assert [piece.count('class="sl-t ') for piece in text_pieces(run)[1:]] == [len(s.committed) for s in run.steps]


def test_the_page_asks_nobody_and_a_text_cannot_break_out_of_it():
    evil = '</script><script>alert(1)</script>"&\u2028'
    run = trace_of(step_of(TREE))
    run = replace(run, texts={**run.texts, 4: evil}, settings={"strategy": evil})
    drawn = page(run, 1, evil, note=evil)
    assert drawn.count("<script") == 2
    assert "alert(1)</script>" not in drawn
    odd = odd_tokens()
    for block in blocks_of(replace(run, steps=(odd,), texts=odd.texts)):
        said = [tick["said"] for tick in block["ticks"]] + [fact[0] for fact in block.get("facts", ())]
        assert not [html for html in (*said, block.get("tables", "")) if "<script" in html or "</svg>" in html]

    links = re.findall(r'\b(?:src|href|action)="([^"]*)"', drawn)
    assert [link for link in links if not link.startswith(("data:", "#"))] == []
    assert len(data_of(page(trace_of(), 0))["frames"]) == 1, "a run without iterations is a page too"


def test_its_size_grows_linearly_and_stays_below_six_megabytes_for_a_hundred_large_trees(tmp_path):
    """Each block packs alone, and plotly.js stands on it once: ten iterations say what a hundred cost."""

    def size(count: int) -> int:
        return export_html(made_run(count, 60), tmp_path / "run.html").stat().st_size

    sizes = [size(count) for count in (2, 6, 10)]
    each = (sizes[2] - sizes[0]) / 8
    assert sizes[1] == pytest.approx((sizes[0] + sizes[2]) / 2, rel=0.1)
    assert sizes[0] + 98 * each < 6 * MEGABYTE


def test_an_iteration_tells_how_a_run_beside_differs():
    run = trace(4)
    two = replace(run, steps=(routed(),))
    other = Beside(1, "fork 1 of 0", replace(run, steps=(run.steps[0], *made_run(3, 6).steps)))
    blocks = blocks_of(run, other)
    assert SAME in unescape(json.dumps(shown(blocks[1], "beside")))
    assert SAME not in unescape(json.dumps(shown(blocks[2], "beside")))
    assert shown(blocks[2], "strategy") == as_json(parts_of(VIEWS["strategy"].render(Frame(run, 2))))
    assert len(blocks_of(two)) == 2


def test_a_run_is_exported_from_its_first_iteration_with_a_sentence_above(tmp_path, monkeypatch):
    run = made_run(2, 4)
    path = export_html(run, tmp_path / "run.html")
    assert path.read_text(encoding="utf-8") == page(run, 1, "run")
    assert data_of(path.read_text(encoding="utf-8"))["at"] == 1
    assert "With a budget of &lt;8" in export_html(run, path, 2, note="With a budget of <8 …").read_text(
        encoding="utf-8"
    )
    with pytest.raises(TraceError, match=r"cannot be written .* choose another folder"):
        export_html(trace_of(), tmp_path / "missing" / "run.html")
    monkeypatch.setattr(export, "find_spec", lambda _: None)
    export._plotly.cache_clear()
    with pytest.raises(SpeclabError, match="pip install plotly"):
        export_html(run, path)
