"""The prompt as controls: as chat, with a system message and the user's, or as plain text; and examples of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ipywidgets import Dropdown, HBox, Textarea, VBox

from speclab.errors import PromptError
from speclab.lab.state import Prompt
from speclab.lab.widgets import on_change, set_if_changed, set_visible, toggle
from speclab.prompts import Prompt as Example
from speclab.prompts import as_messages, checked_messages, examples, is_conversation
from speclab.views.explain import plural
from speclab.views.markup import clip

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

CHAT, PLAIN = "chat", "plain text"


class PromptPicker(VBox):
    """Examples by kind, how the text is given to the models, and the text itself; at first the first example.

    `templated`: as `offer`.
    """

    def __init__(
        self, prompt: Prompt | None, pair: ModelPair | None, changed: Callable[[], None], templated: bool | None = False
    ) -> None:
        self._pair, self._templated = pair, templated
        self._before: tuple[dict[str, str], ...] = ()
        self.way = Dropdown(
            options=[CHAT, PLAIN],
            value=CHAT if templated else PLAIN,
            description="as",
            tooltip="chat: a message of the user, written by the models' chat template; plain text: continued as it is",
        )
        self.example = Dropdown(description="prompt", tooltip="shipped examples")
        words = "the text that the models continue or answer; Ctrl+Enter applies it and steps"
        self.text = Textarea(rows=3, tooltip=words).add_class("speclab-prompt")
        says = "system message; empty: what the chat template says by itself"
        self.system = Textarea(rows=2, tooltip="system message", placeholder=says).add_class("speclab-system")
        self.unfold = toggle("system-message", "System message", "what the model is told first", lambda _: self._fit())
        row = HBox([self.example, self.way, self.unfold])
        super().__init__([row, self.system, self.text], _dom_classes=["speclab-prompts"])
        if prompt is None:
            first = examples(chat=bool(templated))[0].text
            prompt = as_messages(first) if templated else first
        self.write(prompt)
        on_change(self.example, self._chosen)
        on_change(self.way, self._switched)
        for widget in (self.way, self.system, self.text):
            on_change(widget, lambda _: self._fit())
            on_change(widget, lambda _: changed())

    @property
    def caption(self) -> str:
        """`chat “Why is the sky blue?”`."""
        parts = ["chat", "with a system message"] if self.system.value.strip() else ["chat"]
        if self._before:
            parts.append(f"after {plural(len(self._before), 'message')}")
        words = f"{' '.join(parts)} " if self.way.value == CHAT else ""
        return f"{words}“{clip(' '.join(self.text.value.split()), 72)}”"

    def offer(self, templated: bool | None) -> None:
        """Whether the models have a chat template (None: not known before they are loaded): those that do, chat."""
        if templated != self._templated:
            self._templated = templated
            if templated is not None:
                set_if_changed(self.way, value=CHAT if templated else PLAIN)
            self._fit()

    def read(self) -> Prompt:
        """The prompt: as it was given if it was left alone, else the text, or messages.

        Raises PromptError where it was emptied, or made longer than the models given can take.
        """
        if self._fields() == self._written:
            return self._given
        text, pair, system = self.text.value, self._pair, self.system.value.strip()
        if not text.strip():
            raise PromptError("The prompt is empty: write a text to continue, or choose an example.")
        messages = as_messages(text, system)
        last = {"role": self._role, "content": text}
        prompt: Prompt = (*messages[:-1], *self._before, last) if self.way.value == CHAT else text
        if pair is not None and pair.tokenizer is not None and pair.context and len(text) >= pair.context:
            count = len(pair.encode(prompt))
            if count >= pair.context:
                raise PromptError(f"The prompt has {count} tokens, and these models take {pair.context}: shorten it.")
        return prompt

    def write(self, prompt: Prompt) -> None:
        """Shows this prompt; what comes between a system message and the last one stays as it is."""
        way, system, self._before, self._role = PLAIN, "", (), "user"
        if is_conversation(prompt):
            way = CHAT
            try:
                talk = [{"role": one.role, "content": one.content} for one in checked_messages(prompt)]
            except PromptError:  # said when it is decoded
                talk = [{"role": "user", "content": ""}]
            *before, last = talk
            if before and before[0]["role"] == "system":
                system = before.pop(0)["content"]
            text, self._role, self._before = last["content"], last["role"], tuple(before)
        else:
            text = _text(prompt, self._pair)
        set_if_changed(self.text, value=text)  # first: a change of the way replaces an example by one of its kind
        set_if_changed(self.system, value=system)
        set_if_changed(self.unfold, value=bool(system))
        set_if_changed(self.way, value=way)
        self._given, self._written = prompt, self._fields()
        self._fit()

    def _fields(self) -> tuple[str, str, str]:
        return self.way.value, self.system.value, self.text.value

    def _texts(self, way: str) -> list[str]:
        return [example.text for example in examples(chat=way == CHAT)]

    def _chosen(self, index: int) -> None:
        if index >= 0:
            self._before, self._role = (), "user"
            set_if_changed(self.text, value=self._texts(self.way.value)[index])

    def _switched(self, way: str) -> None:
        if self.text.value in self._texts(PLAIN if way == CHAT else CHAT):
            set_if_changed(self.text, value=self._texts(way)[0])

    def _fit(self) -> None:
        """The examples of the way chosen, and what it needs."""
        chat = self.way.value == CHAT
        set_visible(self.way, visible=chat or self._templated is not False)
        set_visible(self.unfold, visible=chat)
        set_visible(self.system, visible=chat and self.unfold.value)
        named = [(f"{example.kind} · {example.name}", i) for i, example in enumerate(examples(chat=chat))]
        options, texts = (("your own text", -1), *named), self._texts(self.way.value)
        index = texts.index(self.text.value) if self.text.value in texts else -1
        set_if_changed(self.example, options=options)
        set_if_changed(self.example, value=index)


def examples_in_turn(count: int, *, chat: bool) -> list[Example]:
    """So many shipped examples: the first of each kind, then the second of each."""
    found = examples(chat=chat)
    turn = {one: [each for each in found if each.kind == one.kind].index(one) for one in found}
    return sorted(found, key=lambda one: turn[one])[:count]


def _text(prompt: Prompt, pair: ModelPair | None) -> str:
    if isinstance(prompt, str):
        return prompt
    if pair is not None and pair.tokenizer is not None:
        from speclab.models.tokens import whole_numbers

        return pair.decode(whole_numbers(prompt))
    return " ".join(str(token) for token in prompt)
