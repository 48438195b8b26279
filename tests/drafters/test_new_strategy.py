"""A strategy that a notebook cell defines works everywhere, unregistered; a cell that is run again replaces it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.records import ran
from support.refusals import refused
from support.table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab import Draft, Drafter, DraftTree
from speclab.drafters import from_str, in_force
from speclab.drafters.base import DEFINED, ExtraRows
from speclab.features.whatif import what_if
from speclab.lab import Lab
from speclab.trace.records import Event
from speclab.tree import CandidateSampling

VOCAB = 12
DRAWN = CandidateSampling.INDEPENDENT
BLOCK = CandidateSampling.BLOCK
SEEN = np.eye(1, dtype=bool)
PROMPT = [1, 2, 3, 1, 2]
PROBS = random_probs(VOCAB, 3, low=0.5, high=2.5)
NEAR = mixed_probs(PROBS, random_probs(VOCAB, 4), 0.2)

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DOCUMENTED = re.search(r"## A new strategy\n.*?```python\n(.*?)```", CONTRIBUTING, re.DOTALL).group(
    1
)

CELL = """
from pydantic import Field

from speclab.drafters.grow import GrownStrategy, Shape
from speclab.drafters.base import Depth


class Funnel(GrownStrategy):
    widest: int = Field(3, ge=1, le=16, description="children of an unsure node")
    levels: Depth = Field(3, ge=1, le=16, description="levels below the root")

    def shape(self):
        branches = (1, 2, self.widest)
        return Shape(self.levels, 40, branches, high_confidence=0.9, low_confidence=0.5, names={"max_depth": "levels"})
