"""speclab: a microscope for speculative decoding.

Names are imported on first use (PEP 562), so ``import speclab`` stays cheap and a saved trace opens
without torch, transformers or Jupyter.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from speclab.errors import (
    INSTALL,
    CancelledError,
    ContextExceededError,
    ExactnessError,
    ExpressionError,
    FinishedError,
    GenerationConfigWarning,
    HeadMismatchError,
    LogitsError,
    MeasurementError,
    ModelNotFoundError,
    NoDraftError,
    NotRecordedError,
    OfflineError,
    OutOfMemoryError,
    PromptError,
    SettingsError,
    SpeclabError,
    TokenizerMismatchError,
    TraceError,
    UnsupportedModelError,
)

if TYPE_CHECKING:
    from speclab import bench, prompts, theory, views
    from speclab.analysis import attribution, clinic, curves, routing
    from speclab.analysis.compare import compare
    from speclab.analysis.nodes import nodes
    from speclab.analysis.replay import Replayer, replay
    from speclab.analysis.whatif import what_if
    from speclab.drafters import strategies
    from speclab.drafters.base import Context, Draft, Drafter, Strategy
    from speclab.drafters.by_hand import ByHand, TreeEdit
    from speclab.drafters.chain import Autoregressive, LinearSpeculation
    from speclab.drafters.ddtree import DDTree
    from speclab.drafters.draft_head import DraftHead
    from speclab.drafters.draft_pass import DraftPassDrafter
    from speclab.drafters.dual_draft import DualDraft
    from speclab.drafters.dynatree import DynaTree
    from speclab.drafters.fixed_tree import FixedTree
    from speclab.drafters.goose import Goose
    from speclab.drafters.isotropic import IsotropicTree
    from speclab.drafters.lookahead import Lookahead
    from speclab.drafters.prompt_lookup import PromptLookup
    from speclab.drafters.retrieval import Retrieval
    from speclab.drafters.sequoia import SequoiaTree
    from speclab.drafters.token_recycling import TokenRecycling
    from speclab.engine.custom_generate import custom_generate
    from speclab.engine.generate import Generation, generate
    from speclab.engine.record_generate import record_generate
    from speclab.engine.session import Session
    from speclab.lab import Lab
    from speclab.lab.prediction import Prediction
    from speclab.pair import ModelPair, load_pair
    from speclab.trace.files import load_trace
    from speclab.trace.records import Step, Trace
    from speclab.trace.steps import load_steps
    from speclab.tree import DraftTree

__version__ = "0.3.0"

__all__ = [
    "Autoregressive", "ByHand", "CancelledError", "Context", "ContextExceededError", "DDTree", "Draft", "DraftHead",
    "DraftPassDrafter", "DraftTree", "Drafter", "DualDraft", "DynaTree", "ExactnessError", "ExpressionError",
    "FinishedError", "FixedTree", "Generation", "GenerationConfigWarning", "Goose", "HeadMismatchError",
    "IsotropicTree", "Lab", "LinearSpeculation", "LogitsError", "Lookahead", "MeasurementError", "ModelNotFoundError",
    "ModelPair", "NoDraftError", "NotRecordedError", "OfflineError", "OutOfMemoryError", "Prediction", "PromptError",
    "PromptLookup", "Replayer", "Retrieval", "SequoiaTree", "Session", "SettingsError", "SpeclabError", "Step",
    "Strategy", "TokenRecycling", "TokenizerMismatchError", "Trace", "TraceError", "TreeEdit", "UnsupportedModelError",
    "__version__", "attribution", "bench", "clinic", "compare", "curves", "custom_generate", "generate", "load_pair",
    "load_steps", "load_trace", "nodes", "prompts", "record_generate", "replay", "routing",
    "strategies", "theory", "views", "what_if",
]  # fmt: skip

# Names imported on first use, and their modules; the block above repeats them for type checkers and
# editors.
_HOME = {
    "Autoregressive": "speclab.drafters.chain",
    "ByHand": "speclab.drafters.by_hand",
    "Context": "speclab.drafters.base",
    "DDTree": "speclab.drafters.ddtree",
    "Draft": "speclab.drafters.base",
    "DraftHead": "speclab.drafters.draft_head",
    "DraftTree": "speclab.tree",
    "DraftPassDrafter": "speclab.drafters.draft_pass",
    "Drafter": "speclab.drafters.base",
    "DualDraft": "speclab.drafters.dual_draft",
    "DynaTree": "speclab.drafters.dynatree",
    "FixedTree": "speclab.drafters.fixed_tree",
    "Generation": "speclab.engine.generate",
    "Goose": "speclab.drafters.goose",
    "IsotropicTree": "speclab.drafters.isotropic",
    "Lab": "speclab.lab",
    "LinearSpeculation": "speclab.drafters.chain",
    "Lookahead": "speclab.drafters.lookahead",
    "ModelPair": "speclab.pair",
    "Prediction": "speclab.lab.prediction",
    "PromptLookup": "speclab.drafters.prompt_lookup",
    "Replayer": "speclab.analysis.replay",
    "Retrieval": "speclab.drafters.retrieval",
    "SequoiaTree": "speclab.drafters.sequoia",
    "Session": "speclab.engine.session",
    "Step": "speclab.trace.records",
    "Strategy": "speclab.drafters.base",
    "TokenRecycling": "speclab.drafters.token_recycling",
    "Trace": "speclab.trace.records",
    "TreeEdit": "speclab.drafters.by_hand",
    "compare": "speclab.analysis.compare",
    "custom_generate": "speclab.engine.custom_generate",
    "generate": "speclab.engine.generate",
    "load_pair": "speclab.pair",
    "load_trace": "speclab.trace.files",
    "load_steps": "speclab.trace.steps",
    "nodes": "speclab.analysis.nodes",
    "record_generate": "speclab.engine.record_generate",
    "replay": "speclab.analysis.replay",
    "strategies": "speclab.drafters",
    "what_if": "speclab.analysis.whatif",
}

_MODULES = {
    "attribution": "speclab.analysis.attribution",
    "bench": "speclab.bench",
    "clinic": "speclab.analysis.clinic",
    "curves": "speclab.analysis.curves",
    "prompts": "speclab.prompts",
    "routing": "speclab.analysis.routing",
    "theory": "speclab.theory",
    "views": "speclab.views",
}
"""Whole modules, so that `import speclab` is enough for `speclab.theory.spine_yield`."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("speclab"):
            raise
        raise SpeclabError(f"speclab.{name} needs {error.name}: {INSTALL}.") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
