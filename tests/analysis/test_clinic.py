"""Faults and detectors: each detector fires on its own fault and on no other, and none on a healthy session."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairs import PROMPT, library_text, pair_of

import speclab
from speclab import clinic
from speclab.models.runner import Runner

STRATEGIES = [
    speclab.LinearSpeculation(draft_tokens=4),
    speclab.DynaTree(),
    speclab.FixedTree(depth=3, branching=2),
    speclab.PromptLookup(draft_tokens=4),
]
WINDOWED = "window run as full attention"


def fired(session: speclab.Session) -> set[str]:
    return {finding.fault for finding in clinic.check(session) if finding.fired}


def decoded(pair, strategy=STRATEGIES[2], prompt=PROMPT, **more) -> speclab.Session:
    session = speclab.Session(pair, strategy, prompt, **({"max_new_tokens": 12} | more))
    session.run()
    return session


def twin(pair, kind: type[Runner]):
    """The pair with a target of a class of one's own."""
    target = copy.copy(pair.target)
    target.__class__ = kind
    return replace(pair, target=target)


def test_each_detector_fires_on_its_own_fault_and_on_no_other():
    found = clinic.matrix(pair_of("mistral"), STRATEGIES, [PROMPT], max_new_tokens=10)
    assert list(found.cells) == ["healthy", *clinic.FAULTS]
    for injected, row in found.cells.items():
        assert {name: cell.fired for name, cell in row.items() if name != injected} == dict.fromkeys(
            clinic.FAULTS.keys() - {injected}, 0
        ), injected
        if injected in row:
            assert row[injected].fired == row[injected].told > 0, injected
    assert all(name in str(found) for name in clinic.FAULTS)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    prompt=st.lists(st.integers(0, 63), min_size=2, max_size=20),
    fault=st.sampled_from([name for name in clinic.FAULTS if name != WINDOWED]),
    strategy=st.sampled_from([*STRATEGIES, speclab.DynaTree(root="drafted", base_depth=3), speclab.Goose()]),
)
def test_so_it_is_on_any_prompt(prompt, fault, strategy):
    pair = pair_of("llama")
    assert fired(decoded(pair, strategy, prompt)) == set()
    found = {one.fault: one.fired for one in clinic.check(decoded(clinic.broken(pair, fault), strategy, prompt))}
    assert {name for name, hit in found.items() if hit} <= {fault}
    assert found[fault] is not False


def test_sampled_sessions_are_checked_as_well():
    pair, drawn = pair_of("llama"), {"temperature": 0.8, "seed": 3}
    assert fired(decoded(pair, **drawn)) == set()
    for fault in ("sibling visible", "wrong positions", "unverified first token", "padded positions"):
        assert fired(decoded(clinic.broken(pair, fault), **drawn)) == {fault}


def test_a_fault_shows_in_text_or_in_speed_and_leaves_the_pair_healthy():
    pair = pair_of("mistral")
    own = library_text(pair.target.model, PROMPT, 12)
    same = set()
    for fault in clinic.FAULTS:
        session = decoded(clinic.broken(pair, fault))
        assert session.trace.models["fault"] == session.fork(at=1).trace.models["fault"] == fault
        same |= {fault} if session.token_ids == own else set()
        assert decoded(pair).token_ids == own
        assert "fault" not in decoded(pair).trace.models
    head = speclab.DraftHead(node_budget=6, depth=2, head=0)  # it asks the target for hidden states
    assert fired(decoded(clinic.broken(pair, "wrong positions"), head)) == {"wrong positions"}
    assert not any(part._forward_hooks for part in pair.target.model.modules())
    assert "skipped norm in the draft" in same, "a draft cannot change the text"
    assert len(same) < len(clinic.FAULTS) / 2


class _AlongTheRow(Runner):
    """Counts positions along the rows of a tree."""

    def logits(self, tokens, positions=None, visible=None, **more):
        if visible is not None and self.length:
            positions = [positions[0] + row for row in range(len(tokens))]
        return super().logits(tokens, positions, visible, **more)


class _WrongRow(Runner):
    """Keeps as many rows as were accepted, and not those: the first ones."""

    def keep(self, prefix, slots):
        super().keep(prefix, [prefix + place for place in range(len(slots))])


class _Cousins(Runner):
    """Shows every row all rows before it."""

    def logits(self, tokens, positions=None, visible=None, **more):
        if visible is not None:
            visible = visible | torch.ones(visible.shape, dtype=torch.bool).tril().numpy()
        return super().logits(tokens, positions, visible, **more)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [(_AlongTheRow, "wrong positions"), (_WrongRow, "phantom KV rows"), (_Cousins, "sibling visible")],
)
def test_a_fault_that_was_injected_otherwise_is_found_too(kind, fault):
    found = decoded(twin(pair_of("llama"), kind), max_new_tokens=24)
    assert fired(found) == {fault}


def test_the_page_says_of_every_fault_where_it_was_seen():
    page = (Path(speclab.__file__).parents[1] / "docs" / "clinic.md").read_text(encoding="utf-8")
    for fault in clinic.FAULTS.values():
        assert f"| {fault.name} |" in page
        assert " ".join(fault.seen_in.replace(",", " ").replace(":", " ").split()[:2]) in page


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


@pytest.mark.model
def test_the_mini_family():
    prompts = [speclab.prompts.examples("prose")[0].text]
    found = clinic.matrix(speclab.load_pair(), STRATEGIES[:2], prompts, max_new_tokens=12)
    for injected, row in found.cells.items():
        assert all(cell.fired == (cell.told if name == injected else 0) for name, cell in row.items()), injected
