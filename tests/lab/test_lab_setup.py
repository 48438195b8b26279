"""The form: models, strategy, presets, prompt; what it refuses, what it applies; and loading by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lab_tools import Page, every, settle
from support.tiny import tiny

import speclab
from speclab.lab.setup import CUSTOM, OWN, lacking
from speclab.lab.state import ModelChoice
from speclab.loading.presets import PRESETS


@pytest.fixture
def page(make, sent):
    page = Page(make("mini", prompt="Once upon a time", max_new_tokens=60), sent)
    page.say(do="change")
    return page


@pytest.fixture
def form(page):
    return page.lab._form


def edit(page, field, value):
    page._sent.clear()
    getattr(page.lab._form, field).value = value
    return page.hear()


def test_the_form_is_made_when_it_is_unfolded_shows_what_runs_and_folds(make, sent):
    lab = make("mini", prompt="Once upon a time", max_new_tokens=60)
    page = Page(lab, sent)
    count = len(every(lab))
    assert not lab._form.children
    page.say(do="change")
    form = lab._form
    assert len(every(lab)) > count
    assert form.layout.display is None
    shown = form.models.value, form.strategy.value, form.prompt.value, form.length.value
    assert shown == ("mini", "DynaTree", "Once upon a time", 60)
    page.say(do="change")
    assert form.layout.display == "none"


def test_a_typed_prompt_is_what_the_next_step_decodes_and_the_form_folds(page, form):
    edit(page, "prompt", "The storm had been growing")
    assert page.status["pending"] == "Changed: prompt. It starts a new run."
    page.say(do="step")
    session = page.lab.session
    assert session.pair.decode(session.prompt_ids) == "The storm had been growing"
    assert page.place == (1, "all", None)
    assert page.holds_the_run()
    assert page.status["pending"] is None
    assert page.status["sentence"] == "Applied: prompt."
    assert form.layout.display == "none"
    assert "The storm had been growing" in page.status["setup"]


@pytest.mark.parametrize("prompt", ["", "   ", "far too long " * 900])
def test_a_prompt_that_cannot_be_is_refused_where_it_is_typed_until_it_is_mended(
    page, form, prompt
):
    edit(page, "prompt", prompt)
    assert page.status["error"]["where"] == "prompt"
    assert page.status["error"]["sentence"].split()[0] == "The"
    assert "role=" in form.note.value
    run = page.lab.session
    page.say(do="step")
    assert page.lab.session is run
    assert len(page.iterations) == 1
    edit(page, "prompt", "A short one")
    assert page.status["error"] is None
    assert form.note.value == ""
    page.say(do="step")
    assert page.lab.session is not run
    assert page.status["error"] is None


def test_a_strategy_a_preset_and_a_shipped_example_are_chosen(page, form):
    edit(page, "strategy", "LinearSpeculation")
    assert "strategy DynaTree → LinearSpeculation" in page.status["pending"]
    page.say(do="step")
    assert type(page.lab.session.strategy).__name__ == "LinearSpeculation"
    assert page.lab.state.cursor == 2, "a fork goes on from where it was"
    edit(page, "strategy", "DynaTree")
    name = [name for name in form.preset.options if name not in {CUSTOM, "default"}][-1]
    edit(page, "preset", name)
    assert page.lab.state.wanted.strategy == speclab.DynaTree.presets()[name]
    _, text = form.example.options[2]
    edit(page, "example", text)
    assert form.prompt.value == page.lab.state.wanted.prompt == text


def test_length_and_sampling_are_applied_in_a_fork(page, form):
    first = page.lab.session.steps[0]
    assert form.seed.disabled
    for field, value in {"temperature": 0.8, "seed": 3, "top_p": "0.9", "length": 30}.items():
        edit(page, field, value)
    assert not form.seed.disabled
    page.say(do="step")
    settings = page.lab.session.settings
    assert (settings.temperature, settings.seed, settings.top_p, settings.max_new_tokens) == (
        0.8,
        3,
        0.9,
        30,
    )
    assert page.lab.session.steps[0] is first
    for field, wrong, right in (("top_p", "many", ""), ("temperature", -1.0, 0.0)):
        edit(page, field, wrong)
        assert page.status["error"]["where"] == "prompt"
        edit(page, field, right)
        assert page.status["error"] is None


def test_models_of_ones_own_are_named_and_loaded_and_a_wrong_name_keeps_the_former(
    page, form, tmp_path
):
    tiny("llama").save_pretrained(tmp_path / "llama")
    edit(page, "models", OWN)
    assert "target" in page.status["error"]["sentence"]
    edit(page, "target", str(tmp_path / "nothing"))
    assert "needs a draft" in page.status["error"]["sentence"]
    edit(page, "strategy", "PromptLookup")
    edit(page, "prompt", "5 17 3 40 11")
    run = page.lab.session
    page.say(do="step")
    assert page.status["error"]["where"] == "step"
    assert page.lab.session is run
    assert page.holds_the_run()
    edit(page, "target", str(tmp_path / "llama"))
    page.say(do="step")
    assert page.status["error"] is None
    assert page.lab.session.prompt_ids == [5, 17, 3, 40, 11]
    edit(page, "heads", "mtp")
    page.say(do="step")
    assert "MTP layers" in page.status["error"]["sentence"]


def test_a_fork_and_a_switch_are_shown_in_the_form(page, form):
    page.lab.fork(speclab.LinearSpeculation(), max_new_tokens=33)
    page.hear()
    assert (form.strategy.value, form.length.value) == ("LinearSpeculation", 33)
    assert page.status["pending"] is None
    page.say(do="switch", run=0)
    assert (form.strategy.value, form.length.value) == ("DynaTree", 60)


def test_models_are_loaded_once_when_a_page_asks(make, sent, monkeypatch):
    from speclab import pair as models

    asked = []
    load = models.load_pair
    monkeypatch.setattr(
        models, "load_pair", lambda *args, **named: asked.append(named) or load(*args, **named)
    )
    lab = make("mini", prompt="Once", max_new_tokens=20)
    assert lab.session is None
    assert not asked
    assert Page(lab, sent).holds_the_run()
    assert Page(lab, sent).status["busy"] is None
    assert [named["name"] for named in asked] == ["mini"]


def test_a_load_that_fails_is_said_and_tried_again(make, sent, monkeypatch):
    from speclab import pair as models

    load = models.load_pair

    def failing(**_named):
        raise speclab.OfflineError("The hub cannot be reached.")

    with monkeypatch.context() as patched:
        patched.setattr(models, "load_pair", failing)
        lab = make("mini", prompt="Once", max_new_tokens=20)
        page = Page(lab, sent)
        assert page.status["error"] == {"where": "step", "sentence": "The hub cannot be reached."}
        assert page.status["can_step"]
        with pytest.raises(speclab.OfflineError):
            lab.step()
    assert models.load_pair is load
    page.say(do="step")
    assert page.status["error"] is None
    assert page.holds_the_run()


def test_the_default_lab_takes_smollm2_where_it_was_fetched_else_mini(monkeypatch):
    for missing, name in ((True, "mini"), (False, "smollm2")):
        monkeypatch.setattr(
            type(PRESETS["smollm2"]), "missing", property(lambda self, missing=missing: missing)
        )
        lab = speclab.Lab()
        assert lab.state.wanted.models == ModelChoice(name)
        chats = not isinstance(lab.state.wanted.prompt, str)
        assert chats == PRESETS[name].chat
        lab.close()


def test_a_chat_prompt_stays_a_conversation_when_its_text_is_edited(make, pair):
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Why?"}]
    lab = make("mini", prompt="Once", max_new_tokens=20)
    lab.state.wanted = replace(lab.state.wanted, models=None, prompt=messages)
    form = lab._form
    form._pair = pair
    form.toggle()
    assert form.prompt.value == "Why?"
    form.prompt.value = "How?"
    settle(lab)
    assert list(lab.state.wanted.prompt) == [messages[0], {"role": "user", "content": "How?"}]


def test_a_block_tree_is_offered_where_the_models_have_a_block_head():
    assert "block head" in lacking(speclab.DDTree(), ModelChoice("qwen3-4b"), None)
    for choice in (ModelChoice("mini"), ModelChoice("", "target", heads=("head",))):
        assert not lacking(speclab.DDTree(), choice, None)
