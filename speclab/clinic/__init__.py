"""What is wrong with a run: of speclab, or of another decoder whose steps were recorded.

Names are imported on first use, since a recorder runs inside an engine and needs numpy only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from speclab.clinic._check import (
        assert_lossless,
        check,
        explain,
        load_target,
        marked,
        report,
    )
    from speclab.clinic._diff import diff
    from speclab.clinic._faults import FAULTS, Fault, broken
    from speclab.clinic._report import Report
    from speclab.trace.records import TIE, Finding

__all__ = [
    "FAULTS", "TIE", "Fault", "Finding", "Report", "assert_lossless", "broken", "check", "diff",
    "explain", "load_target", "marked", "report",
]  # fmt: skip


_HOME = {"Report": "_report", "diff": "_diff"} | dict.fromkeys(
    ("FAULTS", "Fault", "broken"), "_faults"
)
"""The module of each name that is not in `_check`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"speclab.clinic.{_HOME.get(name, '_check')}"), name)


def __dir__() -> list[str]:
    return __all__
