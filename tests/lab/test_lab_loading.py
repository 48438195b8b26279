"""Loading models in the lab: what it takes, how far it is, Stop, and every refusal said while the session goes on."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from lab_tools import PATIENCE, ask, choose_own, said_of_memory, settle
from tiny import tiny

from speclab.files import byte_count
from speclab.lab import Lab
from speclab.lab.state import ModelChoice
from speclab.models import memory
from speclab.models import pair as pairs
from speclab.models.presets import MINI_HEADS

pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture
def held(monkeypatch):
    """A load that says something and then stays in a library until it is let go; what it brings when it is."""
    load = SimpleNamespace(begun=Event(), go=Event(), ended=Event(), calls=0, brought=0)

    def load_pair(*, report, **_):
        load.calls += 1
        report("Loading some/model, about 3.0 GiB…")
        load.begun.set()
        assert load.go.wait(PATIENCE)
        try:
            report("Loading some/model, half of it…")
        finally:
            load.ended.set()
        load.brought += 1
        return pairs.ModelPair(pairs.Runner(tiny("gpt_neox"), "late"), name="late")

    monkeypatch.setattr(pairs, "load_pair", load_pair)
    monkeypatch.setattr("speclab.lab.models.PACE", 0.01)
    yield load
    load.go.set()


def test_what_a_preset_takes_stands_beside_it_before_it_is_loaded(make, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda device: 8 << 30)
    lab = make("mini")
    lab.config.models.look()
    assert "needs about" in said_of_memory(lab)
    assert "8.0 GiB are free" in said_of_memory(lab)
    assert "Draft heads: prose, code." in said_of_memory(lab)
    lab.config.models.name.value = "llama3-8b"
    assert "Too large" in said_of_memory(lab)
    assert "sl-bad" in said_of_memory(lab)
    lab.config.models.name.value = "qwen3-4b"
    lab.config.models.dtype.value = "bfloat16"
    assert "needs about 10.3 GiB on cpu in bfloat16" in said_of_memory(lab)
    assert lab._controller.models.pair is None


def test_what_a_folder_takes_is_read_from_its_headers(lab, folder, monkeypatch):
    monkeypatch.setattr(pairs, "load_pair", lambda *_, **__: pytest.fail("loaded"))
    lab.step()
    assert said_of_memory(lab) == ""
    assert lab.config.models.memory._worker._thread is None, "given models say nothing, and nothing is looked up"
    choose_own(lab, folder, folder)
    takes = byte_count(memory.needed(tiny("llama").num_parameters(), 4))
    assert f"(target {takes}, draft {takes})" in said_of_memory(lab)
    lab.config.models.name.value = "given"
    assert said_of_memory(lab) == ""


@pytest.mark.parametrize(
    ("target", "sentence"),
    [("no/such folder", "There is no folder or file no/such folder"), ("some/model", "model hub cannot be reached")],
)
def test_what_cannot_be_had_is_said_before_it_is_applied(lab, monkeypatch, target, sentence):
    def unreachable(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unreachable)
    choose_own(lab, target)
    assert sentence in said_of_memory(lab)
    assert lab.state.error == ""


def test_while_a_name_is_typed_only_the_last_is_looked_up(lab, monkeypatch, messages):
    asked, there, go = [], Event(), Event()

    def model_info(self, name, **_):
        asked.append(name)
        there.set()
        assert go.wait(PATIENCE)
        counts = SimpleNamespace(total=1 << 30, parameters={"F32": 1 << 30})
        return SimpleNamespace(siblings=[], safetensors=counts)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    choose_own(lab, "s")
    assert there.wait(PATIENCE)
    messages.clear()
    for name in ("some", "some/m", "some/model"):
        lab.config.models.target.value = name
    lab.select(None)  # neither the kernel nor the models wait for the hub
    go.set()
    assert "4.8 GiB" in said_of_memory(lab)
    assert asked == ["s", "some/model"]
    assert len(messages.of(lab.config.models.memory)) == 1


def test_a_load_says_how_far_it_is(make, held):
    lab, heard, told = make("mini"), [], Event()

    def hear(change) -> None:
        heard.append(change["new"])
        if "about" in change["new"]:
            told.set()

    lab.state.observe(hear, "status")
    waiting = lab._actions.ask(lab._controller.prepare)
    assert held.begun.wait(PATIENCE)
    assert told.wait(PATIENCE)
    assert lab.state.busy == "loading"
    held.go.set()
    waiting.result(PATIENCE)
    ended = "mini is loaded: Step decodes with it."
    overtaken = "Loading some/model, half of it…"  # the load may end before it is shown
    assert [said for said in heard if said != overtaken] == [
        "Loading mini…",
        "Loading some/model, about 3.0 GiB…",
        ended,
    ]
    assert lab.state.status == ended
    assert lab.state.busy == ""
    assert lab._controller.models.pair.name == "late"


def test_stop_leaves_a_load_behind_at_once_and_what_it_brings_is_dropped(lab, held, folder):
    lab.step()
    session, pair = lab.session, lab._controller.models.pair
    choose_own(lab, folder)
    waiting = lab._actions.ask(lab._controller.apply)
    assert held.begun.wait(PATIENCE)
    lab.stop()
    waiting.result(PATIENCE)
    assert not held.ended.is_set()
    assert "Stopped loading" in lab.state.status
    assert "everything stays as it was" in lab.state.status
    assert lab.state.error == ""
    assert lab.session is session
    held.go.set()
    assert held.ended.wait(PATIENCE)
    assert settle(lab)
    assert not held.brought, "it ends at its next report"
    assert lab._controller.models.pair is pair
    lab.config.models.name.value = "given"
    assert lab.step() is not None
    assert lab.session is session


def test_another_click_ends_a_run_but_not_its_load(make, held):
    lab = make("mini")
    lab.config.strategy.choice.value = "Autoregressive"
    run = lab._actions.ask(lab._controller.run)
    assert held.begun.wait(PATIENCE)
    lab._actions.ask(lab._controller.select, None)
    held.go.set()
    run.result(PATIENCE)
    assert held.calls == 1
    assert lab._controller.models.pair.name == "late"


def test_the_shipped_models_and_a_head_typed_by_hand_decode_with_it(make):
    from speclab.models.presets import MINI

    assert "heads" not in ModelChoice("mini").arguments()
    lab = make("mini", prompt="The old man")
    choose_own(lab, MINI / "target", MINI / "draft", str(MINI_HEADS / "prose"))
    lab.config.strategy.choice.value = "DraftHead"
    # The family's tokenizer lies beside its models, so without one the prompt is ids.
    lab.config.prompt.text.value = "5 17 3"
    ask(lab, "start")
    assert lab.state.error == ""
    assert lab.step() is not None
    assert lab.session.pair.head_names == ("prose",)


def test_memory_in_use_goes_with_a_line_that_is_sent_anyway(make, messages, monkeypatch):
    counts = iter(range(1, 10_000))
    monkeypatch.setattr(memory, "usage", lambda device: f"memory: {next(counts)} MiB in use")
    lab = make(max_new_tokens=200)
    lab.step()
    assert " MiB in use" in lab.status.line.drawing
    with_memory = _step_messages(lab, messages)
    monkeypatch.setattr(memory, "usage", lambda device: "")
    lab.step()
    assert "in use" not in lab.status.line.drawing
    assert with_memory <= _step_messages(lab, messages)


def _step_messages(lab: Lab, messages) -> int:
    messages.clear()
    assert lab.step() is not None
    return len(messages.of(lab.status.line))


def test_a_gpus_memory_is_shown_where_the_models_are_on_one(lab, monkeypatch):
    failed = SimpleNamespace(device=torch.device("cuda:0"))
    gpu = SimpleNamespace(target=failed, runners={"target": failed})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (139 << 30, 140 << 30))
    monkeypatch.setattr(lab._controller.models, "pair", gpu)
    lab.step()
    assert "cuda:0: 1.0 GiB of 140.0 GiB in use" in lab.status.line.drawing


def test_a_closed_lab_leaves_its_load_and_looks_nothing_up(held):
    lab = Lab("mini")
    memory = lab.config.models.memory
    lab._actions.ask(lab._controller.prepare)
    assert held.begun.wait(PATIENCE)
    lab.close()
    assert lab._worker.wait(PATIENCE)
    held.go.set()
    assert lab._controller.models.pair is None
    lab.config.models.look()
    assert memory._worker._thread is None
