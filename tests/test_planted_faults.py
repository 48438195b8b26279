"""Tests notice faults: a dozen of the planted ones in a run, others every day; ALL=1 plants them all."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys

import pytest
from planted_faults import ROOT, faults

ALL, DOZEN, GROUPS = bool(os.environ.get("ALL")), 12, 4
DAY = datetime.datetime.now(tz=datetime.UTC).toordinal()
COUNT = len(faults())
CHOSEN = range(COUNT) if ALL else [(DAY * DOZEN + index) % COUNT for index in range(DOZEN)]


def test_every_planted_fault_changes_the_source() -> None:
    assert len({fault.source() for fault in faults()}) == COUNT


@pytest.mark.model
@pytest.mark.parametrize("group", range(GROUPS))
def test_faults_are_noticed(group: int) -> None:
    numbers = [str(number) for number in CHOSEN[group::GROUPS]]
    run = subprocess.run(
        [sys.executable, ROOT / "tests" / "planted_faults.py", *numbers], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
