"""Proposals of heads and draft models: healthy ones have no finding, wrong ones have one that says why."""

from __future__ import annotations

import pytest
import torch
from support.heads import random_head
from support.pairs import block_pair, headed_pair, pair_of, target_of

import speclab
from speclab import clinic
from speclab.heads.runner import HeadRunner
from speclab.recorder import Recorder, topk
from speclab.views import run_data
from speclab.views.drawing import call

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


def recorded(pair, session, path):
    """The session as another decoder would record it."""
    with Recorder(path, session.trace.prompt_ids) as recorder:
        for step in session.steps:
            recorder.step(
                prefix_length=step.prefix_length,
                token=step.tree.token,
                parent=step.tree.parent,
                accepted=step.accepted,
                committed=step.committed,
                log_prob=step.tree.log_prob,
            )
    return speclab.load_steps(path, pair)


def late(self, tokens, states, topk=0):
    """`HeadRunner.extend` with the states of the position before."""
    self.read = getattr(self, "read", {})
    for index, row in enumerate(states):
        self.read[self.length + index] = row
    rows = [self.read[max(self.length + index - 1, 0)] for index in range(len(states))]
    return EXTEND(self, tokens, torch.stack(rows), topk)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_a_head_that_reads_the_right_states_has_no_finding(strategy, tmp_path):
    pair = headed_pair("qwen3")
    session = decoded(pair, strategy)
    assert clinic.check(session) == ()
    if getattr(strategy, "root", "verified") == "verified":
        assert clinic.check(recorded(pair, session, tmp_path / "run"), pair) == ()


def test_a_draft_model_of_another_decoder_is_checked(tmp_path):
    pair = pair_of("llama")
    strategy = speclab.FixedTree(depth=3, branching=2)
    assert clinic.check(recorded(pair, decoded(pair, strategy), tmp_path / "run"), pair) == ()
    fault = "skipped norm in the draft"
    session = decoded(clinic.broken(pair, fault), strategy)
    report = clinic.report(recorded(pair, session, tmp_path / "run"), pair)
    assert [finding.fault for finding in report.findings] == [fault]
    assert report.cause == report.findings[0]
    assert report.exit_status == 3


@torch.inference_mode()
def chains(path, change, drafter="draft"):
    """Chains of two greedy tokens, recorded with what a change makes of the drafter's logits, and the ids
    that it makes of ids."""
    pair = pair_of("llama")
    text = [*TEXT, 3]
    with Recorder(path, TEXT) as recorder:
        for _ in range(8):
            token, log_prob, top = [text[-1]], [0.0], []
            for _ in range(2):
                ids = torch.tensor([[*text[:-1], *token]])
                logits, ids = change(getattr(pair, drafter).model(ids).logits[:, -1])
                rows = [[(ids[each], value) for each, value in topk(logits, 8)[0] if value > -50]]
                token.append(rows[0][0][0])
                log_prob.append(rows[0][0][1])
                top += rows
            logits = pair.target.model(torch.tensor([[*text[:-1], *token]])).logits[0, -3:]
            best = logits.argmax(-1).tolist()
            hits = [token[1] == best[0], token[1:] == best[:2]].count(True)
            committed = [*token[1 : hits + 1], best[hits]]
            recorder.step(prefix_length=len(text) - 1, token=token, parent=[-1, 0, 1],
                          accepted=range(1, hits + 1), committed=committed, log_prob=log_prob,
                          choice=[*best[:2], None], topk=[*topk(logits)[:2], None],
                          draft_topk=[*top, None])  # fmt: skip
            text += committed
    return speclab.load_steps(path, pair), pair


def fewer(logits):
    return logits.index_fill(-1, torch.arange(0, 64, 3), -torch.inf), range(64)


def mixed_up(logits):
    return logits, [*range(32), *range(33, 64), 32]


@pytest.mark.parametrize(
    ("change", "drafter", "kinds", "notes"),
    [
        (fewer, "draft", [], 0),
        (lambda logits: (logits / 0.64, range(64)), "draft", [], 1),
        (lambda logits: (logits, range(64)), "target", [], 1),
        (mixed_up, "draft", ["draft"], 0),
    ],
    ids=["fewer tokens", "own temperature", "the target itself", "ids mixed up"],
)
def test_a_draft_may_differ_in_its_settings_and_not_in_its_ids(
    change, drafter, kinds, notes, tmp_path
):
    report = clinic.report(*chains(tmp_path / "run", change, drafter))
    assert [finding.kind for finding in report.findings] == kinds
    assert len(report.notes) == notes
    for finding in report.findings:
        assert "(ids)" in finding.sentence
    assert clinic.control(report.trace).passed == (drafter == "target")


def test_a_draft_that_has_no_token_for_the_target_s_choices_is_said(tmp_path):
    target = target_of("llama")
    text = speclab.generate(
        speclab.load_pair(target=target), speclab.Autoregressive(), TEXT, max_new_tokens=20
    ).token_ids
    lacking = sorted({*range(64)} - {*text})[:8]
    strategy = speclab.FixedTree(depth=2, branching=2, head=0)
    for ids, said in ((lacking, "8 of 64"), ([*lacking, text[1]], "9 of 64"), (None, None)):
        head = random_head(target, 1, "head", ids, own_output=True)
        pair = speclab.load_pair(target=target, heads=head)
        assert pair.describe().get("head_0_ids") == said
        session = decoded(pair, strategy)
        assert session.token_ids == text
        report = clinic.report(session)
        missed = [step for step in session.steps if not step.accepted]
        beyond = [step for step in missed if ids and step.nodes[0].target_choice not in ids]
        assert report.misses == (len(missed), len(beyond))
        assert (f"{len(beyond)} have a choice" in str(report)) == bool(beyond)
        assert (
            clinic.report(recorded(pair, session, tmp_path / "run"), pair).misses == report.misses
        )
        frame = speclab.nodes(session)
        misses = frame[(frame.depth == 1) & (frame["rank"] == 1) & frame.tried & ~frame.accepted]
        assert misses.beyond_draft.sum() == len(beyond)
        words = [call("nodeSentence", run_data.step_data(step), 1) for step in missed]
        assert len([one for one in words if "no token" in one]) == len(beyond)
        assert beyond == [] or ids is not None
    lookup = decoded(pair, speclab.PromptLookup())
    assert not any(step.nodes[0].beyond_draft for step in lookup.steps)


@pytest.mark.parametrize("markov_rank", [0, 4])
def test_a_block_head_has_no_finding(markov_rank):
    pair = block_pair("llama", markov_rank=markov_rank)
    session = speclab.Session(pair, speclab.DDTree(), [1, 2, 3], max_new_tokens=20)
    session.run()
    assert clinic.check(session) == ()


def test_a_head_that_reads_the_position_before_is_found_and_named(tmp_path, monkeypatch):
    pair = headed_pair("llama")
    with monkeypatch.context() as patch:
        patch.setattr(HeadRunner, "extend", late)
        session = decoded(pair, STRATEGIES[0])
    for run in (session, recorded(pair, session, tmp_path / "run")):
        found = clinic.check(run, pair)
        assert {finding.kind for finding in found} == {"draft"}
        assert "position before" in found[0].sentence


def test_proposals_of_another_drafter_are_no_finding(tmp_path):
    pair = headed_pair("llama")
    session = speclab.Session(pair, speclab.PromptLookup(), [*TEXT, *TEXT], max_new_tokens=20)
    session.run()
    assert clinic.check(session) == ()
