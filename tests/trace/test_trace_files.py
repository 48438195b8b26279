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
from traces import TREE, step_of, trace_of

from speclab.errors import TraceError
from speclab.trace.files import load_trace, parse_trace
from speclab.trace.records import VERSION


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


def test_bytes_after_the_end_are_refused_for_what_they_are(tmp_path):
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    path.write_bytes(path.read_bytes() + b"more")
    assert "after its end" in _refused(path)


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="peak memory is read from /proc")
@pytest.mark.parametrize(
    ("start", "unit", "mebibytes"), [(b"", b"\0", 512), (b"", b"[", 63), (b'{"steps":[', b"1,", 63)]
)
def test_a_file_that_unpacks_to_very_much_costs_little(tmp_path, start, unit, mebibytes):
    """More than is allowed is never unpacked, and what is unpacked is refused at its first error."""
    path = tmp_path / "bomb"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(start)
        for _ in range(mebibytes):
            file.write(unit * ((1 << 20) // len(unit)))
        file.write(b"1]}" if start else b"")
    code = (
        "import sys, speclab\n"
        "try: speclab.load_trace(sys.argv[1])\n"
        "except speclab.TraceError: print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1 << 20, "more than 1 GiB"


def test_the_most_that_is_unpacked_is_a_setting(tmp_path):
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    size = len(gzip.decompress(path.read_bytes()))
    with pytest.raises(TraceError, match="max_bytes="):
        load_trace(path, max_bytes=size - 1)
    assert len(load_trace(path, max_bytes=size).steps) == 1


@pytest.mark.parametrize("place", ["a\0b", "x" * 5000, "/dev/zero", "fifo"], ids=["NUL", "long", "device", "pipe"])
def test_a_path_of_no_file_is_one_sentence(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    with pytest.raises(TraceError, match="cannot be read") as caught:
        load_trace(place)
    assert len(str(caught.value)) <= 500


def _edited(tmp_path, change) -> str:
    path = trace_of(step_of(TREE), step_of(TREE, 1)).save(tmp_path / "t")
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


def _of_step(**values):
    return lambda data: data["steps"][1].update(values)


def _of_cache(**values):
    return lambda data: data["steps"][1]["caches"][0].update(values)


CONTRADICTIONS = {
    "index": _of_step(index=7),
    "prefix_length": _of_step(prefix_length=10**6),
    "nodes": _of_step(nodes=[]),
    "accepted": _of_step(accepted=[99]),
    "committed": _of_step(committed=[1, 2, 3]),
    "bonus": _of_step(bonus="one"),
    "mask": _of_step(mask=[]),
    "prefix_seen": _of_step(prefix_seen=[]),
    "seconds": _of_step(seconds={"draft": float("inf")}),
    "counts.committed": lambda data: data["steps"][1]["counts"].update(committed=10**400),
    "counts": lambda data: data["steps"][1]["counts"].update(committed=10**6),
    "caches.0.before": _of_cache(before=-1),
    "caches": _of_cache(before=10**9),
    "caches ": _of_cache(written=10**8),
    "caches  ": _of_cache(kept=[10**7]),
    "caches.0.capacity": _of_cache(capacity=10**30),
    "events": lambda data: data["steps"][1]["events"][0].update(node=4),
    "events ": lambda data: data["steps"][1]["events"][0].update(values={"branches": "two"}),
    "extra": lambda data: data["steps"][1]["extra"][0].update(sees=[6]),
    "nodes.2.draft_prob": lambda data: data["steps"][1]["nodes"][2].update(draft_prob=1.5),
    "tree": lambda data: data["steps"][1]["tree"].update(log_prob=[0, float("nan"), 0, 0]),
    "residual": _of_step(residual={"node": 4, "shares": []}),
    "budget": _of_step(budget={"probabilities": [0.5], "verified": 9, "verified_root": True, "extra": 0, "spent": 0,
                               "rows": [1], "seconds": [1]}),
    "texts": _of_step(texts={"1": "x" * 10**6}),
}  # fmt: skip


@pytest.mark.parametrize(("field", "edit"), CONTRADICTIONS.items())
def test_fields_that_contradict_each_other_are_refused_by_name(tmp_path, field, edit):
    """Views draw what loads without asking again."""
    message = _edited(tmp_path, edit)
    assert f"steps.1.{field.strip()}" in message


def test_proposals_are_none_or_as_many_in_every_step(tmp_path):
    def change(data):
        tree = data["steps"][1]["tree"]
        one = {"name": "a", "tree": tree, "confidence": 0.5, "score": 0.5, "chosen": True}
        data["steps"][1]["proposals"] = [one]

    assert "proposals" in _edited(tmp_path, change)


def test_whatever_loads_of_damaged_files_is_drawn():
    """A few of many; `python tests/mutants.py 20000 0` tries more."""
    packed = mutants.seeds()
    found = Counter(mutants.outcome(mutants.mutant(seed, packed)) for seed in range(150))
    assert found.keys() == {"refused", "drawn"}
    assert min(found.values()) > 20


def test_sound_files_of_every_strategy_are_drawn():
    assert {mutants.outcome(packed, also_figures=True) for packed in mutants.seeds()} == {"drawn"}


def test_a_file_without_what_came_later_still_opens(tmp_path):
    """Fields that were added have a value for files that lack them."""
    path = trace_of(step_of(TREE)).save(tmp_path / "t")
    data = json.loads(gzip.decompress(path.read_bytes()))
    for name in ("rule", "residual", "extra"):
        data["steps"][0].pop(name)
    data["steps"][0]["counts"].pop("lossy")
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    old = load_trace(path)
    assert (old.steps[0].rule, old.steps[0].residual, old.metrics.lossless) == ("", None, True)


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
