"""Faults and detectors: each fault is found by its own detector and by no other, and a healthy run has no findings."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from support.pairs import PROMPT, headed_pair, pair_of
from support.refusals import refused
from support.variants import VARIANTS

import speclab
from speclab import clinic
from speclab.trace.records import TIE, Trace

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
    session = speclab.Session(pair, strategy, prompt, **({"max_new_tokens": 12} | more))
    session.run()
    return session


def matrix(pair, prompts, strategies=STRATEGIES, **settings) -> pd.DataFrame:
    """A row per injected fault, "healthy" first: in how many of the `runs` each fault was found, or anything else."""
    rows = {}
    for injected in ("healthy", *clinic.FAULTS):
        rows[injected] = dict.fromkeys((*clinic.FAULTS, "other", "runs"), 0)
        if injected != "healthy" and clinic.FAULTS[injected].lacks(pair):
            continue
        models = pair if injected == "healthy" else clinic.broken(pair, injected)
        for strategy, prompt in product(strategies, prompts):
            session = decoded(models, strategy, prompt, **settings)
            rows[injected]["runs"] += 1
            for fault in {
                finding.fault or "other" for finding in clinic.check(session) if finding.kind != TIE
            }:
                rows[injected][fault] += 1
    return pd.DataFrame.from_dict(rows, orient="index")


def test_each_fault_is_found_by_its_own_detector_and_by_no_other():
    table = matrix(pair_of("mistral"), [PROMPT], max_new_tokens=10)
    assert list(table.index) == ["healthy", *clinic.FAULTS]
    assert not table.loc["healthy"].drop("runs").any()
    for injected in clinic.FAULTS:
        row = table.loc[injected]
        assert row["runs"] == len(STRATEGIES)
        assert row[injected] > 0
        assert not row.drop([injected, "runs"]).any(), injected


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
    assert found(decoded(pair, head, prompt)) == set()
    assert found(decoded(clinic.broken(pair, "wrong positions"), head, prompt)) == {
        "wrong positions"
    }
    assert not any(part._forward_hooks for part in pair.target.model.modules())


def _node(step, index, **changes):
    nodes = [replace(node, **changes) if node.index == index else node for node in step.nodes]
    return replace(step, nodes=tuple(nodes))


def _changed(kind: str, trace: Trace) -> Trace:
    """The trace with one thing wrong in the iteration that accepted most."""
    index = max(range(len(trace.steps) - 1), key=lambda at: len(trace.steps[at].accepted))
    step = trace.steps[index]
    after = trace.steps[index + 1]
    last = step.accepted[-1]
    rejected = next(node.index for node in step.nodes if node.verdict == "rejected")
    mask = step.mask.copy()
    mask[last, 0] = False
    wrong = {
        "mask": lambda: replace(step, mask=mask),
        "prefix": lambda: replace(
            step, prefix_seen=(*step.prefix_seen[:-1], step.prefix_length - 1)
        ),
        "slot": lambda: _node(step, last, kv_slot=step.nodes[0].kv_slot),
        "path": lambda: replace(step, accepted=(*step.accepted[:-1], rejected)),
        "choice": lambda: _node(step, 0, target_choice=step.nodes[0].target_choice + 1),
        "commit": lambda: replace(step, committed=(*step.committed[:-1], step.committed[-1] + 1)),
        "text": lambda: replace(step, prefix_length=step.prefix_length + 1),
    }
    steps = list(trace.steps)
    if kind == "order":
        tokens = after.tree.token.copy()
        siblings = next(children for children in after.tree.children if len(children) > 1)
        tokens[siblings[1]] = tokens[siblings[0]]
        steps[index + 1] = replace(after, tree=replace(after.tree, token=tokens))
    elif kind == "end":
        return replace(trace, settings={**trace.settings, "max_new_tokens": 4})
    else:
        steps[index] = wrong[kind]()
    return replace(trace, steps=tuple(steps))


@pytest.mark.parametrize(
    "kind", ["order", "mask", "prefix", "slot", "path", "choice", "commit", "text", "end"]
)
def test_a_record_alone_says_what_is_wrong(kind):
    trace = decoded(pair_of("llama"), max_new_tokens=24).trace
    findings = clinic.check(_changed(kind, trace))
    assert kind in {
        finding.kind for finding in findings if finding.iteration == findings[0].iteration
    }
    assert all(finding.sentence.endswith(".") for finding in findings)


def test_answers_of_other_models_are_found_with_the_pair():
    trace = decoded(pair_of("llama")).trace
    assert clinic.check(trace, pair_of("llama")) == ()
    finding = clinic.check(trace, pair_of("gpt2"))[0]
    assert (finding.iteration, finding.kind, finding.fault) == (0, "answer", "")
    assert "iteration 1, answer" in str(finding)


def test_the_page_names_every_fault():
    page = (Path(speclab.__file__).parents[1] / "docs" / "clinic.md").read_text(encoding="utf-8")
    assert all(f"| {fault} |" in page for fault in clinic.FAULTS)


def test_what_cannot_be_is_refused():
    pair = pair_of("llama")
    with pytest.raises(speclab.SettingsError, match="sibling visible"):
        clinic.broken(pair, "gremlins")
    with pytest.raises(speclab.SettingsError, match="sliding window"):
        clinic.broken(pair, WINDOWED)
    with pytest.raises(speclab.SettingsError, match="draft model"):
        clinic.broken(replace(pair, draft=None), "skipped norm in the draft")
    with pytest.raises(speclab.SettingsError, match="No iteration"):
        clinic.check(speclab.Session(pair, STRATEGIES[0], PROMPT, max_new_tokens=4))
    with pytest.raises(speclab.SettingsError, match="session or a trace"):
        clinic.check("run.json.gz")
    with refused(speclab.SettingsError, "'mini'", "load_pair"):
        clinic.broken("mini", "sibling visible")


def test_sessions_are_compared_as_traces_are_and_wrong_arguments_are_refused(tmp_path):
    session = speclab.Session(pair_of("llama"), STRATEGIES[0], PROMPT, max_new_tokens=6)
    session.run()
    assert clinic.diff(session, session).verdict == "same"
    assert clinic.check(session, close=1) == ()
    for run in ("run.json.gz", None, session.steps[0]):
        with refused(speclab.SettingsError, "session or a trace", "load_trace"):
            clinic.diff(session, run)
    with refused(speclab.SettingsError, "'mini'", "load_pair"):
        clinic.check(session.trace, "mini")
    with refused(speclab.SettingsError, "'mini'", "load_pair"):
        speclab.load_steps(tmp_path / "run.jsonl", "mini")
    for close in (-1, "a", float("nan")):
        with refused(speclab.SettingsError, "close", repr(close)):
            clinic.check(session, close=close)
    for target in (None, ""):
        with refused(speclab.SettingsError, "target", repr(target)):
            clinic.assert_lossless(tmp_path / "run.jsonl", target)
