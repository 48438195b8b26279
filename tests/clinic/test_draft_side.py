"""Proposals of heads and draft models: healthy ones have no finding, wrong ones have one that says why."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from support.command import speclab_command
from support.heads import random_head
from support.pairs import block_pair, headed_pair, pair_of, target_of
from support.recordings import chains, kinds, recorded_session
from support.records import ran

import speclab
from speclab import clinic
from speclab.clinic._faults import TreePasses
from speclab.heads.runner import HeadRunner
from speclab.loading.presets import MINI, MINI_HEADS
from speclab.recorder import topk
from speclab.views import run_data
from speclab.views.drawing import call

pytestmark = pytest.mark.model
TEXT = [5, 9, 2, 14, 3, 7, 1, 12]
NO_NORM = "skipped norm in the draft"
TREE = speclab.FixedTree(depth=3, branching=2)
STRATEGIES = [
    speclab.FixedTree(depth=3, branching=2, head=0),
    speclab.LinearSpeculation(draft_tokens=4, head=1),
    speclab.DynaTree(head=1, root="drafted"),
]
EXTEND = HeadRunner.extend


def decoded(pair, strategy, prompt=TEXT):
    return ran(pair, strategy, prompt, max_new_tokens=20)


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
        assert clinic.check(recorded_session(session, tmp_path / "run"), pair) == ()


def test_a_draft_model_of_another_decoder_is_checked(tmp_path):
    pair = pair_of("llama")
    assert clinic.check(recorded_session(decoded(pair, TREE), tmp_path / "run"), pair) == ()
    session = decoded(clinic.broken(pair, NO_NORM), TREE)
    report = clinic.report(recorded_session(session, tmp_path / "run"), pair)
    assert [finding.fault for finding in report.findings] == [NO_NORM]
    assert report.cause == report.findings[0]
    assert report.exit_status == 3


def test_the_command_takes_a_draft_and_heads(tmp_path, monkeypatch):
    pair = speclab.load_pair()
    draft, head = tmp_path / "draft.jsonl", tmp_path / "head.jsonl"
    recorded_session(decoded(clinic.broken(pair, NO_NORM), TREE), draft)
    with monkeypatch.context() as patch:
        patch.setattr(HeadRunner, "extend", late)
        recorded_session(decoded(pair, STRATEGIES[0]), head)
    target = MINI / "target"
    for path, models, status in (
        (draft, ["--target", "mini", "--draft", MINI / "draft"], 3),
        (head, ["--target", target, "--heads", MINI_HEADS / "prose"], 3),
        (head, ["--target", target], 0),
    ):
        done = speclab_command("clinic", path, *models)
        assert done.exit_code == status, done.output


def greedy(change, width=8):
    """What is proposed of a drafter's logits, after a change of them and of the ids."""

    def propose(logits):
        logits, ids = change(logits)
        rows = [(ids[each], value) for each, value in topk(logits[None], width)[0] if value > -50]
        return *rows[0], rows

    return propose


def matched(token, logits):
    """Greedy verification."""
    best = logits.argmax(-1).tolist()
    accepted = [token[1] == best[0], token[1:] == best[:2]].count(True)
    return accepted, best[accepted]


def fewer(logits):
    return logits.index_fill(-1, torch.arange(0, 64, 3), -torch.inf), range(64)


