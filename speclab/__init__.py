"""speclab: a microscope for speculative decoding.

Names are imported on first use (PEP 562), so that ``import speclab`` stays cheap and a saved trace opens without
torch, transformers or Jupyter.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from speclab.decoder import GenerateResult as GenerateResult
    from speclab.decoder import generate as generate
    from speclab.drafters import Autoregressive as Autoregressive
    from speclab.drafters import DynaTree as DynaTree
    from speclab.drafters import FixedTree as FixedTree
    from speclab.drafters import LinearSpeculation as LinearSpeculation
    from speclab.drafters import strategies as strategies
    from speclab.errors import SpeclabError as SpeclabError
    from speclab.lab import Lab as Lab
    from speclab.models.pair import ModelPair as ModelPair
    from speclab.models.pair import load_pair as load_pair
    from speclab.session import Session as Session
    from speclab.trace import Step as Step
    from speclab.trace import Trace as Trace
    from speclab.trace import load_trace as load_trace
    from speclab.tree import DraftTree as DraftTree

__version__ = "0.1.0"

_HOME = {
    "Autoregressive": "speclab.drafters",
    "DraftTree": "speclab.tree",
    "DynaTree": "speclab.drafters",
    "FixedTree": "speclab.drafters",
    "GenerateResult": "speclab.decoder",
    "Lab": "speclab.lab",
    "LinearSpeculation": "speclab.drafters",
    "ModelPair": "speclab.models.pair",
    "Session": "speclab.session",
    "SpeclabError": "speclab.errors",
    "Step": "speclab.trace",
    "Trace": "speclab.trace",
    "generate": "speclab.decoder",
    "load_pair": "speclab.models.pair",
    "load_trace": "speclab.trace",
    "strategies": "speclab.drafters",
}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
