"""Records the run that the lab shows first: `python training/record_lab_run.py`."""

from __future__ import annotations

from pathlib import Path

from speclab import DynaTree, Session, load_pair
from speclab.lab.lab import RECORDING
from speclab.prompts import examples

NEW_TOKENS = 64


def make() -> Path:
    """The first example prompt with DynaTree on the mini family; the path of the trace."""
    session = Session(load_pair(), DynaTree.for_unsure_draft(), examples()[0].text, max_new_tokens=NEW_TOKENS)
    session.run()
    return session.trace.save(RECORDING)


if __name__ == "__main__":
    print(make())  # noqa: T201  # a person at a terminal reads it
