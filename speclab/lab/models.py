"""Which models: picked or named, what they would take of the memory, and loaded while the lab stays awake."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from ipywidgets import HTML, Dropdown, HBox, Text

from speclab.errors import CancelledError, ModelNotFoundError, PromptError
from speclab.files import byte_count
from speclab.lab.state import ModelChoice, Prompt
from speclab.lab.widgets import on_change, set_if_changed, set_visible
from speclab.lab.worker import Worker
from speclab.models.presets import PRESETS
from speclab.views.markup import escape, tag

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

PACE = 0.25
"""Seconds between two lines about a load."""


class Loading:
    """One load, on a thread of its own.

    A library at work cannot be interrupted from outside. A load that is left behind, which a Stop (`stopped`) does,
    ends at its next report; what it still brings is dropped.
    """

    def __init__(self, models: ModelChoice, stopped: Event) -> None:
        self.name = "/".join(Path(models.target or models.name).parts[-2:])
        self._models, self._status = models, f"Loading {self.name}…"
        self._loaded: Future[ModelPair] = Future()
        self._stopped, self._left = stopped, False
        Thread(target=self._work, name="speclab-loading", daemon=True).start()

    def pair(self, say: Callable[[str], None]) -> ModelPair:
        """Waits for the models, telling `say` what is being done; raises as `load_pair`, or that it was left."""
        say(f"Loading {self.name}…")
        while not wait([self._loaded], PACE).done:
            if self._stopped.is_set():
                self._left = True
                raise CancelledError(
                    f"Stopped loading {self.name}: everything stays as it was, and what cannot be cut short is dropped "
                    "when it ends."
                )
            say(self._status)
        failed = self._loaded.exception() is not None
        say(f"{self.name} is {'not loaded: everything stays as it was' if failed else 'loaded: Step decodes with it'}.")
        return self._loaded.result()

    def _work(self) -> None:
        try:
            import speclab.engine.session  # noqa: F401  # with all it needs, some seconds the first time: here Stop is heard
            from speclab.models.pair import load_pair

            self._loaded.set_result(load_pair(**self._models.arguments(), report=self._report))
        except BaseException as error:  # whoever waits for the pair gets it
            self._loaded.set_exception(error)

    def _report(self, sentence: str) -> None:
        if self._left:
            raise CancelledError(f"Nobody waits for {self.name} any more.")
        self._status = sentence


class LoadedModels:
    """The models of a lab: those it was given, or the newest it loaded; `say` hears what a load is doing."""

    def __init__(self, given: ModelPair | None, stopped: Event, say: Callable[[str], None]) -> None:
        self.pair, self._given = given, given
        self._choice: ModelChoice | None = None
        self._expected: tuple[ModelChoice | None, Loading] | None = None
        self._stopped, self._say = stopped, say

    def expect(self, models: ModelChoice | None) -> None:
        """Begins to load this choice while a recording is looked at; what goes wrong is said when it is asked for."""
        if self.pair is None and self._expected is None:
            self._expected = models, Loading(models or ModelChoice(), self._stopped)

    def load(self, models: ModelChoice | None) -> ModelPair:
        """The pair of this choice, None for the given one; loaded once. Where it fails, the former stays."""
        if models is None and self._given is not None:
            self.pair, self._choice = self._given, None
        elif self.pair is None or self.pair is self._given or models != self._choice:
            expected, self._expected = self._expected, None
            begun = expected[1] if expected is not None and expected[0] == models else None
            self.pair = (begun or Loading(models or ModelChoice(), self._stopped)).pair(self._say)
            self._choice = models
        assert self.pair is not None
        return self.pair

    def usage(self) -> str:
        """The memory in use where the models are, and which faster way of passes failed; none before there are any."""
        if self.pair is None:
            return ""
        from speclab.models.memory import usage

        return usage(self.pair.target.device)


def token_ids(pair: ModelPair, written: str) -> list[int]:
    """Ids of a text as the views show it (`␣the`), or those written as #17 #4."""
    words = written.replace("#", " ").replace(",", " ").split()
    if all(word.isdecimal() for word in words) and words and ("#" in written or pair.tokenizer is None):
        return [int(word) for word in words]
    if pair.tokenizer is None:
        raise PromptError("This pair has no tokenizer: write token ids, such as 5 17 3.")
    text = written.replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t")
    return list(pair.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) or pair.encode("")


def prompt_ids(pair: ModelPair, prompt: Prompt) -> Prompt:
    """Text as it is; for a pair without a tokenizer, the ids that are written in it."""
    if pair.tokenizer is not None or not isinstance(prompt, str):
        return prompt
    return token_ids(pair, prompt) if prompt.strip() else []


PATIENCE = 0.4
"""Seconds without a change before anything is looked up: a name half typed is nobody's."""
_log = logging.getLogger(__name__)


class MemoryNote(HTML):
    """Looks on a thread of its own, so that neither typing nor decoding waits for a disk or a hub."""

    def __init__(self) -> None:
        super().__init__(_dom_classes=["speclab-memory"])
        self._worker = Worker(lambda: None)

    def look(self, models: ModelChoice | None) -> None:
        """Says what they take, as soon as it is known; None says nothing. Only the newest counts."""
        if models is None:
            self._worker.cancel()
            set_if_changed(self, value="")
            return
        set_if_changed(self, value=tag("span", "Looking up their size…", class_="sl-muted"))
        self._worker.submit(lambda: self._look(models), key="look", yields=True)

    def close(self) -> None:
        """Ends the thread."""
        self._worker.close()
        super().close()

    def _look(self, models: ModelChoice) -> None:
        if self._worker.cancelled.wait(PATIENCE):
            return
        words, fine = _words(models)
        if not self._worker.cancelled.is_set():
            set_if_changed(self, value=tag("span", escape(words), class_="sl-muted" if fine else "sl-bad"))


