"""The setup of a run: one line, and the form that Change unfolds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from ipywidgets import (
    HTML,
    BoundedIntText,
    Dropdown,
    FloatText,
    HBox,
    IntText,
    Text,
    Textarea,
    ToggleButton,
    VBox,
)

from speclab.drafters import strategies
from speclab.errors import PromptError, SettingsError, SpeclabError
from speclab.lab.state import LabConfig, LabState, ModelChoice, prompt_text
from speclab.loading.presets import PRESETS
from speclab.prompts import as_messages, examples, is_conversation

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.pair import ModelPair

GIVEN = "given"
OWN = "own"
CUSTOM = "custom"
DEVICES = (("automatic", None), ("CPU", "cpu"), ("CUDA", "cuda"), ("Apple GPU", "mps"))
PRESETS_SHOWN = 3


def setup_line(config: LabConfig, pair: ModelPair | None) -> str:
    """`SmolLM2-135M-Instruct · 2 draft heads · DynaTree · “What is …” · greedy`."""
    name = (
        str(config.models)
        if config.models is not None
        else (pair.name if pair else "") or "given models"
    )
    heads, draft = heads_and_draft(config.models, pair)
    drafts = (
        "draft model"
        if draft
        else {0: "no draft", 1: "draft head"}.get(heads, f"{heads} draft heads")
    )
    prompt = shorten(prompt_text(config.prompt), 60, placeholder=" …")
    temperature = config.settings.temperature
    way = f"temperature {temperature:g}" if temperature else "greedy"
    return " · ".join([name, drafts, type(config.strategy).__name__, f"“{prompt}”", way])


def heads_and_draft(choice: ModelChoice | None, pair: ModelPair | None) -> tuple[int, bool]:
    """The number of draft heads and whether there is a draft model; loads nothing."""
    if choice is None:
        return (len(pair.heads), pair.draft is not None) if pair is not None else (0, False)
    if choice.name:
        return len(PRESETS[choice.name].heads), PRESETS[choice.name].draft is not None
    return len(choice.heads), bool(choice.draft)


def _block_heads(choice: ModelChoice | None, pair: ModelPair | None) -> bool:
    """Whether one of the heads drafts a whole block; of heads by name that is not known before they are loaded."""
    if choice is None:
        return pair is not None and bool(pair.block_heads)
    return PRESETS[choice.name].has_block_head if choice.name else True


def lacking(strategy: Strategy, choice: ModelChoice | None, pair: ModelPair | None) -> str:
    """A sentence on the draft that the strategy needs and the models lack; empty if nothing is missing."""
    heads, draft = heads_and_draft(choice, pair)
    name = type(strategy).__name__
    if strategy.needs_block and not _block_heads(choice, pair):
        return f"{name} needs a block head and these models have none."
    if strategy.heads_needed > heads:
        return f"{name} needs {strategy.heads_needed} draft heads and these models have {heads}."
    if strategy.needs_draft and not (heads or draft):
        return f"{name} needs a draft model or a draft head and these models have none."
    return ""


def presets_of(kind: type[Strategy]) -> dict[str, Strategy]:
    """A strategy's named settings: the default if there is one, and the first few presets."""
    needs = any(field.is_required() for field in kind.model_fields.values())
    return {
        **({} if needs else {"default": kind()}),
        **dict(list(kind.presets().items())[:PRESETS_SHOWN]),
    }


