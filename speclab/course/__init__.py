"""What the tests of the course's exercises call."""

import os

from speclab.course.answers import check, expect, own, plain
from speclab.trace.metrics import loops

__all__ = ["check", "expect", "loops", "own", "plain", "quick"]


def quick(count: int) -> int:
    """The rounds of a measurement, or the steps of a training; a tenth of them where SPECLAB_QUICK is set.

    A test of a lesson asks whether it runs, not how fast the machine is.
    """
    return max(count // 10, 2) if os.environ.get("SPECLAB_QUICK") else count


def __dir__() -> list[str]:
    return __all__
