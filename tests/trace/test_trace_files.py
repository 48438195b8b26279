"""Trace files that are missing, damaged, foreign or newer, and disks that refuse them: one sentence each."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import mutants
import pytest
from records import assert_same
from refusals import refused
from traces import TREE, step_of, trace_of

from speclab.errors import TraceError
from speclab.trace.files import load_trace, unpack_trace
from speclab.trace.records import VERSION


def _refused(path) -> str:
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 250 + len(str(path))
    assert str(path) in message
    return message


def _edited(tmp_path, change) -> str:
    """What is said of a trace of two steps that was changed."""
    path = trace_of(step_of(TREE), step_of(TREE, 1)).save(tmp_path / "t")
    data = json.loads(gzip.decompress(path.read_bytes()))
    change(data)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return _refused(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x1f\x8b", b'{"steps": []}', b"\x89PNG\r\n\x1a\n"])
def test_a_file_that_is_no_trace(tmp_path, content):
    (tmp_path / "t").write_bytes(content)
    _refused(tmp_path / "t")


@pytest.mark.parametrize("content", ["", "[]", "null", "3", '"text"', "{}", '{"version": 1}', "{", "NaN", "\ud800"])
def test_gzipped_json_that_is_no_trace(tmp_path, content):
    (tmp_path / "t").write_bytes(gzip.compress(content.encode("utf-8", "surrogatepass")))
    _refused(tmp_path / "t")


def test_every_truncation_is_refused(tmp_path):
    whole = trace_of(step_of(TREE)).save(tmp_path / "whole").read_bytes()
    path = tmp_path / "t"
    for length in [*range(0, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:length])
        _refused(path)


def test_a_flipped_byte_is_refused_or_harmless(tmp_path):
    """Gzip's checksum finds a damaged body; a flipped byte of its header may change nothing."""
    trace = trace_of(step_of(TREE))
    whole = trace.save(tmp_path / "whole").read_bytes()
    found = 0
    for place in range(0, len(whole), 11):
        try:
            assert_same(unpack_trace(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :], "t"), trace)
        except TraceError:
            found += 1
    assert found >= len(whole) // 11 - 2


def test_bytes_after_the_end_are_refused_for_what_they_are(tmp_path):
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    path.write_bytes(path.read_bytes() + b"more")
    assert "after its end" in _refused(path)


