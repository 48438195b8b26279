"""Recorded iterations for pictures: of every strategy, by hand, with texts that would be markup."""

from dataclasses import replace
from functools import cache
from math import log
from xml.etree import ElementTree

from support.every_strategy import ALONE, DRAFTED, PROMPT, pair_of
from support.records import ran

import speclab
from speclab.tree import DraftTree

WORDS = [
    " the",
    " old",
    " woman",
    " said",
    " to",
    " her",
    ",",
    " and",
    " miller",
    " forest",
    " a",
    "\n",
]
ODD = (
    "<script>alert(1)</script>", "</svg>", "<b>", "<s>", "$x^2$", "&amp;", '"', "'", "\n", "\t", "    ",
    " 日本", "é", "\u0301", "\u200b", "\u202e", "🙂", "<0xE2>", "", "]]>", "%{x}", "\x00", "مرحبا",
)  # fmt: skip
TEXTS = dict(enumerate(WORDS))
HOSTILE = [{token: ODD[(token + shift) % len(ODD)] for token in range(12)} for shift in (0, 11)]
"""Two tables, so that each odd text is the text of a token."""


def with_texts(run, texts):
    steps = tuple([replace(step, texts=texts) for step in run.steps])
    return replace(run, steps=steps, texts=texts)


def decoded(strategy, tokens=9, temperature=0.0):
    settings = {"max_new_tokens": tokens, "temperature": temperature}
    session = ran(pair_of(), strategy, PROMPT, **settings)
    return with_texts(session.trace, TEXTS)


@cache
def runs():
    """A greedy and a sampled run of every strategy."""
    samples = speclab.FixedTree(depth=2, branching=2, candidates="independent")
    strategies = [*ALONE.items(), *DRAFTED.items(), ("samples", samples)]
    greedy = {name: decoded(strategy) for name, strategy in strategies}
    return greedy | {f"{name}, drawn": decoded(one, temperature=0.8) for name, one in strategies}


@cache
def recorded():
    return tuple([step for run in runs().values() for step in run.steps])


@cache
def trace():
    """A long run with trees of many sizes."""
    return decoded(speclab.DynaTree(base_depth=3, history="iteration", node_budget=24), 40)


def large():
    """A tree of 121 nodes."""
    return decoded(speclab.FixedTree(depth=4, branching=3)).steps[0]


@cache
def five_nodes():
    """The tree of the first lesson, by hand: two children, the first with two children; 1 and 3 are accepted."""
    root, first, second = decoded(speclab.Autoregressive()).token_ids[:3]
    probs = [0.0, log(0.6), log(0.3), log(0.7), log(0.2)]
    tree = DraftTree.of([root, first, 0, second, 1], [-1, 0, 0, 1, 1], probs, "draft")
    step = speclab.Session(pair_of(), speclab.ByHand(), PROMPT).verify(tree)
    return replace(step, texts=TEXTS)


def parse(markup):
    """The root of a view; a token that broke out of its text would show as an element, a handler or an address."""
    root = ElementTree.fromstring(f"<div>{markup}</div>")
    for element in root.iter():
        assert element.tag not in {"script", "iframe"}, element.tag
        assert not [key for key in element.attrib if key.startswith("on") or key.endswith("href")]
    return root
