"""Faults and detectors: each fault is found by its own detector and by no other, and a healthy run has no findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.command import speclab_command
from support.pairs import PROMPT, headed_pair, pair_of
from support.records import ran
from support.refusals import refused
from support.tiny import tiny
from support.variants import VARIANTS

import speclab
from speclab import clinic

pytestmark = pytest.mark.model

STRATEGIES = [
    speclab.LinearSpeculation(draft_tokens=4),
    speclab.DynaTree(),
    speclab.FixedTree(depth=3, branching=2),
    speclab.PromptLookup(draft_tokens=4),
]
WINDOWED = "window run as full attention"


def found(session: speclab.Session) -> set[str]:
    return {finding.fault or finding.kind for finding in clinic.check(session)}


def decoded(pair, strategy=STRATEGIES[2], prompt=PROMPT, **more) -> speclab.Session:
    return ran(pair, strategy, prompt, **({"max_new_tokens": 12} | more))


@pytest.mark.parametrize("injected", ["healthy", *clinic.FAULTS])
def test_each_fault_is_found_by_its_own_detector_and_by_no_other(injected):
    pair = pair_of("mistral")
    models = pair if injected == "healthy" else clinic.broken(pair, injected)
    runs = [decoded(models, strategy, max_new_tokens=10) for strategy in STRATEGIES]
    named = {
        finding.fault or "other"
        for run in runs
        for finding in clinic.check(run)
        if finding.kind != clinic.TIE
    }
    assert named == {injected} - {"healthy"}


@pytest.mark.wide
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.8, "seed": 3}], ids=["greedy", "sampled"]
)
def test_a_healthy_run_of_any_strategy_has_no_findings(name, sampling):
    session = decoded(
        pair_of("llama"), VARIANTS[name], [token % 64 for token in PROMPT], **sampling
    )
    assert clinic.check(session) == ()
    assert clinic.check(session.trace) == ()


def test_sampled_sessions_and_draft_heads_are_checked_as_well():
    drawn = {"temperature": 0.8, "seed": 3}
    for fault in (
        "sibling visible",
        "wrong positions",
        "unverified first token",
        "padded positions",
    ):
        assert found(decoded(clinic.broken(pair_of("llama"), fault), **drawn)) == {fault}
    pair = headed_pair("llama")
    head = speclab.DraftHead(node_budget=6, depth=2, head=0)
    prompt = [token % pair.vocab_size for token in PROMPT]
    hooks = [len(part._forward_hooks) for part in pair.target.model.modules()]
    assert found(decoded(pair, head, prompt)) == set()
    assert [len(part._forward_hooks) for part in pair.target.model.modules()] == hooks


def test_answers_of_other_models_are_found_with_the_pair():
    trace = decoded(pair_of("llama")).trace
    assert clinic.check(trace, pair_of("llama")) == ()
    finding = clinic.check(trace, pair_of("gpt2"))[0]
    assert (finding.iteration, finding.kind, finding.fault) == (0, "answer", "")
    assert "iteration 1, answer" in str(finding)


def exact_models():
    """Models whose passes are bit for bit on this machine."""
    for dtype in (torch.float16, torch.bfloat16):
        models = {"target": tiny("llama", 3).to(dtype), "draft": tiny("llama", 4).to(dtype)}
        try:
            speclab.load_pair(**models, exact="bits")
        except speclab.SettingsError:
            continue
        return models
    pytest.skip("no precision is bit for bit on this machine")


def test_where_passes_are_bit_for_bit_a_near_tie_is_a_fault():
    models = exact_models()
    exact = speclab.load_pair(**models, exact="bits")
    for drawn in ({}, {"temperature": 0.8, "seed": 3}):
        session = decoded(exact, max_new_tokens=24, **drawn)
        assert clinic.report(session).gaps.gap.max() < 1e-6
        assert clinic.check(session) == ()
        drafted = decoded(exact, speclab.DynaTree(root="drafted"), **drawn)
        assert clinic.check(drafted) == ()
    # a row off the path, as if its second best token were its best
    trace = decoded(exact, max_new_tokens=24).trace
    near = {}
    for step in trace.steps:
        for node in step.nodes:
            (_, first), (_, second), *_ = node.target_top
            if node.verdict == "not reached" and second < first:
                near[first / second] = step, node
    step, node = near[min(near)]
    top = node.target_top[1:]
    nodes = list(step.nodes)
    nodes[node.index] = replace(node, target_top=top, target_choice=top[0][0])
    steps = list(trace.steps)
    steps[step.index] = replace(step, nodes=tuple(nodes))
    other = replace(trace, steps=tuple(steps))
    found = clinic.check(other, exact)
    assert [(one.iteration, one.node, one.kind) for one in found] == [
        (step.index, node.index, "choice")
    ]
    rounded = speclab.load_pair(**models, exact="rounding")
    assert {one.kind for one in clinic.check(other, rounded)} <= {clinic.TIE}


@pytest.mark.parametrize("root", ["verified", "drafted"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_link_is_checked_as_far_as_it_goes(root, temperature, tmp_path):
    pair = pair_of("llama")
    trace = decoded(pair, speclab.DynaTree(root=root), temperature=temperature).trace
    for link in (trace.link(), trace.link(first=2, last=3), trace.steps[2].link()):
        run = speclab.open_link(link)
        file = run.save(tmp_path / "run.json.gz")
        for opened in (run, speclab.load_trace(file)):
            report = clinic.report(opened, pair)
            assert clinic.check(opened) == report.findings == ()
            assert len(report.notes) == 1
        with refused(speclab.SettingsError, "trace.save"):
            clinic.diff(run, trace, pair)
    done = speclab_command("clinic", file)
    assert done.exit_code == 0, done.output


def test_what_a_link_carries_is_checked():
    session = decoded(clinic.broken(pair_of("llama"), "sibling visible"))
    run = speclab.open_link(session.trace.link(first=1, last=2))
    assert {finding.kind for finding in clinic.check(run)} == {"mask"}


def test_the_page_names_every_fault():
    page = (Path(speclab.__file__).parents[1] / "docs" / "clinic.md").read_text(encoding="utf-8")
    assert all(f"| {fault} |" in page for fault in clinic.FAULTS)


def test_what_cannot_be_is_refused(tmp_path):
    pair = pair_of("llama")
    session = decoded(pair, max_new_tokens=6)
    file = tmp_path / "run.jsonl"
    undone = speclab.Session(pair, STRATEGIES[0], PROMPT, max_new_tokens=4)
    calls = [
        (lambda: clinic.broken(pair, "gremlins"), "sibling visible"),
        (lambda: clinic.broken(pair, WINDOWED), "sliding window"),
        (lambda: clinic.broken(replace(pair, draft=None), "skipped norm in the draft"), "draft"),
        (lambda: clinic.broken("mini", WINDOWED), "load_pair"),
        (lambda: clinic.check(undone), "No iteration"),
        (lambda: clinic.check(session.trace, "mini"), "load_pair"),
        (lambda: clinic.diff(session, session.steps[0]), "load_trace"),
        (lambda: clinic.check(file), "load_trace"),
        (lambda: speclab.load_steps(file, "mini"), "load_pair"),
        (lambda: clinic.check(session, close=float("nan")), "nan"),
        (lambda: clinic.assert_lossless(file, ""), "target"),
    ]
    for call, words in calls:
        with refused(speclab.SettingsError, words):
            call()
