"""Records the run that the lab shows first: `python -m speclab.lab.bundle`."""

from __future__ import annotations

from pathlib import Path

from speclab.lab.recorded import PLACE

NEW_TOKENS = 64


def make() -> Path:
    """Records the first example prompt with DynaTree on the mini family."""
    from speclab import DynaTree, Session, load_pair
    from speclab.prompts import examples

    session = Session(load_pair(), DynaTree.for_unsure_draft(), examples()[0].text, max_new_tokens=NEW_TOKENS)
    session.run()
    return session.trace.save(PLACE)


if __name__ == "__main__":
    print(make())  # noqa: T201  # a person at a terminal reads it
