"""Questions to answer before a run."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from math import isclose, isfinite
from numbers import Integral, Real
from typing import Any

from ipywidgets import HTML, Text, ToggleButtons, VBox

from speclab.errors import SettingsError

_NUMBER = "Type a number, such as 3 or 0.5."


class Sentence(str):
    """Text that a notebook shows without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f'<p style="border-left:3px solid;padding-left:8px">{escape(self)}</p>'


class Prediction(VBox):
    """A question about the result of a run, to be answered before the run.

    Args:
        question: the text of the question.
        choices: the answers to choose from, numbers or words; without choices the answer is a
            number.
        within: tolerance for a number.

    Raises:
        SettingsError: the question is empty, or there are fewer than two different choices.
    """

    def __init__(
        self, question: str, choices: Iterable[Any] | None = None, *, within: float = 0.0
    ) -> None:
        if not question.strip():
            raise SettingsError(
                'A prediction needs a question, such as "How many tokens does this pass give?".'
            )
        self.question = question
        self.choices = None if choices is None else tuple(choices)
        self.within = within
        self._note = HTML()
        self._field: Any = Text(description="Your number", placeholder="such as 3")
        if self.choices is not None:
            options = {_written(choice): choice for choice in self.choices}
            if len(options) < 2:
                raise SettingsError(
                    f"choices is {choices!r}: give two or more different answers, such as (1, 2, 3)."
                )
            self._field = ToggleButtons(options=options, value=None)
        self._field.observe(self._follow, names="value")
        super().__init__([HTML(f"<b>{escape(question)}</b>"), self._field, self._note])

    @property
    def predicted(self) -> Any:
        """The chosen or typed answer; None if there is none yet."""
        return _number(self._field.value) if self.choices is None else self._field.value

    def predict(self, answer: Any) -> None:
        """Answer in Python instead of by a click.

        Raises:
            SettingsError: `answer` is not one of the choices, or not a number.
        """
        if self.choices is None:
            answer = str(answer)
            if _number(answer) is None:
                raise SettingsError(f"{answer!r} is not a number. {_NUMBER}")
        elif answer not in self.choices:
            raise SettingsError(
                f"{answer!r} is not among the choices: {', '.join(map(_written, self.choices))}."
            )
        self._field.value = answer

    def reveal(self, truth: Any, why: str = "") -> Sentence:
        """Compare the prediction with the truth and explain; the answer is then final.

        Raises:
            SettingsError: `truth` is neither a number nor one of the choices.
        """
        if not isinstance(truth, Real) and truth not in (self.choices or ()):
            raise SettingsError(
                f"The answer is {truth!r}: it should be a number or one of the choices."
            )
        predicted = self.predicted
        words = f"{_written(truth)}."
        if predicted is not None:
            right = predicted == truth
            if isinstance(truth, Real) and isinstance(predicted, Real):
                right = isclose(predicted, truth, rel_tol=1e-9, abs_tol=self.within)
            self._field.disabled = True
            words = f"✗ You predicted {_written(predicted)}."
            if right:
                words = f"✓ Right, you predicted {_written(predicted)}."
            if not right or _written(predicted) != _written(truth):
                words += f" It is {_written(truth)}."
        return Sentence(f"{words} {why}".strip())

    def _follow(self, _change: object) -> None:
        """Say what a field expects that holds no number."""
        wrong = self._field.value and self.predicted is None
        self._note.value = _NUMBER if wrong else ""

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        answers = "a number" if self.choices is None else " · ".join(map(_written, self.choices))
        bundle: dict[str, str] = super()._repr_mimebundle_(**options) or {}
        html = f"<p><b>{escape(self.question)}</b> ({escape(answers)})</p>"
        return {**bundle, "text/plain": f"{self.question} ({answers})", "text/html": html}


def _written(value: Any) -> str:
    """Format a float with three digits, other values with `str`."""
    if not isinstance(value, Real) or isinstance(value, Integral) or not isfinite(value):
        return str(value)
    number = float(value)
    return f"{number:.3g}" if abs(number) < 100 and number % 1 else f"{number:.0f}"


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return None
    return value if isfinite(value) else None
