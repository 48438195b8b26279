"""Sampled runs of another decoder: every committed token has the target's distribution, whatever the rule."""

from __future__ import annotations

import copy
import json
import re

import pytest
import torch
from support.outside_decoder import decode
from support.pairs import PROMPT, pair_of
from support.recordings import chains, kinds, written
from transformers.generation.candidate_generator import AssistedCandidateGenerator

import speclab
from speclab import clinic
from speclab.recorder import topk

pytestmark = pytest.mark.model
HOT = 1.6
"""The draft's temperature."""
CUT = {"temperature": 0.8, "top_k": 8}


def cut(logits, temperature=0.8, top_k=8):
    least = logits.topk(top_k).values[..., -1:]
    return logits.masked_fill(logits < least, -torch.inf).div(temperature).softmax(-1)


def sampled_chains(path, rule, fault=""):
    """Chains that a hotter copy of the target drew, verified by the rule."""
    random = torch.Generator().manual_seed(0)
    q = []

    def drawn(probs):
        return int(probs.multinomial(1, generator=random))

    def propose(logits):
        q.append(logits.div(HOT).softmax(-1))
        token = drawn(q[-1])
        return token, float(q[-1][token].log()), None

    def verify(token, logits):
        p = cut(logits, top_k=64 if fault == "no top-k" else 8)
        accepted, rest = accept(rule, fault, token, p, q[-2:], random)
        return accepted, drawn(rest)

    draft = pair_of("llama").draft.model
    return chains(path, draft, propose, verify, 150, rule=rule, draft_temperature=HOT, **CUT)


def accept(rule, fault, token, p, q, random):
    """How many are accepted, and what the pass's own token is drawn from."""
    ratio, reached, at = 1.0, 0, [1.0]
    for node in range(2):
        own = float(p[node][token[node + 1]] / (1 if fault == "no q" else q[node][token[node + 1]]))
        ratio = min(1.0, (ratio if rule == "block" else 1.0) * own)
        at.append(ratio)
        chance = ratio
        if rule == "block" and node == 0:
            mass = float((ratio * p[1] - q[1]).clamp_min(0).sum())
            chance = mass / (mass + 1 - ratio) if ratio < 1 else 1.0
        hit = float(torch.rand((), generator=random)) < (0.8 if fault == "coin" else chance)
        if hit and (rule == "block" or reached == node):
            reached = node + 1
    if reached == 2:
        return 2, p[2]
    rest = ((at[reached] if rule == "block" else 1.0) * p[reached] - q[reached]).clamp_min(0)
    return reached, rest.softmax(-1) if fault == "softmax" else rest


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_right_rule_has_no_finding(rule, tmp_path):
    assert clinic.check(*sampled_chains(tmp_path / "run.jsonl", rule)) == ()


@pytest.mark.wide
@pytest.mark.parametrize(
    ("fault", "cause"),
    [("softmax", ""), ("no top-k", ""), ("coin", ""), ("no q", "q were left out")],
)
def test_a_wrong_rule_is_seen_in_the_text(fault, cause, tmp_path):
    findings = clinic.check(*sampled_chains(tmp_path / "run.jsonl", "rejection", fault))
    assert {finding.kind for finding in findings} == {"choice"}
    assert any(cause in finding.sentence for finding in findings)


def assisted(path, seed=0, temperature=1.0, dtype=torch.float32, **more):
    """transformers' own assisted generation; `Claiming` returns what it did not draw from."""
    pair = pair_of("llama")
    model = copy.deepcopy(pair.target.model).to(dtype)
    draft = copy.deepcopy(pair.draft.model).to(dtype)
    torch.manual_seed(seed)
    ids = torch.tensor([PROMPT])
    asked = {"do_sample": True, "temperature": temperature, "top_k": 0, **more}
    asked["pad_token_id"] = 64  # none of the text: the library's draft does not see pads
    with speclab.record_generate(model, path):
        model.generate(ids, assistant_model=draft, max_new_tokens=150, **asked)
    return speclab.load_steps(path, pair), pair


