"""Trace files that are missing, damaged, foreign or newer, and disks that refuse them: one sentence each."""

import dataclasses
import gzip
import json
import tracemalloc

import pytest
from support.refusals import refused
from support.traces import TREE, step_of, trace_of

import speclab
from speclab.errors import TraceError
from speclab.trace.files import load_trace, unpack_trace
from speclab.trace.records import VERSION


def _refused(path):
    with refused(TraceError, str(path)) as caught:
        load_trace(path)
    message = str(caught.value)
    assert message.count(str(path)) == 1, "no sentence within a sentence"
    return message


def _edited(tmp_path, change):
    """What the error says of a trace of two steps that was changed."""
    path = trace_of(step_of(TREE), step_of(TREE, 1)).save(tmp_path / "t")
    data = json.loads(gzip.decompress(path.read_bytes()))
    change(data)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return _refused(path)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"hello", b"\x1f\x8b", b'{"steps": []}'),
        *(
            gzip.compress(text, mtime=0)
            for text in (b"", b"[]", b"null", b"{}", b'{"version": 1}', b"{", b"NaN", b"\xff")
        ),
    ],
)
def test_a_file_that_is_no_trace(tmp_path, content):
    (tmp_path / "t").write_bytes(content)
    _refused(tmp_path / "t")


def test_a_flipped_byte_and_a_truncation_are_refused_or_harmless(tmp_path):
    """Gzip's checksum finds a damaged body; a flipped byte of its header may change nothing."""
    trace = trace_of(step_of(TREE))
    whole = trace.save(tmp_path / "whole").read_bytes()
    refusals = 0
    places = range(0, len(whole), 37)
    for place in places:
        with pytest.raises(TraceError):
            unpack_trace(whole[:place], "t")
        try:
            flipped = whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
            assert unpack_trace(flipped, "t") == trace
        except TraceError:
            refusals += 1
    assert refusals >= len(places) - 2


def test_a_file_that_unpacks_to_very_much_costs_little():
    """More than is allowed is never unpacked."""
    bomb = gzip.compress(bytes(64 << 20), 1)
    tracemalloc.start()
    with refused(TraceError, "max_bytes="):
        unpack_trace(bomb, "t", max_bytes=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize(
    ("version", "way_out"),
    [(VERSION + 1, "upgrade"), (1, "decode it again"), (2, "decode it again")],
)
def test_another_format_is_refused_with_the_way_out(tmp_path, version, way_out):
    message = _edited(tmp_path, lambda data: data.update(version=version, steps={"packed": "…"}))
    assert f"format {version}" in message
    assert way_out in message


def _of_step(**values):
    return lambda data: data["steps"][1].update(values)


def _of_tree(**values):
    return lambda data: data["steps"][1]["tree"].update(values)


WRONG = {
    "a tree with a parent after its child": ("steps.1.tree", _of_tree(parent=[-1, 3, 0, 0])),
    "a tree with columns of two lengths": ("steps.1.tree", lambda data: data["steps"][1]["tree"]["token"].pop()),
    "a tree of a NaN": ("steps.1.tree", _of_tree(log_prob=[0, float("nan"), 0, 0])),
    "a prefix that no picture can draw": ("steps.1.prefix_length", _of_step(prefix_length=2**60)),
    "a mask that is no hex": ("steps.1.mask", _of_step(mask=["zz", "00", "00", "00"])),
    "an unknown verdict": ("steps.1.nodes.0.verdict", lambda data: data["steps"][1]["nodes"][0].update(verdict="x")),
    "nodes left out": ("steps.1.nodes", lambda data: data["steps"][1].pop("nodes")),
    "a path that is not in the tree": ("steps.1.accepted", _of_step(accepted=[99])),
    "a count of many digits": (
        "steps.1.counts.committed", lambda data: data["steps"][1]["counts"].update(committed=10**400),
    ),
    "an event of another node": ("steps.1.events", lambda data: data["steps"][1]["events"][0].update(node=4)),
    "a residual of another node": ("steps.1.residual", _of_step(residual={"node": 4, "tokens": []})),
    "steps that are a number": ("steps", lambda data: data.update(steps=3)),
}  # fmt: skip


@pytest.mark.parametrize(("field", "edit"), WRONG.values(), ids=WRONG)
def test_wrong_fields_are_refused_by_name(tmp_path, field, edit):
    assert f": {field}" in _edited(tmp_path, edit)


def test_a_trace_that_was_saved_loads_whatever_the_strategy_wrote(tmp_path):
    """Long texts, many nodes, a log-probability a little above 0: the writer has no bounds, so the reader has none."""
    count = 3000
    parents = [-1, *[0] * (count - 1)]
    tree = speclab.DraftTree.of([1] * count, parents, [0.0, *[1e-4] * (count - 1)], "s" * 5000)
    step = step_of(tree)
    nodes = tuple(dataclasses.replace(node, draft_prob=1.0001) for node in step.nodes)
    step = dataclasses.replace(step, nodes=nodes, texts={1: "x" * 9000}, settings={"k" * 200: 1.5})
    trace = trace_of(step)
    assert load_trace(trace.save(tmp_path / "t"), max_bytes=1 << 28) == trace


def test_a_trace_that_was_saved_is_the_same_trace(tmp_path):
    trace = trace_of(step_of(TREE), step_of(TREE, 1))
    loaded = load_trace(trace.save(tmp_path / "t"))
    assert loaded == trace
    assert loaded != trace_of(step_of(TREE), step_of(TREE, 1, prefix=4))
    assert hash(loaded.steps[0].tree) == hash(TREE)


def test_a_private_file_stays_private(tmp_path):
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    path.chmod(0o600)
    trace_of(step_of(TREE)).save(path)
    assert path.stat().st_mode & 0o777 == 0o600
