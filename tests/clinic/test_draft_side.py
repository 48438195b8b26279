"""Draft heads' proposals: a healthy head has no finding, a head that reads wrong states has one that says so."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from support.pairs import block_pair, headed_pair

import speclab
from speclab import clinic
from speclab.heads.runner import HeadRunner
from speclab.recorder import Recorder

pytestmark = pytest.mark.model
TEXT = [5, 9, 2, 14, 3, 7, 1, 12]
STRATEGIES = [
    speclab.FixedTree(depth=3, branching=2, head=0),
    speclab.LinearSpeculation(draft_tokens=4, head=1),
    speclab.DynaTree(head=1, root="drafted"),
]


def decoded(pair, strategy, **more):
    session = speclab.Session(pair, strategy, TEXT, max_new_tokens=20, **more)
    session.run()
    return session


EXTEND = HeadRunner.extend


@torch.inference_mode()
def recorded(pair, session, path, late=0, layers=(-1,), **header):
    """The session as another decoder would record it, with the states of `late` positions before."""
    text = [*session.trace.prompt_ids, *session.trace.token_ids]
    own = copy.deepcopy(pair.target.model)  # hooks of the library stay on a model
    states = own(torch.tensor([text]), output_hidden_states=True).hidden_states
    with Recorder(path, session.trace.prompt_ids, **header) as recorder:
        for step in session.steps:
            given = [states[layer][0, step.prefix_length - 1 - late] for layer in layers]
            recorder.step(
                prefix_length=step.prefix_length,
                token=step.tree.token,
                parent=step.tree.parent,
                accepted=step.accepted,
                committed=step.committed,
                log_prob=step.tree.log_prob,
                hidden=torch.cat(given)[:12],
            )
    return speclab.load_steps(path, pair)


def late(self, tokens, states, topk=0):
    """`HeadRunner.extend` with the states of the position before."""
    self.read = getattr(self, "read", {})
    for index, row in enumerate(states):
        self.read[self.length + index] = row
    rows = [self.read[max(self.length + index - 1, 0)] for index in range(len(states))]
    return EXTEND(self, tokens, torch.stack(rows), topk)


def proposals(findings):
    return [finding for finding in findings if finding.kind != clinic.TIE]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_a_head_that_reads_the_right_states_has_no_finding(strategy, tmp_path):
    pair = headed_pair("qwen3")
    session = decoded(pair, strategy)
    assert clinic.check(session) == ()
    if getattr(strategy, "root", "verified") == "verified":
        layers = pair.heads[strategy.head].layers
        assert clinic.check(recorded(pair, session, tmp_path / "run", layers=layers), pair) == ()


@pytest.mark.parametrize("condition", ["none", "parent"])
def test_a_block_head_has_no_finding(condition, tmp_path):
    pair = block_pair("llama", markov_rank=4 if condition == "parent" else 0)
    strategy = speclab.DDTree(condition=condition)
    session = speclab.Session(pair, strategy, [1, 2, 3], max_new_tokens=20)
    session.run()
    assert clinic.check(session) == ()


def test_a_head_that_reads_the_position_before_is_found_and_named(tmp_path, monkeypatch):
    pair = headed_pair("llama")
    layers = pair.heads[0].layers
    with monkeypatch.context() as patch:
        patch.setattr(HeadRunner, "extend", late)
        session = decoded(pair, STRATEGIES[0])
    write = partial(recorded, pair, session, tmp_path / "run", layers=layers)
    found = clinic.check(session)
    assert {finding.kind for finding in found} == {"draft"}
    assert "position before" in found[0].sentence
    wrong = clinic.check(write(late=1), pair)
    assert {finding.kind for finding in wrong} == {"draft"}
    place = session.steps[wrong[0].iteration].prefix_length - 2
    assert f" {place}" in wrong[0].sentence, "the states themselves tell it, by their position"
    right = clinic.check(write(), pair)
    assert {finding.kind for finding in right} == {"draft"}
    assert right[0].sentence != wrong[0].sentence


def test_proposals_of_another_drafter_are_no_finding(tmp_path):
    pair = headed_pair("llama")
    session = speclab.Session(pair, speclab.PromptLookup(), [*TEXT, *TEXT], max_new_tokens=20)
    session.run()
    assert clinic.check(session) == ()
