"""The recorded run that the lab shows before any model is loaded; `python -m speclab.lab.bundle` records it anew."""

from __future__ import annotations

import logging
from pathlib import Path

from speclab.errors import TraceError
from speclab.trace import Trace, load_trace

PLACE = Path(__file__).with_name("bundled.json.gz")
NEW_TOKENS = 64
_log = logging.getLogger(__name__)


def bundled() -> Trace:
    """The recorded run; an empty one where the file is missing or damaged: the lab works without it."""
    try:
        return load_trace(PLACE)
    except TraceError as error:
        _log.warning("%s", error)
        return Trace((), 0, (), {}, {}, {})


def make() -> Path:
    """Records the first example prompt with DynaTree on the mini family."""
    from speclab import DynaTree, Session, load_pair
    from speclab.prompts import examples

    session = Session(load_pair(), DynaTree(), examples()[0].text, max_new_tokens=NEW_TOKENS)
    session.run()
    return session.trace.save(PLACE)


if __name__ == "__main__":
    print(make())  # noqa: T201  # a person at a terminal reads it
