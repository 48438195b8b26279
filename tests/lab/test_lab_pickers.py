"""Choosing models, prompts, strategies and settings, and what Apply makes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated

import pytest
from lab_tools import PROMPT, click, every, settle
from pydantic import TypeAdapter, ValidationError

from speclab.drafters import strategies
from speclab.drafters.chain import Autoregressive
from speclab.drafters.dual_draft import DualDraft
from speclab.drafters.dynatree import DynaTree
from speclab.drafters.fixed_tree import FixedTree
from speclab.drafters.prompt_lookup import PromptLookup
from speclab.drafters.token_recycling import TokenRecycling
from speclab.errors import PromptError, SettingsError
from speclab.lab import Lab
from speclab.lab.config import NEXT
from speclab.lab.form import NOTCHES, Fold, Form, Probability, control, main_fields, title
from speclab.lab.prompt_picker import PromptPicker
from speclab.models.pair import ModelPair
from speclab.models.presets import PRESETS
from speclab.prompts import examples
from speclab.settings import SessionSettings
from speclab.views import registry

MODELS = [*strategies().values(), SessionSettings]


@pytest.fixture
def bare(pair) -> ModelPair:
    """The target without a draft."""
    return ModelPair(pair.target, name="bare")


def apply(lab: Lab) -> None:
    assert not lab.config.apply.disabled, lab.config.note.value
    click(lab, lab.config.apply)


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_every_settings_model_becomes_controls_that_read_back_few_of_them_made_at_first(kind):
    form, first = Form(kind, lambda: None), main_fields(kind)
    assert form.read() == kind()
    assert len(first) == min(3, len(kind.model_fields))
    assert not form.controls
    form.cells(first)
    assert list(form.controls) == first
    for settings in getattr(kind, "presets", dict)().values():
        form.write(settings)
        assert form.read() == settings


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_no_slider_leaves_the_bounds_of_its_field_nor_stops_short_of_them(kind):
    for name, field in [(name, field) for name, field in kind.model_fields.items() if field.metadata]:
        widget, allowed = control(name, field), TypeAdapter(Annotated[field.annotation, *field.metadata])
        if isinstance(widget, Probability):
            values = []
            for notch in range(NOTCHES + 1):
                widget.slider.value = notch
                values.append(allowed.validate_python(widget.value))
                assert widget.slider.value == notch, "what a notch gives lies at that notch"
            assert values == sorted(values)
            assert values[0] <= 0.001
            assert values[-1] >= 0.999
        elif hasattr(widget, "min"):
            for end, sign in ((widget.min, -1), (widget.max, 1)):
                allowed.validate_python(end)
                with pytest.raises(ValidationError):
                    allowed.validate_python(end + sign)


def test_probabilities_are_slid_on_a_logarithmic_scale_typed_and_said_to_be_wrong_at_once():
    form = Form(DynaTree, lambda: None)
    stop, sure = form.controls["stop_probability"], form.controls["high_confidence"]
    far = [stop.place(value) for value in (0.005, 0.05, 0.5)]
    assert far[1] - far[0] == pytest.approx(far[2] - far[1])
    assert sure.place(0.5) == 0.5
    stop.slider.value = 0
    assert form.read().stop_probability == 0
    for typed, value in ((".005", 0.005), ("0.1234", 0.1234), ("5e-3", 0.005)):
        stop.box.value = typed
        assert form.read().stop_probability == value
        assert stop.box.value == typed, "what is being typed is left alone"
    stop.value = 0.0125
    assert (stop.box.value, form.read().stop_probability) == ("0.0125", 0.0125)
    for typed, said in (("abc", "valid number"), ("2", "less than 1"), ("", "valid number")):
        stop.box.value = typed
        with pytest.raises(SettingsError, match=said):
            form.read()


def test_a_seed_too_large_for_a_browser_stands_until_it_is_changed():
    form = Form(SessionSettings, lambda: None)
    form.write(SessionSettings(seed=2**60))
    assert form.read().seed == 2**60
    form.controls["seed"].value = 3
    assert form.read().seed == 3
    form.controls["top_k"].value = "5"
    assert form.read().top_k == 5
    form.controls["top_k"].value = ""
    assert form.read().top_k is None


def test_symbols_of_the_paper_stand_beside_the_name():
    fields = DynaTree.model_fields
    assert title("high_confidence", fields["high_confidence"]) == "high confidence <i>τ<b>h</b></i>"
    assert title("root", fields["root"]) == "root"


def test_a_prompt_that_is_typed_too_long_is_refused_before_it_is_applied():
    models = SimpleNamespace(tokenizer=object(), context=8, encode=str.split)
    picker = PromptPicker("Once upon", models, lambda: None)
    picker.text.value = "a longer text of seven words altogether"
    assert picker.read() == picker.text.value
    picker.text.value += " and more"
    with pytest.raises(PromptError, match="9 tokens, and these models take 8"):
        picker.read()


def test_one_line_says_what_runs_and_unfolds_the_pickers_with_all_that_is_on_offer(make):
    lab = make("mini", prompt="<b>Once</b> upon", temperature=0.7)
    said = lab.config.models_line.value + lab.config.quote.description + lab.config.sampling_line.value
    for part in ("mini", "draft model", "DynaTree", "<b>Once</b> upon", "temperature 0.7"):
        assert part in said
    assert lab.config.pickers.layout.display == "none"
    assert not lab.config.session.controls, "what nobody sees is not made"
    lab.config.quote.click()
    assert lab.config.pickers.layout.display is None
    shown = every(lab.config.pickers)
    assert {lab.config.prompt.text, lab.config.strategy.choice, lab.config.models.name} <= set(shown)
    assert lab.config.models.device not in shown, "folded under Advanced"
    advanced = next(widget for widget in shown if isinstance(widget, Fold))
    advanced.toggle.value = True
    assert lab.config.models.device in every(advanced)
    assert lab.config.session.controls["seed"] in every(advanced)
    lab.config.toggle.value = False
    assert lab.config.pickers.layout.display == "none"
    offered = [value for _, value in lab.config.models.name.options]
    assert offered == [*PRESETS, "own"]
    assert len(lab.config.prompt.example.options) == len(examples()) + 1
    assert lab.config.prompt.example.value == -1
    lab.config.prompt.example.value = 3
    assert lab.config.prompt.read() == examples()[3].text


def test_what_is_pending_is_applied_by_step_and_what_cannot_be_disables_it(lab):
    row = lab.transport
    lab.step()
    assert row.step.description == "Step"
    assert row.note.layout.display == "none"
    lab.config.session.controls["temperature"].value = 0.5
    assert row.step.description == "Apply & step"
    assert "temperature" in row.note.value
    row.key("apply")
    assert settle(lab)
    assert (row.step.description, row.note.layout.display) == ("Step", "none")
    assert lab.session.settings.temperature == 0.5
    assert lab.state.cursor == 2
    lab.config.prompt.text.value = " "
    assert row.step.disabled
    assert "prompt is empty" in row.note.value
    session = lab.session
    for name in ("apply", " "):
        row.key(name)
    assert settle(lab)
    assert (lab.session, lab.state.cursor, lab.state.error) == (session, 2, "")


def test_a_changed_setting_says_that_apply_forks_and_does_and_another_prompt_starts_anew(lab):
    lab.step()
    lab.step()
    session, config = lab.session, lab.config
    assert not config.note.value
    config.strategy.form.controls["max_branches"].value = 6
    assert "max branches 3 → 6" in config.note.value
    assert "forks at iteration 2" in config.note.value
    lab.back()
    assert "forks at iteration 1" in config.note.value
    assert lab.state.pending
    apply(lab)
    assert (lab.session.strategy.max_branches, lab.session.cursor) == (6, 1)
    assert lab.session is not session
    assert not config.note.value
    config.strategy.choice.value = "FixedTree"
    config.session.controls["temperature"].value = 0.7
    config.session.controls["top_k"].value = "5"
    apply(lab)
    assert lab.session.strategy == FixedTree()
    assert (lab.session.settings.temperature, lab.session.settings.top_k) == (0.7, 5)
    assert len(lab.session.steps) == 1
    config.prompt.text.value = "7, 8 9"
    assert "starts a new run" in config.note.value
    config.when.value = NEXT
    apply(lab)
    assert (lab.session.prompt_ids, lab.state.cursor) == ([7, 8, 9], 0)


def test_presets_fill_the_controls_and_settings_that_contradict_each_other_disable_apply(lab):
    lab.step()
    picker = lab.config.strategy
    assert picker.preset.value == "for a low-confidence draft (not in the paper)"
    picker.form.controls["low_confidence"].value = 0.95
    assert lab.config.apply.disabled
    assert "low_confidence (0.95) is above high_confidence (0.9)" in lab.config.note.value
    picker.reset.click()
    assert not lab.state.refused
    assert picker.read() == DynaTree()
    picker.preset.value = "paper's procedure"
    assert picker.read() == DynaTree.presets()["paper's procedure"]
    picker.form.controls["max_depth"].value = 20
    assert picker.preset.value == "custom"


def test_a_pair_without_a_draft_begins_with_plain_decoding_and_says_why_others_cannot_be(make, bare):
    lab = make(bare)
    assert lab.session.strategy == Autoregressive()
    lab.step()
    lab.config.strategy.choice.value = "DynaTree"
    assert lab.config.apply.disabled
    assert "DynaTree needs a draft model" in lab.config.note.value
    lab.config.strategy.choice.value = "DualDraft"
    assert lab.config.apply.disabled
    assert "DualDraft needs 2 draft heads" in lab.config.note.value
    lab.config.strategy.form.write(DualDraft(first=TokenRecycling(), second=PromptLookup()))
    assert not lab.config.apply.disabled
    lab.config.strategy.form.write(DualDraft(first=DynaTree(), second=PromptLookup()))
    assert "DualDraft needs a draft model" in lab.config.note.value
    given = make(bare, DynaTree())
    assert given.session is None
    assert "draft" in given.state.error
    given.config.strategy.choice.value = "Autoregressive"
    assert given.step() is not None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": "once upon"}, "token ids"),
        ({"prompt": [1, 999]}, "999"),
        ({"prompt": [1] * 300}, "context"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_a_person_gets_wrong_is_said_and_leaves_the_lab_usable(make, settings, said):
    lab = make(**settings)
    assert lab.session is None
    assert said in lab.state.error
    assert len(lab.state.error.splitlines()) == 1
    lab.status.dismiss()
    lab.config.prompt.text.value = " ".join(map(str, PROMPT))
    lab.config.session.controls["max_new_tokens"].value = 40
    assert lab.step() is not None
    assert lab.state.error == ""


def test_models_that_do_not_load_are_said_and_the_session_stays(lab):
    lab.step()
    models, session = lab.config.models, lab.session
    assert models.device.disabled
    assert "stays where it is" in models.device.tooltip
    models.name.value = "own"
    assert "No target is named" in lab.config.note.value
    models.target.value = models.draft.value = "there/is-no-such-folder"
    assert lab.step() is None
    assert "there/is-no-such-folder" in lab.state.error
    lab.status.dismiss()
    apply(lab)
    assert "there/is-no-such-folder" in lab.state.error
    assert lab.state.status.endswith("is not loaded: everything stays as it was.")
    assert lab.session is session
    models.name.value = "given"
    assert lab.step() is not None
    assert lab.session is session


def test_a_strategy_of_a_notebook_cell_can_be_given_shown_changed_and_switched_back_to(make):
    class Widest(FixedTree):
        branching: int = 4
        shape: tuple[int, ...] = (1, 2)

    lab = make(strategy=Widest(depth=2))
    assert lab.config.strategy.choice.value == "Widest"
    assert lab.step() is not None
    lab.config.strategy.form.controls["depth"].value = 1
    apply(lab)
    assert lab.session.strategy == Widest(depth=1)
    lab.fork(FixedTree())
    lab.switch(0)
    assert lab.config.read().strategy == Widest(depth=2)
    assert lab.state.error == ""


def test_a_view_of_ones_own_has_a_tab(make, monkeypatch):
    monkeypatch.setattr(registry, "VIEWS", dict(registry.VIEWS))
    registry.register(registry.View("size", lambda step: f"<p>{len(step.tree)} nodes</p>", ("step",)))
    lab = make()
    lab.panels.tabs.show_tab("Size")
    step = lab.step()
    assert f"<p>{len(step.tree)} nodes</p>" in lab.panels.tabs.views["size"].drawing