"""


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """What a test defines is forgotten after it."""
    speclab.strategies()  # imports them all, into what is put back
    monkeypatch.setattr("speclab.drafters.DEFINED", dict(DEFINED))
    monkeypatch.setattr("speclab.drafters.base.DEFINED", speclab.drafters.DEFINED)


def run_cell(code: str, name: str) -> type[speclab.Strategy]:
    namespace = {"__name__": "__main__"}
    exec(compile(code, "<cell>", "exec", dont_inherit=True), namespace)  # as a kernel runs a cell
    return namespace[name]


def pair():
    return table_pair(PROBS, NEAR, VOCAB, context=60)


@pytest.mark.parametrize(
    ("code", "name"), [(DOCUMENTED, "Echo"), (CELL, "Funnel")], ids=["documented", "grown"]
)
def test_it_works_everywhere(code, name, tmp_path):
    kind = run_cell(code, name)
    strategy = kind()
    assert speclab.strategies()[name] is kind
    assert from_str(repr(strategy)) == strategy
    plain = speclab.generate(pair(), speclab.Autoregressive(), PROMPT, max_new_tokens=30)
    session = ran(pair(), strategy, PROMPT, max_new_tokens=30, check=True)
    twin = session.fork(at=2)
    twin.run()
    assert twin.token_ids == session.token_ids == plain.token_ids
    assert speclab.load_trace(session.trace.save(tmp_path / "run")) == session.trace
    step = session.steps[1]
    assert in_force(step) == strategy
    if name == "Funnel":
        other = kind(widest=2, levels=2)
        assert what_if(step, other).tree == session.fork(at=1, strategy=other).step().tree
    else:
        with pytest.raises(speclab.NotRecordedError, match=name):
            what_if(step, strategy)
    lab = Lab(pair(), strategy, prompt=PROMPT, max_new_tokens=10)
    assert lab.step().settings.keys() > kind.model_fields.keys()
    lab.close()


def test_a_cell_that_is_run_again_replaces_the_class_and_a_private_class_is_no_choice():
    first = run_cell(CELL, "Funnel")
    again = run_cell(CELL.replace("widest: int = Field(3", "widest: int = Field(5"), "Funnel")
    assert speclab.strategies()["Funnel"] is again is not first
    assert from_str("Funnel").widest == 5
    session = speclab.Session(pair(), first(), PROMPT, max_new_tokens=10)
    assert session.fork(strategy=again()).step().settings["widest"] == 5
    run_cell(CELL.replace("Funnel", "_Hidden"), "_Hidden")
    assert not {"_Hidden", "GrownStrategy", "Strategy"} & speclab.strategies().keys()


def test_a_setting_that_is_a_list_is_saved_as_text(tmp_path):
    kind = run_cell(
        DOCUMENTED.replace("length: int", "lengths: list[int] = [1, 2]\n    length: int"), "Echo"
    )
    session = speclab.Session(pair(), kind(lengths=[3, 4]), PROMPT, max_new_tokens=6)
    step = session.step()
    opened = speclab.load_trace(session.trace.save(tmp_path / "run"))
    assert opened.settings["lengths"] == opened.steps[0].settings["lengths"] == "[3, 4]"
    assert in_force(step) == in_force(opened.steps[0]) == from_str(repr(session.strategy))


def chain(context, tokens):
    count = len(tokens)
    return DraftTree.of([context.tokens[-1], *tokens], range(-1, count), [0.0] * (count + 1), "own")


def sampled(probs, context):
    tree = replace(chain(context, [1]), candidate_sampling=DRAWN)
    return Draft(tree, draft_probs={0: probs})


def beside(part, value, context):
    """A part of a draft beside its tree, which is one of samples if that matters."""
    tree = chain(context, [1])
    if part == "draft_probs":
        tree = replace(tree, candidate_sampling=DRAWN)
    return Draft(tree, **{part: value})


@pytest.mark.parametrize(
    ("propose", "words"),
    [
        (lambda context: None, ("Mine", "drafted None", "return Draft(tree)")),
        (lambda context: DraftTree.root(context.tokens[-1]), ("DraftTree", "return Draft(tree)")),
        (
            lambda context: Draft(DraftTree.root(context.tokens[-1] + 1)),
            ("Mine", "root", "newest token"),
        ),
        (
            lambda context: Draft(chain(context, [VOCAB])),
            ("Mine", str(VOCAB), "outside the vocabulary"),
        ),
        (lambda context: Draft(chain(context, [1] * 60)), ("60 deep", "context.max_depth")),
        (
            lambda context: Draft(replace(chain(context, [1]), candidate_sampling=DRAWN)),
            ("Mine", "node 0", "draft_probs[0]"),
        ),
        (
            lambda context: Draft(
                DraftTree.of([context.tokens[-1], 1, 2], [-1, 0, 0], [0.0] * 3, "own", BLOCK)
            ),
            ("Mine", "block", "chain"),
        ),
        *[
            (partial(sampled, probs), ("Mine", "draft_probs[0]"))
            for probs in (
                np.full(VOCAB, np.nan),
                np.eye(VOCAB)[2],
                np.full(VOCAB, 7.0),
                np.full(VOCAB - 1, 1 / (VOCAB - 1)),
                np.full(VOCAB, 1 / VOCAB) + np.eye(VOCAB)[3] - np.eye(VOCAB)[4],
                [1 / VOCAB] * VOCAB,
                None,
            )
        ],
        *[
            (partial(beside, name, value), ("Mine", name))
            for name, value in (
                ("extra", None),
                ("extra", ExtraRows([VOCAB], [1], SEEN)),
                ("extra", ExtraRows([1.5], [1], SEEN)),
                ("extra", ExtraRows([1], [99], SEEN)),
                ("extra", ExtraRows([1], [1, 2], SEEN)),
                ("extra", ExtraRows([1], [1], ~SEEN)),
                ("extra", ExtraRows([1, 2], [1, 2], SEEN)),
                ("extra", ExtraRows([1], [1], [[True]])),
                ("events", None),
                ("events", ["expand"]),
                ("events", [Event("stop", 2)]),
                ("topk", [((1, 0.0),)]),
                ("topk", {5: ((1, 0.0),)}),
                ("topk", {0: (1, 0.0)}),
                ("topk", {0: (("a", 0.0),)}),
                ("proposals", (1,)),
                ("proposals", None),
                ("draft_probs", [1]),
            )
        ],
        (
            # writes into the text that it is shown
            lambda context: context.tokens.append(5) or Draft(DraftTree.root(5)),
            ("Mine", "root", "newest token"),
        ),
    ],
)
def test_what_no_pass_can_verify_is_refused_in_one_sentence(propose, words):
    """A wrong root would make the text wrong, and the rest end in the depth of a model."""

    class Mine(speclab.Strategy):
        def drafter(self, pair):
            drafter = Drafter(self)
            drafter.draft = propose
            return drafter

    session = speclab.Session(pair(), Mine(), PROMPT, max_new_tokens=8, temperature=1)
    before = session.token_ids
    with refused(speclab.SettingsError, *words):
        session.step()
    assert (session.steps, session.token_ids) == ((), before)


def test_a_strategy_that_gives_no_drafter_is_refused():
    class Mine(speclab.Strategy):
        def drafter(self, pair):
            pass

    with refused(speclab.SettingsError, "Mine.drafter", "return a Drafter"):
        speclab.Session(pair(), Mine(), PROMPT)


def test_one_declaration_tells_what_a_strategy_needs():
    """Engine and custom_generate refuse it where there is nothing to draft with."""

    class Mine(speclab.Strategy):
        needs_draft = property(lambda self: True)

        def drafter(self, pair):
            return Drafter(self)

    with refused(speclab.NoDraftError, "Mine", "draft="):
        speclab.Session(table_pair(PROBS, None, VOCAB), Mine(), PROMPT)
    with refused(speclab.NoDraftError, "Mine", "draft="):
        speclab.custom_generate(Mine())
    assert not Mine().missing(pair().offer)