LOADED = """
import sys, speclab
for path in sys.argv[1:]:
    try: speclab.load_trace(path, max_bytes=17 << 20)
    except speclab.TraceError: continue
    sys.exit(f"{path} was loaded")
print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="peak memory is read from /proc")
def test_a_file_that_unpacks_to_very_much_costs_little(tmp_path):
    """More than is allowed is never unpacked, and what is unpacked is refused at its first error."""
    bombs = {"zeros": (b"", b"\0", 512), "brackets": (b"", b"[", 16), "numbers": (b'{"steps":[', b"1,", 16)}
    for name, (start, unit, mebibytes) in bombs.items():
        with gzip.open(tmp_path / name, "wb", compresslevel=1) as file:
            file.write(start)
            for _ in range(mebibytes):
                file.write(unit * ((1 << 20) // len(unit)))
            file.write(b"1]}" if start else b"")
    paths = [str(tmp_path / name) for name in bombs]
    done = subprocess.run([sys.executable, "-c", LOADED, *paths], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 300 << 10, "more than 300 MiB"


def test_the_most_that_is_unpacked_is_a_setting(tmp_path):
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    size = len(gzip.decompress(path.read_bytes()))
    with pytest.raises(TraceError, match="max_bytes="):
        load_trace(path, max_bytes=size - 1)
    assert len(load_trace(path, max_bytes=size).steps) == 1


@pytest.mark.parametrize("place", ["nothing", ".", "a\0b", "x" * 5000, "/dev/zero", "fifo"])
def test_a_path_of_no_file_is_one_sentence(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    with pytest.raises(TraceError, match="cannot be read") as caught:
        load_trace(place)
    assert len(str(caught.value)) <= 500


@pytest.mark.parametrize(
    "change", [{"version": VERSION + 1}, {"version": VERSION + 3, "steps": {"packed": "…"}}], ids=str
)
def test_a_newer_format_says_upgrade(tmp_path, change):
    message = _edited(tmp_path, lambda data: data.update(change))
    assert "newer speclab" in message
    assert "upgrade" in message


def _of_step(**values):
    return lambda data: data["steps"][1].update(values)


def _of_tree(**values):
    return lambda data: data["steps"][1]["tree"].update(values)


def _of_cache(**values):
    return lambda data: data["steps"][1]["caches"][0].update(values)


WRONG = {
    "a tree with a parent after its child": ("tree", _of_tree(parent=[-1, 3, 0, 0])),
    "a tree with columns of two lengths": ("tree", lambda data: data["steps"][1]["tree"]["token"].pop()),
    "a tree without parents": ("tree", lambda data: data["steps"][1]["tree"].pop("parent")),
    "a tree with an extra column": ("tree", _of_tree(surprise=1)),
    "a tree of text": ("tree", _of_step(tree="tree")),
    "a tree of a NaN": ("tree", _of_tree(log_prob=[0, float("nan"), 0, 0])),
    "tokens that are no numbers": ("tree", _of_tree(token=["a", "b", "c", "d"])),
    "unknown sampling": ("tree", _of_tree(law="guessing")),
    "a mask that is no hex": ("mask", _of_step(mask=["zz", "00", "00", "00"])),
    "a mask that is too narrow": ("mask", _of_step(mask=["", "", "", ""])),
    "a mask that is a number": ("mask", _of_step(mask=7)),
    "a mask of numbers": ("mask", _of_step(mask=[1, 2, 3, 4])),
    "no mask": ("mask", _of_step(mask=None)),
    "an empty mask": ("mask", _of_step(mask=[])),
    "a mask of fewer nodes": ("mask", _of_step(mask=["80", "80", "80"])),
    "an unknown verdict": ("nodes.0.verdict", lambda data: data["steps"][1]["nodes"][0].update(verdict="perhaps")),
    "a second root": ("nodes", lambda data: data["steps"][1]["nodes"][1].update(verdict="root")),
    "a probability above 1": ("nodes.2.draft_prob", lambda data: data["steps"][1]["nodes"][2].update(draft_prob=1.5)),
    "no nodes": ("nodes", _of_step(nodes=[])),
    "nodes left out": ("nodes", lambda data: data["steps"][1].pop("nodes")),
    "an index out of order": ("index", _of_step(index=7)),
    "a prefix longer than the text": ("prefix_length", _of_step(prefix_length=10**6)),
    "a path that is not in the tree": ("accepted", _of_step(accepted=[99])),
    "committed tokens of no path": ("committed", _of_step(committed=[1, 2, 3])),
    "a bonus of text": ("bonus", _of_step(bonus="one")),
    "a prefix seen by nobody": ("prefix_seen", _of_step(prefix_seen=[])),
    "seconds without end": ("seconds", _of_step(seconds={"draft": float("inf")})),
    "a count of many digits": ("counts.committed", lambda data: data["steps"][1]["counts"].update(committed=10**400)),
    "a count of others": ("counts", lambda data: data["steps"][1]["counts"].update(committed=10**6)),
    "a cache of negative length": ("caches.0.before", _of_cache(before=-1)),
    "a cache longer than the text": ("caches", _of_cache(before=10**9)),
    "a cache with too many rows": ("caches", _of_cache(written=10**8)),
    "a cache that keeps what it has not": ("caches", _of_cache(kept=[10**7])),
    "a cache of too many slots": ("caches.0.capacity", _of_cache(capacity=10**30)),
    "an event of another node": ("events", lambda data: data["steps"][1]["events"][0].update(node=4)),
    "an event with words for a number": (
        "events",
        lambda data: data["steps"][1]["events"][0].update(values={"branches": "two"}),
    ),
    "an extra row that sees beyond": ("extra", lambda data: data["steps"][1]["extra"][0].update(sees=[6])),
    "a residual of another node": ("residual", _of_step(residual={"node": 4, "tokens": []})),
    "a budget of more than was drafted": (
        "budget",
        _of_step(
            budget={"probabilities": [0.5], "verified": 9, "verified_root": True, "extra": 0, "spent": 0,
                    "rows": [1], "seconds": [1]}
        ),
    ),
    "a text without end": ("texts", _of_step(texts={"1": "x" * 10**6})),
}  # fmt: skip


@pytest.mark.parametrize(("field", "edit"), WRONG.values(), ids=WRONG)
def test_wrong_and_contradictory_fields_are_refused_by_name(tmp_path, field, edit):
    """Views draw what loads without asking again."""
    message = _edited(tmp_path, edit)
    assert "not a speclab trace" in message
    assert f"steps.1.{field}" in message


@pytest.mark.parametrize("change", [{"steps": 3}, {"version": "one"}], ids=str)
def test_a_wrong_field_of_the_run_is_refused_by_name(tmp_path, change):
    assert f"not a speclab trace: {next(iter(change))}" in _edited(tmp_path, lambda data: data.update(change))


def test_proposals_are_none_or_as_many_in_every_step(tmp_path):
    def change(data):
        one = {"name": "a", "tree": data["steps"][1]["tree"], "confidence": 0.5, "score": 0.5, "chosen": True}
        data["steps"][1]["proposals"] = [one]

    assert "proposals" in _edited(tmp_path, change)


def test_whatever_loads_of_damaged_files_is_drawn():
    """A few of many; `python tests/trace/mutants.py 20000 0` tries more."""
    packed = mutants.seeds()
    found = Counter(mutants.outcome(mutants.mutant(seed, packed)) for seed in range(60))
    assert found.keys() == {"refused", "drawn"}
    assert min(found.values()) > 9


def test_sound_files_of_every_strategy_are_drawn():
    assert {mutants.outcome(packed) for packed in mutants.seeds()} == {"drawn"}


def test_a_file_without_what_came_later_still_opens(tmp_path):
    """Fields that were added have a value for files that lack them."""
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    data = json.loads(gzip.decompress(path.read_bytes()))
    for name in ("rule", "residual", "extra"):
        data["steps"][0].pop(name)
    data["steps"][0]["counts"].pop("lossy")
    old = unpack_trace(gzip.compress(json.dumps(data).encode()), "old")
    assert (old.steps[0].rule, old.steps[0].residual, old.metrics.lossless) == ("", None, True)


def test_save_replaces_whole_or_not_at_all(tmp_path):
    """A disk that is full half-way: the old file stays, and no half-written one beside it."""
    resource = pytest.importorskip("resource")
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    before = path.read_bytes()
    longer = trace_of(*(step_of(TREE, index) for index in range(40)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), hard))
    try:
        with refused(TraceError, "cannot be written"):
            longer.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t"]
    with refused(TraceError, "choose another folder"):
        longer.save(tmp_path / "missing" / "t")
