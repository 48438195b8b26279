"""The page's scripts are ES modules; `joined` makes one script of them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import speclab
from speclab.lab.lab import Lab
from speclab.live.export import SCRIPTS
from speclab.trace.records import CacheRecord, ExtraRow, NodeRecord, Proposal, Step, Trial
from speclab.views.modules import joined


def test_circles_are_refused(tmp_path):
    for here, other in ("ab", "ba"):
        text = f'import {{ {other} }} from "./{other}.js";\nexport const {here} = {other};\n'
        (tmp_path / f"{here}.js").write_text(text)
    with pytest.raises(ImportError):
        joined(tmp_path / "a.js")


@pytest.mark.parametrize("script", [Lab._esm, joined(SCRIPTS / "worker.js")])
def test_names_are_unique_in_a_script(script):
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", script, re.M)
    assert len(names) == len({*names}) > 0


@pytest.mark.parametrize("record", [Step, NodeRecord, CacheRecord, ExtraRow, Trial, Proposal])
def test_the_types_of_the_scripts_are_those_of_the_records(record):
    types = Path(speclab.__file__).with_name("types.d.ts").read_text(encoding="utf-8")
    body = re.search(rf"^interface {record.__name__} \{{(.*?)^\}}", types, re.M | re.S)[1]
    assert {*re.findall(r"^  (\w+)\??:", body, re.M)} <= {one.name for one in fields(record)}
