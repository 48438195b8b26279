"""speclab: a microscope for speculative decoding.

Names are imported on first use (PEP 562), so ``import speclab`` stays cheap and a saved trace opens
without torch, transformers or Jupyter. ``__init__.pyi`` lists them, for type checkers too.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from speclab import display
from speclab.features import FEATURES

__version__ = "0.3.0"


def _there(home: str) -> bool:
    """Whether a module belongs to no feature, or to one that is there."""
    _, feature, name = f"{home}.".partition("speclab.features.")
    return not feature or name.partition(".")[0] in FEATURES


_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOME: dict[str, str] = {}
"""Each public name and the module that holds it; a module's is its package."""
for _module, _names in re.findall(r"(?m)^from (\S+) import (\([^)]*|.*)", _STUB):
    if _there(_module):
        _HOME.update(dict.fromkeys(re.findall(r"as (\w+)", _names), _module))

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        from speclab.errors import meant

        says = f"module 'speclab' has no attribute {name!r}"
        if near := meant(name, __all__):
            says += f": did you mean {near}?"
        raise AttributeError(says)
    try:
        value = vars(import_module(home)).get(name) or import_module(f"{home}.{name}")
    except ModuleNotFoundError as error:
        from speclab.errors import absent

        raise absent(error, f"speclab.{name}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


# A record shows itself as a picture or a link, and opens without plotly: views come when one is asked for.
display.told_by(__getattr__)
