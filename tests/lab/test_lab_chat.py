"""The prompt box: chat or plain text, a system message, examples of each kind, and what a session is given."""

from __future__ import annotations

import pytest
from chats import FIRST, TEMPLATES, chat_pair, said
from lab_tools import choose_own, click, settle

from speclab import DynaTree
from speclab.lab.config import ConfigForm
from speclab.lab.models import has_template
from speclab.lab.prompt_picker import CHAT, PLAIN, PromptPicker
from speclab.lab.state import LabConfig, ModelChoice
from speclab.prompts import as_messages, examples

ASKED = [example.text for example in examples(chat=True)]
CONTINUED = [example.text for example in examples()]


@pytest.fixture(scope="module")
def chatty():
    return chat_pair(TEMPLATES[FIRST])


def picker(prompt=None, templated=True) -> PromptPicker:
    return PromptPicker(prompt, None, lambda: None, templated)


def roles(prompt) -> list[tuple[str, str]]:
    return [(one["role"], one["content"]) for one in prompt]


def test_models_with_a_template_are_asked_and_others_continue():
    assert roles(picker().read()) == [("user", ASKED[0])]
    bare = picker(templated=False)
    assert bare.read() == CONTINUED[0]
    assert bare.way.layout.display == bare.unfold.layout.display == "none", "nothing to choose"
    unknown = picker(templated=None)
    assert (unknown.read(), unknown.way.layout.display) == (CONTINUED[0], None)


def test_the_examples_are_those_of_the_way_and_a_text_of_ones_own_stays():
    box = picker()
    assert len(box.example.options) == len(ASKED) + 1
    box.example.value = 9
    assert roles(box.read()) == [("user", ASKED[9])]
    box.way.value = PLAIN
    assert box.read() == CONTINUED[0]
    assert len(box.example.options) == len(CONTINUED) + 1
    box.text.value = "My own"
    box.way.value = CHAT
    assert roles(box.read()) == [("user", "My own")]
    assert box.example.value == -1
    box.system.value = "Be brief."
    assert roles(box.read()) == [("system", "Be brief."), ("user", "My own")]
    assert "with a system message" in box.caption
    box.system.value = "  "
    assert roles(box.read()) == [("user", "My own")], "empty: the template's own"


@pytest.mark.parametrize(
    "talk",
    [
        [said("user", "Hi")],
        [said("system", "Be brief."), said("user", "Hi")],
        [said("system", "Be brief."), said("user", "Hi"), said("assistant", "Ho"), said("user", "And?")],
        [said("user", "Hi"), said("assistant", "The answer is")],
        [said("system", "alone")],
    ],
)
def test_a_conversation_is_shown_by_its_last_message_and_the_rest_stays(talk):
    box = picker(talk)
    assert box.read() is talk, "left alone it is what was given"
    assert box.text.value == talk[-1]["content"]
    box.text.value = "Else"
    assert roles(box.read()) == [*roles(talk[:-1]), (talk[-1]["role"], "Else")]
    other = picker("plain")
    other.write(talk)
    assert (other.read(), other.way.value) == (talk, CHAT)
    other.write("plain again")
    assert (other.read(), other.way.value, other.system.value) == ("plain again", PLAIN, "")
    box.example.value = 2
    assert roles(box.read())[-1] == ("user", ASKED[2])


def test_a_text_given_in_python_is_continued_as_everywhere_until_the_box_says_chat(make, chatty):
    lab = make(chatty, prompt="Once upon a time")
    assert lab.session.prompt_ids == chatty.encode("Once upon a time")
    assert not lab.session.messages
    lab.step()
    lab.config.unfold()
    lab.config.prompt.way.value = CHAT
    assert "starts a new run" in lab.config.note.value
    assert len(lab.session.steps) == 1, "nothing changes before it is applied"
    click(lab, lab.config.apply)
    assert lab.session.prompt_ids == chatty.encode(as_messages("Once upon a time"))
    assert "chat “Once upon a time”" in lab.config.quote.description
    lab.goto(0)
    assert "of them the chat template's" in lab.state.status
    assert "written by the chat template" in lab.snapshot()
    lab.switch(0)
    assert (lab.config.prompt.way.value, lab.config.prompt.read()) == (PLAIN, "Once upon a time")


def test_messages_reach_the_session_the_comparison_and_a_file_that_is_gone_on_with(make, chatty, tmp_path):
    talk = [said("system", "Be kind."), said("user", "Name a fruit.")]
    lab = make(chatty, DynaTree(), prompt=talk, max_new_tokens=12)
    lab.step()
    assert roles(talk) == [(one.role, one.content) for one in lab.session.messages]
    assert lab.compare(["Autoregressive"]).runs[0].trace.messages == lab.session.messages
    path = lab.save_trace(tmp_path / "run.json.gz")
    other = make(chatty, DynaTree(), prompt=talk, max_new_tokens=12)
    other.open_trace(path)
    assert other.step() is not None
    assert not other.state.error
    config = LabConfig(None, DynaTree(), talk, lab.session.settings.model_dump())
    other._controller.session = None
    assert other._controller._is_run_of(lab.session.trace, config)
    changed = LabConfig(None, DynaTree(), talk[1:], lab.session.settings.model_dump())
    assert not other._controller._is_run_of(lab.session.trace, changed)


@pytest.mark.parametrize("talk", [[said("user", 3)], [{"content": "Hi"}], [said("wizard", "Hi")]])
def test_messages_that_cannot_be_are_said_in_the_panel(make, chatty, talk):
    lab = make(chatty, prompt=talk)
    assert lab.session is None
    assert lab.state.error
    lab.status.dismiss()
    lab.config.prompt.example.value = 1
    assert lab.step() is not None


def test_a_change_of_models_changes_the_way_and_what_is_not_known_can_be_chosen(make, tmp_path):
    lab = make("mini", prompt=None)
    form: ConfigForm = lab.config
    form.unfold()
    form.models.name.value = "qwen3-4b"
    assert (form.prompt.way.value, form.prompt.text.value) == (CHAT, ASKED[0])
    form.models.name.value = "pythia-410m"
    assert (form.prompt.way.value, form.prompt.text.value) == (PLAIN, CONTINUED[0])
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert has_template(ModelChoice("", str(tmp_path)), None)
    choose_own(lab, tmp_path)
    assert form.prompt.way.value == CHAT
    choose_own(lab, "some/model")
    assert form.prompt.way.layout.display is None
    assert form.prompt.system.layout.display == "none", "folded"
    assert settle(lab)
