"""What to continue: a shipped example, or a text of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ipywidgets import Dropdown, Textarea, VBox

from speclab.lab.choices import Prompt
from speclab.lab.sync import assign, on_change
from speclab.prompts import examples

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class PromptPicker(VBox):
    """Examples by kind, and the text itself."""

    def __init__(self, prompt: Prompt | None, pair: ModelPair | None, changed: Callable[[], None]) -> None:
        self._examples = examples()
        first = self._examples[0].text if prompt is None else prompt
        self._given, self._given_text = first, _text(first, pair)
        named = [(f"{example.kind} · {example.name}", i) for i, example in enumerate(self._examples)]
        self.example = Dropdown(
            options=[("your own text", -1), *named], description="Prompt", tooltip="shipped examples"
        )
        self.text = Textarea(
            value=self._given_text, description="", tooltip="the text that the models continue", rows=3
        )
        self.text.placeholder = "a text to continue"
        self.text.add_class("speclab-prompt")
        super().__init__([self.example, self.text])
        self.add_class("speclab-prompts")
        self._fit()
        on_change(self.example, self._chosen)
        on_change(self.text, lambda _: self._fit())
        on_change(self.text, lambda _: changed())

    def read(self) -> Prompt:
        """The prompt: token ids if they were given as such and left alone, else the text."""
        return self._given if self.text.value == self._given_text else str(self.text.value)

    def write(self, prompt: Prompt) -> None:
        """Shows this prompt."""
        own = prompt if isinstance(prompt, str) else _text(prompt, None)
        assign(self.text, value=self._given_text if prompt == self._given else own)

    def _chosen(self, index: int) -> None:
        if index >= 0:
            assign(self.text, value=self._examples[index].text)

    def _fit(self) -> None:
        found = [i for i, example in enumerate(self._examples) if example.text == self.text.value]
        assign(self.example, value=found[0] if found else -1)


def _text(prompt: Prompt, pair: ModelPair | None) -> str:
    if isinstance(prompt, str):
        return prompt
    if pair is not None and pair.tokenizer is not None:
        return pair.decode(prompt)
    return " ".join(str(token) for token in prompt)
