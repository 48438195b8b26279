"""The columns of a node, one table: `speclab.nodes`, the page's table of nodes, `views.graph` and the
types of the scripts follow it.

A new column is a row of `COLUMNS`; a function above it computes the value, if it takes more than a
line. Then `python scripts/write_types.py` tells the scripts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from speclab.trace.records import UNKNOWN, NodeRecord, Step, Value

_SPECIAL = re.compile(
    r"(?i)<\|.*\|>|</?(s|unk|pad|bos|eos|mask|cls|sep)>|\[(UNK|PAD|CLS|SEP|MASK|BOS|EOS)\]"
)


@dataclass(frozen=True)
class Column:
    """A column of a node.

    `dtype`: in a DataFrame. `value`: from an iteration and the node's number; None for the field of
    `NodeRecord` with the column's name. `head`: in the page's table, which does not show a column
    without one. `format`: of its values there, such as ".3f", "percent", or "label" for a token
    (`formatted` in `views/page/words.js`). `needs`: the column is empty if this is in
    `Step.missing`.
    """

    name: str
    dtype: Literal["int64", "float64", "str", "bool", "boolean"]
    meaning: str
    value: Callable[[Step, int], Value] | None = None
    head: str = ""
    format: str = ""
    needs: str = ""

    def of(self, step: Step, node: int) -> Any:
        """The value of a node of an iteration; None if it is not recorded."""
        if self.needs in step.missing:
            return None
        if self.value:
            return self.value(step, node)
        return getattr(step.nodes[node], self.name)


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


def _text(step: Step, node: int) -> str:
    return step.texts.get(step.nodes[node].token, "")


def _depth(step: Step, node: int) -> int:
    depth = int(step.tree.depth[node])
    return depth + 1 if 0 in step.drafted else depth


def _rank(step: Step, node: int) -> int:
    parent = int(step.tree.parent[node])
    return step.tree.children[parent].index(node) + 1 if parent >= 0 else 1


def _parent(step: Step, node: int) -> NodeRecord | None:
    parent = int(step.tree.parent[node])
    return step.nodes[parent] if parent >= 0 else None


def _entropy(step: Step, node: int) -> float | None:
    parent = _parent(step, node)
    return parent.entropy if parent else None


def _parent_accepted(step: Step, node: int) -> bool:
    return step.tree.parent[node] in {-1, *step.path}  # -1: above a drafted root


def _right(step: Step, node: int) -> bool | None:
    parent = _parent(step, node)
    choice = parent.target_choice if parent else step.root_choice
    if choice in (None, UNKNOWN) or "draws" in step.rule:
        return None
    return step.nodes[node].token == choice


def _tried(step: Step, node: int) -> bool:
    # without a bonus the text ended at the last accepted node, so nothing below it was judged
    ended = step.bonus is None and step.tree.parent[node] == max(step.path, default=-1)
    return step.nodes[node].verdict != "not reached" and not ended


def _beyond_draft(step: Step, node: int) -> bool:
    parent = _parent(step, node)
    return parent is not None and parent.beyond_draft


COLUMNS = (
    Column("iteration", "int64", "`Step.index`", lambda step, node: step.index),
    Column("node", "int64", "number in the draft tree", lambda step, node: node, "node"),
    Column("token", "int64", "its token's id", head="token", format="label"),
    Column("text", "str", "its token's text", _text),
    Column("kind", "str", "`token_kind`", lambda step, node: token_kind(_text(step, node))),
    Column("depth", "int64", "drafted tokens on its path, itself included", _depth, "depth"),
    Column("rank", "int64", "place among its siblings, from 1", _rank),
    Column(
        "parent",
        "int64",
        "its parent's number, -1 for a root",
        lambda step, node: int(step.tree.parent[node]),
        "parent",
    ),
    Column(
        "source", "str", "what proposed it", lambda step, node: step.tree.source[node], "source"
    ),
    Column(
        "draft_prob",
        "float64",
        "stated probability at its parent",
        head="draft p",
        format=".3f",
        needs="log_prob",
    ),
    Column(
        "path_prob",
        "float64",
        "product of the stated probabilities along its path",
        head="path p",
        format=".3f",
        needs="log_prob",
    ),
    Column(
        "target_prob",
        "float64",
        "probability of the token in the distribution that the target decided by at its parent",
        head="target p",
        format=".3f",
    ),
    Column(
        "target_choice",
        "int64",
        f"the target's choice after the node, {UNKNOWN} if it is not recorded",
        head="target's choice",
        format="label",
    ),
    Column(
        "entropy",
        "float64",
        "of the distribution that the target decided by at its parent, in nats",
        _entropy,
        needs="entropy",
    ),
    Column(
        "parent_accepted",
        "bool",
        "the parent is the root or lies on the accepted path",
        _parent_accepted,
    ),
    Column(
        "right",
        "boolean",
        "the token is the target's choice after its parent, wherever that is; missing where it is "
        "not recorded",
        _right,
    ),
    Column(
        "tried",
        "bool",
        "the acceptance rule came to the node; a rate of acceptance is a mean of `accepted` over "
        "these rows",
        _tried,
    ),
    Column(
        "accepted",
        "bool",
        "the node is on the committed path",
        lambda step, node: node in step.accepted,
    ),
    Column(
        "beyond_draft",
        "bool",
        "the draft's vocabulary lacks the target's choice after its parent: no child can be right",
        _beyond_draft,
    ),
    Column("verdict", "str", "the outcome", head="verdict"),
    Column("rule", "str", "the rule of acceptance in words", lambda step, node: step.rule),
)


def computed(step: Step) -> dict[str, list[Value]]:
    """The page's columns of all nodes that are not just fields of the records."""
    columns = {}
    for column in COLUMNS:
        if column.head and (column.value or column.needs in step.missing):
            columns[column.name] = [column.of(step, node) for node in range(len(step.tree))]
    return columns
