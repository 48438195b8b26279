"""The form: models, strategy, prompt; what it refuses, what it applies; and loading by name."""

from __future__ import annotations

import pytest
from support.lab_page import PATIENCE, Page
from support.tiny import tiny
from support.words import word_tokenizer

import speclab
from speclab.drafters import cost
from speclab.lab._form import ModelChoice, offered
from speclab.loading.presets import PRESETS

SMOLLM2 = pytest.mark.skipif(bool(PRESETS["smollm2"].missing), reason="speclab fetch smollm2")


@pytest.fixture
def page(make, sent):
    return Page(make("mini", prompt="Once upon a time", max_new_tokens=60), sent)


def test_a_typed_prompt_is_what_the_next_step_decodes(page):
    page.want(prompt="The storm had been growing")
    assert (page.status["pending"], page.status["new_run"]) == (["prompt"], True)
    page.do("step")
    session = page.lab.session
    assert session.pair.decode(session.prompt_ids) == "The storm had been growing"
    assert page.place == (1, "all", None)
    assert page.holds_the_run()
    assert (page.status["pending"], page.status["new_run"]) == ([], False)


def test_strategies_and_presets_are_chosen(page):
    page.want(strategy={"name": "LinearSpeculation"})
    assert page.status["pending"] == ["strategy DynaTree → LinearSpeculation"]
    page.do("step")
    assert type(page.lab.session.strategy).__name__ == "LinearSpeculation"
    assert page.lab.state.cursor == 2, "a fork goes on from where it was"
    preset = list(speclab.DynaTree.presets().values())[-1]
    page.want(strategy={"name": "DynaTree", "settings": preset.model_dump(mode="json")})
    assert page.lab.state.wanted.strategy == preset


def test_length_and_sampling_are_applied_in_a_fork(page):
    first = page.lab.session.steps[0]
    values = {"temperature": 0.8, "seed": 3, "top_p": 0.9, "top_k": 40, "max_new_tokens": 30}
    for name, value in values.items():
        page.want(session={name: value})
    page.do("step")
    settings = page.lab.session.settings
    assert {name: getattr(settings, name) for name in values} == values
    assert page.lab.session.steps[0] is first


def test_models_of_ones_own_are_named_and_loaded_and_a_wrong_name_keeps_the_former(page, tmp_path):
    tiny("llama").save_pretrained(tmp_path / "llama")
    word_tokenizer(64).save_pretrained(tmp_path / "llama")
    page.want(models={"name": "", "target": str(tmp_path / "nothing")})
    assert "needs a draft" in page.error["sentence"]
    assert "DynaTree" in page.status["missing"]
    assert "PromptLookup" not in page.status["missing"]
    page.want(strategy={"name": "PromptLookup"}, prompt="w5 w17 w3 w40 w11")
    assert page.error is None
    run = page.lab.session
    page.do("step")
    assert page.error["where"] == "page"
    assert page.lab.session is run
    assert page.holds_the_run()
    page.want(models={"name": "", "target": str(tmp_path / "llama")})
    page.do("step")
    assert page.error is None
    assert page.lab.session.prompt_ids == [5, 17, 3, 40, 11]
    page.want(models={"name": "", "target": str(tmp_path / "llama"), "heads": ["mtp"]})
    page.do("step")
    assert "MTP layers" in page.error["sentence"]


def test_models_are_loaded_once_and_at_once(make, sent, monkeypatch):
    from speclab import pair as models

    asked = []
    load = models.load_pair
    monkeypatch.setattr(
        models, "load_pair", lambda *args, **named: asked.append(named) or load(*args, **named)
    )
    lab = make("mini", prompt="Once", max_new_tokens=20)
    assert Page(lab, sent).holds_the_run()
    assert Page(lab, sent).status["busy"] == ""
    lab.step()
    assert [named["name"] for named in asked] == ["mini"]


