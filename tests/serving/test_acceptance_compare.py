"""An engine's log beside our replay: on its text the same strategy accepts the same, and what differs is said."""

from __future__ import annotations

import json
from functools import cache

import pytest
import torch
from pairs import PROMPT, draft_of, pair_of, target_of
from refusals import refused

import speclab
from speclab import AcceptanceLog
from speclab.analysis.replay import Replayer
from speclab.engine.session import KnownText
from speclab.errors import PromptError, SettingsError
from speclab.serving.accepted import Logged
from speclab.settings import SessionSettings

pytestmark = pytest.mark.model

WORDS = "Once upon a time there was a little girl who"
CHAIN = speclab.LinearSpeculation(draft_tokens=3, budget="fixed")


@cache
def mini() -> speclab.ModelPair:
    return speclab.load_pair("mini")


def run(strategy, **options) -> speclab.Session:
    session = speclab.Session(mini(), strategy, WORDS, **{"max_new_tokens": 40, **options})
    session.run()
    return session


def served(session: speclab.Session, **changes) -> dict:
    """The response of a server that decoded as this session did, with the prompt in it."""
    steps = [step for step in session.steps if step.counts.drafted]
    said = {
        "per_step_accepted": [len(step.accepted) for step in steps],
        "per_step_drafted": [step.counts.drafted for step in steps],
    }
    texts = {"prompt": WORDS, "choices": [{"text": session.text}]}
    return {"id": "a", **texts, "metrics": {"speculative_decoding": said}, **changes}


@pytest.fixture
def theirs(tmp_path):
    def opened(response: dict) -> AcceptanceLog:
        path = tmp_path / "log.json"
        path.write_text(json.dumps(response))
        return speclab.load_acceptance(path)

    return opened


@cache
def greedy(model: torch.nn.Module, tokens: tuple[int, ...]) -> int:
    with torch.no_grad():
        return int(model(torch.tensor([tokens])).logits[0, -1].argmax())


def test_on_a_text_of_any_origin_a_token_is_accepted_if_it_stands_there():
    pair, target, draft = pair_of("llama"), target_of("llama"), draft_of("llama", 0.02)
    text = [*PROMPT]
    for at in range(20):
        text.append(greedy(target, tuple(text)) if at % 7 else 3)
    expected, place = [], len(PROMPT) + 1
    while place < len(text):
        drafted = [*text[:place]]
        for _ in range(3):
            drafted.append(greedy(draft, tuple(drafted)))
        same = [a == b for a, b in zip(drafted[place:], text[place:], strict=False)]
        accepted = [*same, False].index(False)
        expected.append(accepted)
        place += accepted + 1
    known = KnownText(pair, tuple(text), len(PROMPT), SessionSettings(max_new_tokens=20, stop_at_eos=False), (), ())
    replayer = Replayer(known)
    found = replayer.replay(CHAIN)
    assert [one.accepted for one in found.passes] == expected
    assert sum(found.committed, ()) == tuple(text[len(PROMPT) + 1 :])
    others = [at + 1 for at in range(20) if greedy(target, tuple(text[: len(PROMPT) + at])) != text[len(PROMPT) + at]]
    assert list(replayer.others) == others
    assert 1 in others


def test_the_same_strategy_on_the_same_text_accepts_the_same(theirs):
    session = run(CHAIN)
    compared = theirs(served(session)).compare(mini(), CHAIN)
    assert compared.ours.acceptance_by_depth == AcceptanceLog.of(session).acceptance_by_depth
    assert compared.theirs.acceptance_by_depth == compared.ours.acceptance_by_depth
    assert any("Every step accepts as many" in said for said in compared.differences)
    assert all(said in repr(compared) for said in (repr(compared.theirs), *compared.differences))
    replayed = speclab.replay(session, CHAIN)
    for ours in (session, session.trace, replayed, AcceptanceLog.of(replayed)):
        assert theirs(served(session)).compare(ours).ours.steps == compared.ours.steps


def test_another_depth_is_said_and_so_is_where_steps_part(theirs):
    deeper = run(speclab.LinearSpeculation(draft_tokens=6, budget="fixed"))
    said = theirs(served(deeper)).compare(mini(), CHAIN).differences
    assert any("up to depth 6, ours up to 3" in one for one in said)
    first = next(at for at, step in enumerate(deeper.steps, 1) if len(step.accepted) > 3)
    assert any(f"differs is {first}:" in one for one in said)


def test_a_text_that_our_target_would_not_write_is_replayed_all_the_same_and_said(theirs):
    session = run(CHAIN)
    said = theirs(served(session, choices=[{"text": session.text + " zebra zebra"}])).compare(mini(), CHAIN).differences
    assert any("our target chooses another" in one for one in said)


def test_without_an_output_ours_is_decoded_and_passes_without_a_draft_are_left_out(theirs):
    session = run(speclab.PromptLookup(budget="fixed"))
    log = theirs(served(session, choices=[]))
    compared = log.compare(mini(), session.strategy)
    assert "decoded" in compared.differences[0]
    plain = sum(not step.drafted for step in compared.ours.steps)
    assert plain
    assert any(f"{plain} of {len(compared.ours.steps)} of our passes" in one for one in compared.differences)


def test_the_user_gives_what_the_log_does_not_hold(theirs):
    session = run(CHAIN)
    log = theirs(served(session, prompt=None, choices=[]))
    with refused(PromptError, "give the prompt"):
        log.compare(mini(), CHAIN)
    with refused(SettingsError, "strategy"):
        log.compare(mini())
    with refused(PromptError, "too few"):
        log.compare(mini(), CHAIN, prompt=WORDS, output="a")
    with refused(PromptError, "no output"):
        log.compare(mini(), CHAIN, prompt=WORDS, output=5)
    for wrong in ("mini", None):
        with refused(SettingsError, "no run"):
            log.compare(wrong)
    with refused(SettingsError, "needs a run"):
        speclab.AcceptanceLog.of()
    given = log.compare(mini(), CHAIN, prompt=WORDS, output=session.text)
    assert given.ours.acceptance_by_depth == log.acceptance_by_depth
    with refused(PromptError, "no tokenizer"):
        log.compare(pair_of("llama"), CHAIN, prompt=PROMPT, output="some text")


def test_rates_are_compared_as_rates_and_shares_that_chance_hardly_explains_are_named():
    rates = AcceptanceLog("sglang", (Logged(tokens_per_iteration=2.5),))
    said = rates.compare(run(CHAIN)).differences
    assert any("2.50 tokens per iteration there" in one for one in said)
    assert any("no counts by depth" in one for one in said)
    low, high = (AcceptanceLog("vllm", (Logged.counted(200, 200, [count]),)) for count in (60, 140))
    assert any("chance" in one and "30% of 200" in one and "70% of 200" in one for one in low.compare(high).differences)
    assert not any("chance" in one for one in low.compare(low).differences)
