"""Trace: saved and read back whole, written whole or not at all; damaged, foreign and newer files say so."""

from __future__ import annotations

import dataclasses
import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import assert_same
from strategies import draft_trees

from speclab.errors import TraceError
from speclab.metrics import Counts
from speclab.trace import (
    VERSION,
    Adaptation,
    CacheRecord,
    Event,
    NodeRecord,
    Step,
    Trace,
    load_trace,
    parse_trace,
)
from speclab.tree import DraftTree, Law


def step_of(tree: DraftTree, index: int = 0, prefix: int = 3) -> Step:
    """A step with something in every field; the figures need not make sense together."""
    n = len(tree)
    nodes = tuple(
        NodeRecord(
            index=i,
            token=int(tree.token[i]),
            draft_prob=0.1 + i / 97,
            path_prob=1 / 3,
            target_prob=None if i == 0 else 0.25,
            target_choice=i % 5,
            verdict="root" if i == 0 else "rejected",
            reason="the target chose “é” · not this",
            kv_slot=prefix + i,
            entropy=1.5,
            target_top=((2, 0.5), (1, 0.25)),
            draft_top=((2, 0.75),) if i else (),
        )
        for i in range(n)
    )
    return Step(
        index=index,
        prefix_length=prefix,
        tree=tree,
        nodes=nodes,
        accepted=(0,),
        committed=(3, 1),
        bonus=None if index else 1,
        root_choice=4,
        settings={
            "base_depth": 5,
            "high_confidence": 0.9,
            "history": True,
            "root": "verified",
            "top_k": None,
        },
        events=(
            Event("expand", 0, "confidence 0.5", {"confidence": 0.5, "branches": 2}),
            Event("route", None, "both"),
        ),
        caches=(CacheRecord("target", 3, n, (3, 5), ((5, 4),), 5, 5, 64, 1024),),
        seconds={"draft": 0.25, "verify": 1e-9},
        adaptation=Adaptation("mean 0.9", {"base_depth": 5}, {"base_depth": 6}),
        counts=Counts(1, 2, n - 1, 1, 3, 1, 2, 0.1),
        mask=tree.ancestor_mask(),
        prefix_seen=(prefix,) * n,
        texts={3: " the", 1: "\n", 0: "<0xE2>"},
        note="x",
    )


def trace_of(*steps: Step) -> Trace:
    return Trace(
        prompt_ids=(1, 2, 3),
        first_token=4,
        steps=steps,
        settings={"strategy": "DynaTree", "temperature": 0.0, "top_p": None},
        models={"target": "mini", "threads": 1, "parameters": 11_000_000},
        texts={1: "a", 2: "\u2028", 3: "</script>"},
        prefill_seconds=0.5,
        finished="max_new_tokens",
    )


TREE = DraftTree.of([4, 5, 6, 5], [-1, 0, 0, 2], [0.0, -0.25, -1.5, -2.0], ["target", "draft", "draft", "draft"])


def test_save_and_load_give_the_same_trace(tmp_path):
    trace = trace_of(step_of(TREE), step_of(DraftTree.root(9), index=1))
    path = trace.save(tmp_path / "run.json.gz")
    assert path == tmp_path / "run.json.gz"
    assert_same(load_trace(path), trace)


@given(draft_trees(max_nodes=20), st.sampled_from(list(Law)))
def test_any_tree_and_mask_survive(tmp_path_factory, tree, law):
    tree = dataclasses.replace(tree, law=law)
    path = tmp_path_factory.mktemp("trace") / "t"
    trace = trace_of(step_of(tree))
    assert_same(load_trace(trace.save(path)), trace)


def test_impossible_tokens_survive(tmp_path):
    """A law may hold zeros: log-prob minus infinity."""
    tree = DraftTree.of([1, 2], [-1, 0], [0.0, -np.inf], "draft")
    trace = trace_of(step_of(tree))
    assert_same(load_trace(trace.save(tmp_path / "t")), trace)


def test_a_mask_that_is_not_the_closure_survives(tmp_path):
    """The mask is what the model was given: a wrong one must be shown wrong."""
    wrong = np.ones((4, 4), dtype=np.bool_)
    trace = trace_of(dataclasses.replace(step_of(TREE), mask=wrong))
    assert load_trace(trace.save(tmp_path / "t")).steps[0].mask.all()


def test_token_ids_start_with_the_first_token_and_stop_at_the_cursor():
    trace = trace_of(step_of(TREE), step_of(TREE, 1))
    assert trace.token_ids() == (4, 3, 1, 3, 1)
    assert [trace.token_ids(i) for i in range(3)] == [(4,), (4, 3, 1), (4, 3, 1, 3, 1)]


def test_metrics_are_the_sum_of_the_steps():
    metrics = trace_of(step_of(TREE), step_of(TREE, 1)).metrics
    assert metrics.counts == Counts(2, 4, 6, 2, 6, 2, 4, 0.2)
    assert metrics.ttft == 0.5


def test_the_same_trace_gives_the_same_bytes(tmp_path):
    trace = trace_of(step_of(TREE))
    assert trace.save(tmp_path / "a").read_bytes() == trace.save(tmp_path / "b").read_bytes()