def test_another_lab_takes_the_models_of_the_first_and_nothing_that_it_has_learned(make):
    first, second = [make("mini", prompt="Once", max_new_tokens=20) for _ in range(2)]
    pairs = [lab.wait(PATIENCE) and lab.session.pair for lab in (first, second)]
    assert pairs[0].target.model is pairs[1].target.model
    assert pairs[0].shared_state is not pairs[1].shared_state
    first.close()
    assert second.step().index == 1


def test_a_page_that_opens_while_models_load_hears_of_it_at_once(make, sent, monkeypatch):
    import threading

    from speclab import pair as models

    load = models.load_pair
    begun = threading.Event()
    go_on = threading.Event()

    def slow(**named):
        named["report"]("Loading")
        begun.set()
        assert go_on.wait(PATIENCE)
        return load(**named)

    monkeypatch.setattr(models, "load_pair", slow)
    lab = make("mini", prompt="Once", max_new_tokens=20)
    assert begun.wait(PATIENCE)
    lab.comm.handle_msg(
        {"content": {"data": {"method": "custom", "content": {"do": "hello"}}}, "buffers": []}
    )
    told = [one["data"]["content"]["messages"] for one in sent if "content" in one["data"]]
    status = next(message for message in told[0] if message["type"] == "status")
    assert status["busy"]
    assert status["progress"] > 0
    go_on.set()
    assert lab.wait(PATIENCE)


def test_a_load_that_fails_is_said_and_tried_again(make, sent, monkeypatch):
    from speclab import pair as models

    def failing(**_named):
        raise speclab.OfflineError("The hub cannot be reached.")

    with monkeypatch.context() as patched:
        patched.setattr(models, "load_pair", failing)
        lab = make("mini", prompt="Once", max_new_tokens=20)
        page = Page(lab, sent)
        assert page.error == {"where": "start", "sentence": "The hub cannot be reached."}
        assert page.status["can_step"]
        with pytest.raises(speclab.OfflineError):
            lab.step()
    page.do("step")
    assert page.error is None
    assert page.holds_the_run()


def test_the_default_lab_takes_smollm2_where_it_was_fetched_else_mini(monkeypatch):
    from speclab import pair as models

    def failing(**_named):
        raise speclab.OfflineError("The hub cannot be reached.")

    monkeypatch.setattr(models, "load_pair", failing)
    for missing, name in ((True, "mini"), (False, "smollm2")):
        monkeypatch.setattr(
            type(PRESETS["smollm2"]), "missing", property(lambda self, missing=missing: missing)
        )
        lab = speclab.Lab()
        assert lab.state.wanted.models == ModelChoice(name)
        assert lab.state.wanted.strategy == speclab.DynaTree(node_budget=16)
        assert lab.state.wanted.data()["chat"] == PRESETS[name].chat
        lab.close()


def test_a_chat_prompt_stays_a_conversation_when_its_text_is_edited(page):
    page.want(models={"name": "qwen3-4b"})
    assert page.status["wanted"]["chat"]
    page.want(prompt="How?")
    assert list(page.lab.state.wanted.prompt) == [{"role": "user", "content": "How?"}]
    page.want(models={"name": "mini"})
    assert page.lab.state.wanted.prompt == "How?"


def test_a_block_tree_is_offered_where_the_models_have_a_block_head():
    assert "block head" in speclab.DDTree().missing(offered(ModelChoice("qwen3-4b"), None))
    for choice in (ModelChoice("mini"), ModelChoice("", "target", heads=("head",))):
        assert not speclab.DDTree().missing(offered(choice, None))


@pytest.mark.parametrize("name", ["mini", pytest.param("smollm2", marks=SMOLLM2)])
def test_the_first_steps_show_a_tree_with_an_accepted_and_a_rejected_node(make, monkeypatch, name):
    """Whatever a pass costs on this machine: the opening tree has a fixed budget."""
    monkeypatch.setattr(cost, "node_budget", lambda *_: 4)
    lab = make(name)
    for _ in range(2):
        lab.step()
    steps = lab.session.steps[:3]
    assert max(len(step.tree) for step in steps) >= 10
    verdicts = [{node.verdict for node in step.nodes} for step in steps if len(step.tree) >= 10]
    assert any({"accepted", "rejected"} <= seen for seen in verdicts)