class SetupForm(VBox):
    """Models, strategy, preset, prompt, length, temperature; device, seed and top-p behind
    Advanced.

    The form is built when it is first unfolded; it reads and writes `state.wanted`. `edited`:
    called after a change.
    """

    def __init__(self, state: LabState, pair: ModelPair | None, edited: Callable[[], None]) -> None:
        super().__init__(_dom_classes=["speclab-form"])
        self._state = state
        self._pair = pair
        self._edited = edited
        self._writing = False
        self.layout.display = "none"
        state.observe(lambda _: self._write(), names="wanted")
        state.observe(lambda _: self._write_error(), names="error")
        state.observe(lambda change: self._fold(change), names="busy")

    def toggle(self) -> None:
        """Unfold or fold the form."""
        if not self.children:
            self._build()
            self._write()
        self.layout.display = "none" if self.layout.display is None else None

    def _fold(self, change: dict[str, Any]) -> None:
        applied = self._state.applied == self._state.wanted
        if (
            change["old"]
            and not change["new"]
            and applied
            and not self._state.error
            and self.layout.display is None
        ):
            self.layout.display = "none"

    def _build(self) -> None:
        given = [(self._pair.name or "given in Python", GIVEN)] if self._pair is not None else []
        presets = [(_label(name), name) for name in PRESETS]
        self.models = Dropdown(
            options=[*given, *presets, ("your own …", OWN)], description="models"
        )
        self.target = Text(description="target", placeholder="hub id or folder")
        self.draft = Text(description="draft", placeholder="hub id or folder, or empty")
        self.heads = Text(
            description="draft heads", placeholder="folders or hub ids, commas between them; or mtp"
        )
        self.own = HBox([self.target, self.draft, self.heads], _dom_classes=["speclab-own"])
        self.strategy = Dropdown(options=list(strategies(by_hand=False)), description="strategy")
        self.preset = Dropdown(options=[CUSTOM], description="preset")
        self.length = BoundedIntText(min=1, max=2**31 - 1, description="length")
        self.temperature = FloatText(step=0.1, description="temperature")
        self.example = Dropdown(description="example")
        self.prompt = Textarea(rows=2, description="prompt", _dom_classes=["speclab-prompt"])
        self.note = HTML(_dom_classes=["speclab-form-error"])
        self.unfold = ToggleButton(description="Advanced", tooltip="device, seed, top-p")
        self.device = Dropdown(options=DEVICES, description="device")
        self.seed = IntText(description="seed")
        self.top_p = Text(description="top-p", placeholder="all tokens")
        self.advanced = HBox([self.device, self.seed, self.top_p])
        self.strategy.add_class("speclab-strategy")
        self.children = [
            HBox([self.models, self.strategy, self.preset]),
            self.own,
            HBox([self.example, self.length, self.temperature]),
            self.prompt,
            self.note,
            HBox([self.unfold, self.advanced]),
        ]
        self.strategy.observe(self._strategy_chosen, names="value")
        self.preset.observe(self._preset_chosen, names="value")
        self.example.observe(self._example_chosen, names="value")
        self.models.observe(lambda _: self._fit(), names="value")
        self.unfold.observe(lambda _: self._fit(), names="value")
        fields = (
            self.models, self.target, self.draft, self.heads, self.length, self.temperature, self.prompt,
            self.device, self.seed, self.top_p,
        )  # fmt: skip
        for field in fields:
            field.observe(lambda _: self._read(), names="value")
        self.children[0].children[0].layout.flex = "2"

    # From the form to the wanted settings.

    def _read(self, **changes: Any) -> None:
        if self._writing:
            return
        state = self._state
        try:
            choice = self._choice()
            wanted = replace(
                state.wanted,
                models=choice,
                prompt=self._prompt(choice),
                settings=self._settings(),
                **changes,
            )
            if sentence := lacking(wanted.strategy, choice, self._pair):
                raise SettingsError(sentence)
        except SpeclabError as error:
            state.fail("prompt", str(error))
        else:
            if state.where == "prompt":
                state.fail("", "")
            state.wanted = wanted
        self._edited()

    def _choice(self) -> ModelChoice | None:
        if self.models.value == GIVEN:
            return None
        if self.models.value != OWN:
            return ModelChoice(self.models.value, device=self.device.value)
        if not self.target.value.strip():
            raise SettingsError("Name a target: a hub id or a folder.")
        heads = tuple(head.strip() for head in self.heads.value.split(",") if head.strip())
        return ModelChoice(
            "", self.target.value.strip(), self.draft.value.strip(), heads, self.device.value
        )

    def _prompt(self, choice: ModelChoice | None) -> Any:
        """The given prompt if its text is unchanged; else a message for chat models, or plain text."""
        wanted = self._state.wanted
        text = self.prompt.value
        if not text.strip():
            raise PromptError("The prompt is empty: write a text, or choose an example.")
        chats = chats_with(choice, self._pair)
        was_chat = is_conversation(wanted.prompt)
        same_models = choice == wanted.models
        if text == prompt_text(wanted.prompt) and (same_models or was_chat == chats):
            return wanted.prompt
        if not (was_chat if same_models else chats):
            return text
        before = wanted.prompt[:-1] if was_chat else ()
        return (*before, *as_messages(text))

    def _settings(self) -> Any:
        top_p = self.top_p.value.strip()
        try:
            share = float(top_p) if top_p else None
        except ValueError:
            raise SettingsError(
                f"top-p is {top_p!r}: write a number above 0 and up to 1, or leave it empty."
            ) from None
        return self._state.wanted.settings.changed(
            max_new_tokens=self.length.value,
            temperature=self.temperature.value,
            seed=self.seed.value,
            top_p=share,
        )

    def _strategy_chosen(self, change: dict[str, Any]) -> None:
        if self._writing:
            return
        kind = strategies()[change["new"]]
        try:
            self._read(strategy=next(iter(presets_of(kind).values()), None) or kind())
        except SpeclabError as error:
            self._state.fail("prompt", str(error))

    def _preset_chosen(self, change: dict[str, Any]) -> None:
        chosen = presets_of(type(self._state.wanted.strategy)).get(change["new"])
        if chosen is not None and not self._writing:
            self._read(strategy=chosen)

    def _example_chosen(self, change: dict[str, Any]) -> None:
        if change["new"] and not self._writing:
            self.prompt.value = change["new"]

    # From the wanted settings to the form.

    def _write(self) -> None:
        wanted = self._state.wanted
        if not self.children or self._writing:
            return
        self._writing = True
        try:
            choice = wanted.models
            self.models.value = GIVEN if choice is None else choice.name or OWN
            if choice is not None:
                self.device.value = choice.device
                if not choice.name:
                    self.target.value = choice.target
                    self.draft.value = choice.draft
                    self.heads.value = ", ".join(choice.heads)
            name = type(wanted.strategy).__name__
            if name not in self.strategy.options:  # defined in a notebook cell
                self.strategy.options = [*self.strategy.options, name]
            self.strategy.value = name
            presets = presets_of(type(wanted.strategy))
            self.preset.options = [*presets, CUSTOM]
            self.preset.value = next(
                (key for key, one in presets.items() if one == wanted.strategy), CUSTOM
            )
            if self.prompt.value != prompt_text(wanted.prompt):
                self.prompt.value = prompt_text(wanted.prompt)
            shipped = examples(chat=is_conversation(wanted.prompt))
            self.example.options = [
                ("your own", ""),
                *((f"{one.kind} · {one.name}", one.text) for one in shipped),
            ]
            texts = {one.text for one in shipped}
            self.example.value = self.prompt.value if self.prompt.value in texts else ""
            self.length.value = wanted.settings.max_new_tokens
            self.seed.value = wanted.settings.seed
            self.temperature.value = wanted.settings.temperature
            self.top_p.value = "" if wanted.settings.top_p is None else f"{wanted.settings.top_p:g}"
        finally:
            self._writing = False
        self._fit()

    def _write_error(self) -> None:
        if self.children:
            own = self._state.error if self._state.where == "prompt" else ""
            self.note.value = f'<span role="alert">{escape(own)}</span>' if own else ""

    def _fit(self) -> None:
        self.own.layout.display = None if self.models.value == OWN else "none"
        self.advanced.layout.display = None if self.unfold.value else "none"
        self.preset.layout.display = None if len(self.preset.options) > 1 else "none"
        sampled = bool(self._state.wanted.settings.temperature)
        self.seed.disabled = self.top_p.disabled = not sampled


def chats_with(choice: ModelChoice | None, pair: ModelPair | None) -> bool:
    """Whether these models take messages, according to the preset or the pair's template."""
    if choice is None:
        return pair is not None and pair.chats
    return bool(choice.name) and PRESETS[choice.name].chat


def _label(name: str) -> str:
    preset = PRESETS[name]
    if preset.missing:
        return f"{name} (not here: speclab fetch {name})"
    size = preset.weight_bytes("float16")
    return f"{name} · {size / 2**30:.1f} GiB" if size >= 2**27 else f"{name} (shipped)"