def claiming(name):
    """A generator that draws as it should, and returns the draft's logits as they were before that."""

    def candidates(self, arguments):
        config = arguments["generation_config"]
        config.output_logits = True
        if name == "argmax":
            config = copy.deepcopy(config)
            config.do_sample = False
            arguments = {**arguments, "generation_config": config, "logits_processor": None}
        output = self.assistant_model.generate(**arguments, **self.assistant_kwargs)
        self.assistant_kwargs["past_key_values"] = output.past_key_values
        return output.sequences, torch.stack(output.logits, 1).float()

    return candidates


HEALTHY = [
    {},
    {"temperature": 0.6},
    {"top_k": 5},
    {"top_k": 9, "top_p": 0.9, "temperature": 1.3},
    {"min_p": 0.1},
]


@pytest.mark.wide
@pytest.mark.parametrize("cut", HEALTHY, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_proposals_that_are_drawn_from_what_is_claimed_have_no_finding(cut, dtype, tmp_path):
    path = tmp_path / "run.jsonl"
    trace, pair = assisted(path, dtype=dtype, **cut)
    assert all(step.nodes[0].draft_top for step in trace.steps if len(step.tree) > 1)
    report = clinic.report(trace, pair, tables=False)
    assert {finding.kind for finding in report.findings} <= {clinic.TIE}
    assert report.notes == (), "the proposals are those of the pair's draft"


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "cut", "said"),
    [
        ("raw", {"top_k": 5}, "top-k 5"),
        ("raw", {"temperature": 0.6, "top_k": 9}, "top-k 9"),
        ("raw", {"min_p": 0.3}, "min-p 0.3"),
        ("argmax", {}, "top-k 1"),
    ],
)
def test_proposals_that_were_not_drawn_from_what_is_claimed_are_named(
    name, cut, said, tmp_path, monkeypatch
):
    """So acceptance divides by a wrong probability, and the text is not the target's."""
    monkeypatch.setattr(AssistedCandidateGenerator, "_generate_candidates", claiming(name))
    path = tmp_path / "run.jsonl"
    trace, pair = assisted(path, **cut)
    for findings in (clinic.check(trace), clinic.check(trace, pair)):
        assert [finding.kind for finding in findings] == ["log_prob"]
        assert f"drawn at {said}" in findings[0].sentence or f", {said}," in findings[0].sentence
    with pytest.raises(AssertionError, match="log_prob"):
        clinic.assert_lossless(path, pair)


@pytest.mark.parametrize("factor", [0.5, 1.7])
def test_the_temperature_that_fits_the_proposals_is_named(factor, tmp_path):
    random = torch.Generator().manual_seed(0)

    def propose(logits):
        recorded = (2 * logits / 0.8).log_softmax(-1)
        token = int(torch.multinomial((recorded / factor).softmax(-1), 1, generator=random))
        return token, float(recorded[token]), topk(recorded[None], 16)[0]

    def verify(token, logits):
        return 2, int(torch.multinomial(logits[2].softmax(-1), 1, generator=random))

    model = pair_of("llama").draft.model
    header = {"rule": "rejection", "temperature": 0.8, "passes": 100}
    trace, _ = chains(tmp_path / "run.jsonl", model, propose, verify, **header)
    (finding,) = clinic.check(trace)
    assert finding.kind == "log_prob"
    named = re.search("drawn at ([0-9.]+) times", finding.sentence)
    assert float(named[1]) == pytest.approx(factor, rel=0.2)


@pytest.mark.parametrize("choice", [True, False])
def test_runs_that_sample_and_match(choice, tmp_path):
    path = tmp_path / "run.jsonl"
    pair = pair_of("llama")
    torch.manual_seed(0)
    asked = {"rule": "sample_and_match", "iterations": 60, "whole": False}
    decode(pair.target.model, PROMPT, path, temperature=1.2, **asked)
    header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    if not choice:
        for line in lines:
            line.pop("choice")
    for temperature, found in ((1.2, set()), (0.4, {"choice"})):
        written(path, *lines, **header | {"temperature": temperature})
        assert kinds(speclab.load_steps(path, pair), pair) == found