def test_a_saved_trace_opens_without_torch(tmp_path):
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    code = (
        "import sys, speclab\n"
        f"print(len(speclab.load_trace({str(path)!r}).steps))\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["1", "set()"]


# Bad files


def _refused(path) -> str:
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 250 + len(str(path))
    assert str(path) in message
    return message


def test_missing_file_and_folder(tmp_path):
    assert "cannot be read" in _refused(tmp_path / "nothing.json.gz")
    assert "cannot be read" in _refused(tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x1f\x8b", b'{"steps": []}', b"\x89PNG\r\n\x1a\n"])
def test_a_file_that_is_no_trace(tmp_path, content):
    path = tmp_path / "t"
    path.write_bytes(content)
    _refused(path)


@pytest.mark.parametrize("content", ["", "[]", "null", "3", '"text"', "{}", '{"version": 1}', "{", "NaN", "\ud800"])
def test_gzipped_json_that_is_no_trace(tmp_path, content):
    path = tmp_path / "t"
    path.write_bytes(gzip.compress(content.encode("utf-8", "surrogatepass")))
    _refused(path)


def test_every_truncation_is_refused(tmp_path):
    whole = trace_of(step_of(TREE)).save(tmp_path / "whole").read_bytes()
    path = tmp_path / "t"
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        _refused(path)
    path.write_bytes(whole[:-1])
    _refused(path)


def test_a_flipped_byte_is_refused_or_harmless(tmp_path):
    """Gzip's checksum finds a damaged body; a flipped byte of its header may change nothing."""
    trace = trace_of(step_of(TREE))
    whole = trace.save(tmp_path / "whole").read_bytes()
    path = tmp_path / "t"
    refused = 0
    for place in range(0, len(whole), 11):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            assert_same(load_trace(path), trace)
        except TraceError:
            refused += 1
    assert refused >= len(whole) // 11 - 2


def test_bytes_after_the_end_are_refused(tmp_path):
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    path.write_bytes(path.read_bytes() + b"more")
    _refused(path)


def _edited(tmp_path, change) -> str:
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    data = json.loads(gzip.decompress(path.read_bytes()))
    change(data)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return _refused(path)


def test_a_newer_format_says_upgrade(tmp_path):
    message = _edited(tmp_path, lambda data: data.update(version=VERSION + 1))
    assert "newer speclab" in message
    assert "upgrade" in message


def test_a_newer_format_with_unknown_fields_still_says_upgrade(tmp_path):
    def change(data):
        data.update(version=VERSION + 3, steps={"packed": "…"})

    assert "upgrade" in _edited(tmp_path, change)


EDITS = {
    "a tree with a parent after its child": lambda d: d["steps"][0]["tree"].update(parent=[-1, 3, 0, 0]),
    "a tree with columns of two lengths": lambda d: d["steps"][0]["tree"]["token"].pop(),
    "a tree without parents": lambda d: d["steps"][0]["tree"].pop("parent"),
    "a tree with an extra column": lambda d: d["steps"][0]["tree"].update(surprise=1),
    "a tree of text": lambda d: d["steps"][0].update(tree="tree"),
    "tokens that are no numbers": lambda d: d["steps"][0]["tree"].update(token=["a", "b", "c", "d"]),
    "an unknown law": lambda d: d["steps"][0]["tree"].update(law="guessing"),
    "a mask that is no hex": lambda d: d["steps"][0].update(mask=["zz", "00", "00", "00"]),
    "a mask that is too narrow": lambda d: d["steps"][0].update(mask=["", "", "", ""]),
    "a mask that is a number": lambda d: d["steps"][0].update(mask=7),
    "a mask of numbers": lambda d: d["steps"][0].update(mask=[1, 2, 3, 4]),
    "a mask of null": lambda d: d["steps"][0].update(mask=None),
    "an unknown verdict": lambda d: d["steps"][0]["nodes"][0].update(verdict="perhaps"),
    "a step without nodes": lambda d: d["steps"][0].pop("nodes"),
    "steps that are no list": lambda d: d.update(steps=3),
    "a version that is text": lambda d: d.update(version="one"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_trace_with_a_wrong_field_says_where(tmp_path, edit):
    assert "not a speclab trace" in _edited(tmp_path, edit)


def test_parse_trace_calls_the_data_by_its_name():
    with pytest.raises(TraceError, match=r"^lesson 3 "):
        parse_trace(b"{}", "lesson 3")


def test_save_replaces_whole_or_not_at_all(tmp_path):
    """A disk that is full half-way: the old file stays, and no half-written one beside it."""
    resource = pytest.importorskip("resource")
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    before = path.read_bytes()
    longer = trace_of(*(step_of(TREE, index) for index in range(40)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), hard))
    try:
        with pytest.raises(TraceError, match="cannot be written"):
            longer.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_saving_into_a_missing_folder_says_so(tmp_path):
    with pytest.raises(TraceError, match=r"folder|directory"):
        trace_of(step_of(TREE)).save(tmp_path / "missing" / "t")


def test_a_saved_file_has_the_usual_rights(tmp_path):
    """Others may read it as they may read any file written here."""
    (tmp_path / "usual").write_bytes(b"")
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
