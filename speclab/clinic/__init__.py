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
    from speclab.clinic._control import Control, control
    from speclab.clinic._diff import diff
    from speclab.clinic._faults import FAULTS, Fault, broken
    from speclab.clinic._read import Response, read
    from speclab.clinic._report import Report
    from speclab.clinic._same import Same, same
    from speclab.trace.records import TIE, Finding

__all__ = [
    "FAULTS", "TIE", "Control", "Fault", "Finding", "Report", "Response", "Same", "assert_lossless",
    "broken", "check", "control", "diff", "explain", "load_target", "marked", "read", "report", "same",
]  # fmt: skip


_HOME = {
    "Control": "_control",
    "FAULTS": "_faults",
    "Fault": "_faults",
    "Report": "_report",
    "Response": "_read",
    "Same": "_same",
    "broken": "_faults",
    "control": "_control",
    "diff": "_diff",
    "read": "_read",
    "same": "_same",
}
"""The module of each name that is not in `_check`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"speclab.clinic.{_HOME.get(name, '_check')}"), name)


def __dir__() -> list[str]:
    return __all__
