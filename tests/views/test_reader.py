"""The page refuses what Python refuses, in the same words."""

from __future__ import annotations

import json
import random

import pytest
from quickjs import JSException
from support import view_samples
from support.traces import place_in

import speclab
from speclab.trace.codecs import adapter
from speclab.trace.files import checked
from speclab.trace.records import Trace
from speclab.views.drawing import call

RUNS = [view_samples.runs()[name] for name in ("dynatree", "lookahead", "two trees, drawn")]
WRITTEN = [json.loads(adapter(Trace).dump_json(run)) for run in RUNS]
VALUES = (None, -1, 2**70, 1.5, 7, "", "zz", [], {}, [[]], [0] * 40, "<b>")
"""Python takes true for 1, the page does not."""


def _python(raw):
    try:
        checked(raw, "run")
    except speclab.TraceError as error:
        return str(error)
    return ""


def _page(raw):
    try:
        call("readRun", raw, "run")
    except JSException as error:
        return str(error).partition(": ")[2].partition("\n")[0]
    return ""


def _mutated(seed):
    """A run with a value that is wrong or missing."""
    chance = random.Random(seed)
    raw = json.loads(json.dumps(chance.choice(WRITTEN)))
    part, key = place_in(raw, chance, 0.9)
    if chance.random() < 0.2:
        del part[key]
    else:
        part[key] = chance.choice(VALUES)
    return raw


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_400_mutated_runs_are_refused_in_the_words_of_python(start):
    refused = 0
    for seed in range(start, start + 100):
        raw = _mutated(seed)
        sentence = _page(json.loads(json.dumps(raw)))
        assert sentence == _python(raw), seed
        refused += bool(sentence)
    assert refused > 50


def test_what_a_file_leaves_out_gets_its_default():
    raw = json.loads(json.dumps(WRITTEN[0]))
    for name in ("extra", "note", "gaps", "proposals"):
        del raw["steps"][0][name]
    run = call("readRun", raw, "run")
    assert [run["steps"][0][name] for name in ("extra", "note", "gaps")] == [[], "", []]


@pytest.mark.parametrize("version", [1, 999])
def test_another_version_is_refused(version):
    raw = {"version": version}
    assert _page(raw) == _python(raw)