CHANGES = {
    "fewer tokens": (fewer, "draft", [], 0),
    "own temperature": (lambda logits: (logits / 0.64, range(64)), "draft", [], 1),
    "the target itself": (lambda logits: (logits, range(64)), "target", [], 1),
    "ids mixed up": (
        lambda logits: (logits, [*range(32), *range(33, 64), 32]),
        "draft",
        ["draft"],
        0,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_draft_may_differ_in_its_settings_and_not_in_its_ids(name, tmp_path):
    change, drafter, found, notes = CHANGES[name]
    model = getattr(pair_of("llama"), drafter).model
    report = clinic.report(*chains(tmp_path / "run", model, greedy(change), matched))
    assert [finding.kind for finding in report.findings] == found
    assert len(report.notes) == notes
    for finding in report.findings:
        assert "(ids)" in finding.sentence
    assert clinic.control(report.trace).passed == (drafter == "target")


@pytest.mark.parametrize("width", [2, 3])
def test_two_values_a_row_name_no_temperature(width, tmp_path):
    change, *_ = CHANGES["own temperature"]
    model = pair_of("llama").draft.model
    report = clinic.report(*chains(tmp_path / "run", model, greedy(change, width), matched))
    assert report.findings == ()
    assert [note for note in report.notes if "0.64" in note] == list(report.notes)[: width - 2]


def test_a_draft_that_has_no_token_for_the_target_s_choices_is_said(tmp_path):
    target = target_of("llama")
    alone = speclab.load_pair(target=target)
    text = decoded(alone, speclab.Autoregressive()).token_ids
    lacking = sorted({*range(64)} - {*text})[:8]
    for ids, said in ((lacking, "8 of 64"), ([*lacking, text[1]], "9 of 64"), (None, None)):
        head = random_head(target, 1, "head", ids, own_output=True)
        pair = speclab.load_pair(target=target, heads=head)
        assert pair.describe().get("head_0_ids") == said
        session = decoded(pair, STRATEGIES[0])
        assert session.token_ids == text
        report = clinic.report(session)
        missed = [step for step in session.steps if not step.accepted]
        beyond = [step for step in missed if ids and step.nodes[0].target_choice not in ids]
        assert report.misses == (len(missed), len(beyond))
        assert (f"In {len(beyond)} of" in str(report)) == bool(beyond)
        trace = recorded_session(session, tmp_path / "run")
        assert clinic.report(trace, pair).misses == report.misses
        frame = speclab.nodes(session)
        misses = frame[(frame.depth == 1) & (frame["rank"] == 1) & frame.tried & ~frame.accepted]
        assert misses.beyond_draft.sum() == len(beyond)
        words = [call("nodeSentence", run_data.step_data(step), 1) for step in missed]
        assert len([one for one in words if "no token" in one]) == len(beyond)
    lookup = decoded(pair, speclab.PromptLookup())
    assert not any(step.nodes[0].beyond_draft for step in lookup.steps)


@pytest.mark.parametrize("markov_rank", [0, 4])
def test_a_block_head_has_no_finding(markov_rank):
    pair = block_pair("llama", markov_rank=markov_rank)
    assert clinic.check(decoded(pair, speclab.DDTree(), [1, 2, 3])) == ()


def test_a_head_that_reads_the_position_before_is_found_and_named(tmp_path, monkeypatch):
    pair = headed_pair("llama")
    with monkeypatch.context() as patch:
        patch.setattr(HeadRunner, "extend", late)
        session = decoded(pair, STRATEGIES[0])
    for run in (session, recorded_session(session, tmp_path / "run")):
        assert kinds(run, pair) == {"draft"}
        assert "position before" in clinic.explain(run, pair).sentence


def lagging(model):
    """Has not read the newest token of the text, and counts positions without it."""
    calls = count()

    def drafter(ids):
        drafted = next(calls) % 2
        place = len(ids[0]) - 1 - drafted
        return model(torch.cat([ids[:, :place], ids[:, place + 1 :]], 1))

    return drafter


def littered(model):
    """Keeps the first guess of each chain in its cache, and reads the text behind it."""
    calls = count()
    litter = {}

    def drafter(ids):
        tokens = ids[0].tolist()
        places = list(range(len(tokens)))
        for place in sorted(litter, reverse=True):
            tokens.insert(place + 1, litter[place])
            places.insert(place + 1, place + 1)
        if next(calls) % 2:
            litter[len(ids[0]) - 2] = int(ids[0, -1])
        return model(torch.tensor([tokens]), position_ids=torch.tensor([places]))

    return drafter


def changing(model):
    """Is another model from the third pass on."""
    calls = count()
    other = target_of("gpt2")
    return lambda ids: (model if next(calls) < 4 else other)(ids)


@pytest.mark.parametrize(
    ("wrong", "first"), [(lagging, 0), (littered, 1), (changing, 2)], ids=["late", "stale", "other"]
)
def test_a_draft_that_reads_wrongly_is_a_finding(wrong, first, tmp_path):
    drafter = wrong(pair_of("llama").draft.model)
    report = clinic.report(
        *chains(tmp_path / "run", drafter, greedy(lambda x: (x, range(64))), matched)
    )
    assert [(one.kind, one.iteration) for one in report.findings] == [("draft", first)]
    assert report.notes == ()
    named = "No change" not in report.cause.sentence
    assert named == (wrong is not changing)


class Unmasked(TreePasses):
    """Rows see all rows of their own and of lower depth."""

    def given(self, positions, visible):
        return positions, np.ones_like(visible)


def test_a_target_that_drafts_wrongly_for_itself_is_a_finding(tmp_path):
    propose = greedy(lambda logits: (logits, range(64)))
    drafter = littered(pair_of("llama").target.model)
    report = clinic.report(*chains(tmp_path / "run", drafter, propose, matched))
    assert [(one.kind, one.iteration) for one in report.findings] == [("draft", 1)]


def test_a_draft_without_a_mask_is_a_finding(tmp_path):
    pair = pair_of("llama")
    draft = pair.draft.beside(pair.draft.model, Unmasked)
    session = decoded(replace(pair, draft=draft), TREE)
    assert kinds(recorded_session(session, tmp_path / "run"), pair) == {"draft"}


def test_proposals_of_another_drafter_are_no_finding():
    session = decoded(headed_pair("llama"), speclab.PromptLookup(), TEXT + TEXT)
    assert clinic.check(session) == ()
