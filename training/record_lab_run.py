"""Records the runs that the lab shows first: `python training/record_lab_run.py`, or with the name of one pair."""

from __future__ import annotations

import sys
from pathlib import Path

from speclab import Lab, Session, load_pair
from speclab.lab.lab import REAL, recording
from speclab.models.presets import PRESETS

ITERATIONS = 24


def make(name: str) -> Path:
    """What the lab would decode first with this pair; the path of the trace."""
    config = Lab(name).config.read()
    session = Session(load_pair(name), config.strategy, config.prompt, **config.settings)
    session.run(until=f"iteration == {ITERATIONS}")
    return session.trace.save(recording(name))


if __name__ == "__main__":
    for pair in sys.argv[1:] or ["mini", *([] if PRESETS[REAL].missing else [REAL])]:
        print(make(pair))  # a person at a terminal reads it