def _words(models: ModelChoice) -> tuple[str, bool]:
    """What is known of these models, and whether they could be loaded."""
    heads = ", ".join([Path(head).name for head in models.all_heads])
    return (f"Draft heads: {heads}." if heads else ""), True


GIVEN, OWN = "given", "own"
AUTOMATIC = "automatic"  # a list cannot show an option whose value is None
_DEVICES = ((AUTOMATIC, AUTOMATIC), ("CPU", "cpu"), ("CUDA", "cuda"), ("Apple GPU", "mps"))
_DTYPES = (AUTOMATIC, "float32", "float16", "bfloat16")


class ModelPicker(HBox):
    """Shipped models, presets, a hub id or folder of one's own, or the pair that the lab was given.

    `device` and `dtype` stand elsewhere, among what is seldom changed.
    """

    def __init__(self, pair: ModelPair | None, first: ModelChoice | None, changed: Callable[[], None]) -> None:
        given = [(pair.name or "given in the notebook", GIVEN)] if pair else []
        presets = [(_label(name), name) for name in PRESETS]
        self.name = Dropdown(
            options=[*given, *presets, ("your own…", OWN)],
            value=first.name if first else GIVEN,
            description="models", tooltip="target and draft; memory in half precision",
        )  # fmt: skip
        self.device = Dropdown(options=_DEVICES, description="device")
        self.dtype = Dropdown(options=_DTYPES, description="precision")
        one, many = "hub id or folder", "hub ids or folders, or empty"
        self.target = Text(description="target", placeholder=one, tooltip="the model whose text is decoded")
        self.draft = Text(description="draft", placeholder=f"{one}, or empty", tooltip="the small model that drafts")
        self.heads = Text(
            description="draft heads", placeholder=many, tooltip="draft heads for the target, commas between them"
        )
        self._own = self.target, self.draft, self.heads
        self.memory = MemoryNote()
        super().__init__([self.name, *self._own, self.memory], _dom_classes=["speclab-models"])
        for widget in (self.name, self.device, self.dtype, *self._own):
            on_change(widget, lambda _: self._fit())
            on_change(widget, lambda _: changed())
            on_change(widget, lambda _: self.look())
        self._fit()

    def read(self) -> ModelChoice | None:
        """The choice, None for the pair given; raises ModelNotFoundError where no target of one's own is named."""
        if self.name.value == GIVEN:
            return None
        device, dtype = (None if way.value == AUTOMATIC else way.value for way in (self.device, self.dtype))
        if self.name.value != OWN:
            return ModelChoice(self.name.value, device=device, dtype=dtype)
        if not self.target.value.strip():
            raise ModelNotFoundError("No target is named: write a hub id or a folder, or choose a pair from the list.")
        heads = tuple(head.strip() for head in self.heads.value.split(",") if head.strip())
        return ModelChoice("", self.target.value.strip(), self.draft.value.strip(), device, dtype, heads)

    def look(self) -> None:
        """Says what the choice would take of the memory, in a while."""
        try:
            self.memory.look(self.read())
        except ModelNotFoundError:  # no target yet: said where Step is
            self.memory.look(None)

    def _fit(self) -> None:
        given = self.name.value == GIVEN
        for widget in self._own:
            set_visible(widget, visible=self.name.value == OWN)
        for widget, what in (
            (self.device, "automatic takes CUDA if there is one"),
            (self.dtype, "automatic: float32 on the CPU, the checkpoint's own on a GPU"),
        ):
            set_if_changed(widget, disabled=given, tooltip="the given pair stays where it is" if given else what)


def drafts_of(choice: ModelChoice | None, pair: ModelPair | None) -> tuple[bool, int]:
    """Whether models come with a draft model, and how many draft heads; the choice None is the pair given."""
    if choice is None:
        return (pair.draft is not None, len(pair.heads)) if pair else (False, 0)
    model = bool(choice.draft) if choice.target else PRESETS[choice.name].draft is not None
    return model, len(choice.all_heads)


def has_template(choice: ModelChoice | None, pair: ModelPair | None) -> bool | None:
    """Whether the models have a chat template; None where that is known when they are loaded. Loads nothing."""
    if choice is None:
        return pair is not None and pair.chats
    if not choice.target:
        return PRESETS[choice.name].chat
    try:
        folder = Path(choice.target).expanduser()
        own = (folder / "chat_template.jinja").is_file()
        return own or "chat_template" in (folder / "tokenizer_config.json").read_text(encoding="utf-8") or None
    except (OSError, RuntimeError, ValueError):  # no folder, too long a name, no home directory, no text
        return None


def describe_models(choice: ModelChoice | None, pair: ModelPair | None) -> list[str]:
    """The target's name, and what there is to draft with."""
    if choice is None:
        name = (pair.name or "given models") if pair else ""
    else:
        name = "/".join(Path(choice.target).parts[-2:]) or _shown_name(choice.name)
    model, heads = drafts_of(choice, pair)
    drafts = ["draft model" if model else "", ["", "draft head", f"{heads} heads"][min(heads, 2)]]
    return [name, ", ".join(filter(None, drafts)) or "no draft"]


def _label(name: str) -> str:
    size = PRESETS[name].weight_bytes("float16")
    missing = f" (not here: speclab fetch {name})" if PRESETS[name].missing else ""
    return f"{name} · {byte_count(size)}{missing}" if size >= 2**27 else f"{name} (shipped)"


def _shown_name(name: str) -> str:
    """A fetched model is called as its folder is."""
    return Path(PRESETS[name].target).name if PRESETS[name].hub else name
