"""The public names, in the one place that lists them: `__init__.py` imports each on first use."""

from speclab import (
    bench as bench,
    clinic as clinic,
    errors as errors,
    prompts as prompts,
    rows as rows,
    theory as theory,
    views as views,
)
from speclab.features.replay import curves as curves
from speclab.features.routes import (
    attribution as attribution,
    routing as routing,
)
from speclab.features.compare import (
    Comparison as Comparison,
    compare as compare,
)
from speclab.features.link import (
    link as link,
    open_link as open_link,
)
from speclab.features.nodes import nodes as nodes
from speclab.features.replay.replayer import (
    Replay as Replay,
    Replayer as Replayer,
    replay as replay,
)
from speclab.features.whatif import (
    WhatIf as WhatIf,
    what_if as what_if,
)
from speclab.clinic.recorders.generate import record_generate as record_generate
from speclab.clinic.steps_file import load_steps as load_steps
from speclab.drafters import strategies as strategies
from speclab.drafters.base import (
    Context as Context,
    Draft as Draft,
    Drafter as Drafter,
    Outcome as Outcome,
    Strategy as Strategy,
)
from speclab.drafters.by_hand import ByHand as ByHand
from speclab.drafters.chain import (
    Autoregressive as Autoregressive,
    LinearSpeculation as LinearSpeculation,
)
from speclab.drafters.cost import NodeBudget as NodeBudget
from speclab.drafters.ddtree import DDTree as DDTree
from speclab.drafters.draft_head import DraftHead as DraftHead
from speclab.drafters.draft_pass import DraftPassDrafter as DraftPassDrafter
from speclab.drafters.dual_draft import DualDraft as DualDraft
from speclab.drafters.dynatree import DynaTree as DynaTree
from speclab.drafters.fixed_tree import FixedTree as FixedTree
from speclab.drafters.goose import Goose as Goose
from speclab.drafters.graft import Graft as Graft
from speclab.drafters.grow import (
    GrownStrategy as GrownStrategy,
    Shape as Shape,
)
from speclab.drafters.isotropic import IsotropicTree as IsotropicTree
from speclab.drafters.lookahead import Lookahead as Lookahead
from speclab.drafters.prompt_lookup import PromptLookup as PromptLookup
from speclab.drafters.retrieval import Retrieval as Retrieval
from speclab.drafters.sequoia import SequoiaTree as SequoiaTree
from speclab.drafters.suffix_decoding import SuffixDecoding as SuffixDecoding
from speclab.drafters.token_recycling import TokenRecycling as TokenRecycling
from speclab.engine.custom_generate import custom_generate as custom_generate
from speclab.engine.generate import (
    Generation as Generation,
    generate as generate,
)
from speclab.engine.session import Session as Session
from speclab.errors import (
    CancelledError as CancelledError,
    ChangedModelError as ChangedModelError,
    ContextExceededError as ContextExceededError,
    ExactnessError as ExactnessError,
    ExpressionError as ExpressionError,
    FinishedError as FinishedError,
    GenerationConfigWarning as GenerationConfigWarning,
    HeadMismatchError as HeadMismatchError,
    LogitsError as LogitsError,
    MeasurementError as MeasurementError,
    ModelNotFoundError as ModelNotFoundError,
    NoDraftError as NoDraftError,
    NotRecordedError as NotRecordedError,
    OfflineError as OfflineError,
    OutOfMemoryError as OutOfMemoryError,
    PromptError as PromptError,
    SettingsError as SettingsError,
    SpeclabError as SpeclabError,
    TokenizerMismatchError as TokenizerMismatchError,
    TraceError as TraceError,
    UnsupportedModelError as UnsupportedModelError,
)
from speclab.lab import Lab as Lab
from speclab.lab.prediction import Prediction as Prediction
from speclab.live.export import export_live as export_live
from speclab.pair import (
    ModelPair as ModelPair,
    load_pair as load_pair,
)
from speclab.trace.edit import TreeEdit as TreeEdit
from speclab.trace.files import load_trace as load_trace
from speclab.trace.metrics import Metrics as Metrics
from speclab.trace.records import (
    Step as Step,
    Trace as Trace,
)
from speclab.tree import DraftTree as DraftTree

__version__: str
