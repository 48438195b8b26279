"""Every drafted node of recorded runs as a pandas DataFrame, one row each; needs no torch.

import plotly.express as px

frame = speclab.nodes(session)
rates = frame[frame.tried].groupby(["strategy", "depth"]).accepted.mean().reset_index()
px.line(rates, x="depth", y="accepted", color="strategy")
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from speclab.trace.records import UNKNOWN, Step, Trace, trace_of

if TYPE_CHECKING:
    from speclab.engine.session import Session

COLUMNS = {
    "run": "int64", "iteration": "int64", "node": "int64", "depth": "int64", "rank": "int64", "source": "str",
    "token": "int64", "text": "str", "kind": "str", "draft_prob": "float64", "path_prob": "float64",
    "target_prob": "float64", "entropy": "float64", "parent_accepted": "bool", "right": "boolean", "tried": "bool",
    "accepted": "bool", "beyond_draft": "bool", "verdict": "str", "rule": "str", "strategy": "str",
}  # fmt: skip
_SPECIAL = re.compile(
    r"(?i)<\|.*\|>|</?(s|unk|pad|bos|eos|mask|cls|sep)>|\[(UNK|PAD|CLS|SEP|MASK|BOS|EOS)\]"
)


def nodes(traces: Trace | Session | Iterable[Trace | Session]) -> pd.DataFrame:
    """One row per drafted node of one or more runs.

    | column | meaning |
    |---|---|
    | `run`, `iteration`, `node` | place of the run among `traces`, `Step.index`, number in the draft tree |
    | `depth`, `rank` | drafted tokens on its path, itself included; place among its siblings; both from 1 |
    | `source`, `token`, `text`, `kind` | what proposed it, the token's id, its text, `token_kind` |
    | `draft_prob`, `path_prob` | stated probability at its parent, and the product along its path |
    | `target_prob`, `entropy` | of the token and of the distribution (nats) that the target decided by at its parent |
    | `parent_accepted` | the parent is the root or lies on the accepted path |
    | `right` | the token is the target's choice after its parent, wherever that is; missing where it is not recorded |
    | `tried` | the acceptance rule came to the node; a rate of acceptance is a mean of `accepted` over these rows |
    | `beyond_draft` | the draft's vocabulary lacks the target's choice after its parent: no child can be right |
    | `accepted`, `verdict`, `rule`, `strategy` | the outcome, the rule in words, and the run's strategy |

    A node at depth 5 is tried only if the four tokens before it were right, so in text that is easy
    to guess. Rejection sampling does not try children after the accepted one, and nodes below the
    end of the text are not tried.

    The target runs on rejected branches too, so `right` is known for their nodes as well (not for
    candidates that were drawn by the draft's probabilities): `views.marginals` compares it with
    what the drafter stated.

    Raises:
        SettingsError: an argument is not a run.
    """
    rows: list[dict[str, Any]] = []
    for number, trace in enumerate(_traces(traces)):
        strategy = str(trace.settings.get("strategy", ""))
        for step in trace.steps:
            rows += [{"run": number, "strategy": strategy, **row} for row in _rows(step)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _traces(given: Any) -> list[Trace]:
    several = isinstance(given, Iterable) and not isinstance(given, str)
    return [trace_of(run) for run in (given if several else [given])]


def calibration(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    """Whether stated probabilities come true, of the rows of `nodes` by `parent_accepted` and the
    column `by`.

    Columns after these two: `count`, `stated` (mean of `draft_prob`), `right` (share).
    """
    grouped = frame.dropna(subset=["right", "draft_prob"]).groupby(
        ["parent_accepted", by], observed=True
    )
    return grouped.agg(
        count=("right", "size"), stated=("draft_prob", "mean"), right=("right", "mean")
    ).reset_index()


def _rows(step: Step) -> Iterable[dict[str, Any]]:
    tree = step.tree
    above = 0 if 0 in step.drafted else 1  # depths count from the newest token of the text
    unstated = "log_prob" in step.missing
    path_prob = np.exp(tree.path_log_prob)
    path = {-1, *step.path}  # -1: above a drafted root
    last = max(path)
    ranks = {
        child: rank for children in tree.children for rank, child in enumerate(children, start=1)
    }
    for node in step.drafted:
        parent = int(tree.parent[node])
        record = step.nodes[node]
        text = step.texts.get(record.token, "")
        choice = step.nodes[parent].target_choice if parent >= 0 else step.root_choice
        known = choice != UNKNOWN and "draws" not in step.rule
        yield {
            "iteration": step.index,
            "node": node,
            "depth": int(tree.depth[node]) + 1 - above,
            "rank": ranks.get(node, 1),
            "source": tree.source[node],
            "token": record.token,
            "text": text,
            "kind": token_kind(text),
            "draft_prob": None if unstated else record.draft_prob,
            "path_prob": None if unstated else path_prob[node],
            "target_prob": record.target_prob,
            "entropy": step.nodes[parent].entropy
            if parent >= 0 and "entropy" not in step.missing
            else None,
            "parent_accepted": parent in path,
            "right": record.token == choice if known else None,
            # Without a bonus the text ended at the last accepted node, so nothing below it was
            # judged.
            "tried": record.verdict != "not reached"
            and not (step.bonus is None and parent == last),
            "accepted": record.verdict == "accepted",
            "beyond_draft": parent >= 0 and step.nodes[parent].beyond_draft,
            "verdict": record.verdict,
            "rule": step.rule,
        }


def token_kind(text: str) -> str:
    r"""The kind of a token by its text: the first kind that fits.

    >>> [token_kind(text) for text in (" the", "ing", " 12", ").", "\n", "</s>", "<0xE2>")]
    ['word start', 'continuation', 'digits', 'punctuation', 'white space', 'special', 'other']
    """
    if _SPECIAL.fullmatch(text):
        return "special"
    bare = text.strip()
    if not bare:
        return "white space" if text else "other"
    if bare.isdecimal():
        return "digits"
    if all(unicodedata.category(char)[0] in "PS" for char in bare if not char.isspace()):
        return "punctuation"
    if bare[0].isalpha():
        return "word start" if text[0].isspace() else "continuation"
    return "other"
