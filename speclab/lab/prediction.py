"""A question asked before the run that answers it, and a score of the answers."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isclose, isfinite
from numbers import Integral, Real
from typing import Any, ClassVar

from ipywidgets import HTML, Text, ToggleButtons, VBox

from speclab.errors import SettingsError
from speclab.lab.widgets import on_change, set_if_changed
from speclab.views.markup import escape, tag

_NUMBER = "Type a number, such as 3 or 0.5."


class Sentence(str):
    """Words that a notebook shows without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return tag("p", escape(self), style="border-left:3px solid;padding-left:8px")


class Score(dict[Any, bool]):
    """For each question that was answered and revealed: whether the answer was right."""

    def __str__(self) -> str:
        right, made = sum(self.values()), len(self)
        if not made:
            return "No prediction was made."
        return f"{right} of {made} prediction{'s' * (made > 1)} {'was' if 1 in {right, made} else 'were'} right."


class Prediction(VBox):
    """Asks what a run will give, before it is run; as the last value of a cell it shows itself.

    Args:
        question: in words.
        choices: the answers to choose from, numbers or words; without them a field for a number.
        within: how far a number may be off and still be right.

    Raises:
        SettingsError: there is no question, or fewer than two different answers to choose from.
    """

    _score: ClassVar[Score] = Score()

    def __init__(self, question: str, choices: Iterable[Any] | None = None, *, within: float = 0.0) -> None:
        known = tuple(choices) if isinstance(choices, Iterable) and not isinstance(choices, str) else None
        if not str(question).strip():
            raise SettingsError('A prediction needs a question, such as "How many tokens does this pass give?".')
        if choices is not None and len(set(map(_said, known or ()))) < 2:
            raise SettingsError(f"choices is {choices!r}: give two or more different answers, such as (1, 2, 3).")
        if not 0 <= within < inf:
            raise SettingsError(f"within is {within!r}: give how far a number may be off, such as 0.05.")
        self.question, self.choices, self.within = str(question), known, within
        self._note = HTML()
        self._field: Text | ToggleButtons
        if known is None:
            self._field = Text(
                description="Your number", placeholder="such as 3", style={"description_width": "initial"}
            )
        else:
            options = [(_said(one), one) for one in known]
            self._field = ToggleButtons(options=options, value=None, style={"button_width": "auto"})
        self._field.add_class("speclab-predicted")
        on_change(self._field, lambda _: self._follow())
        super().__init__([HTML(tag("b", escape(self.question))), self._field, self._note])

    @property
    def predicted(self) -> Any:
        """What was chosen or typed; None where there is nothing, or no number, yet."""
        value = self._field.value
        return _number(value) if self.choices is None else value

    def predict(self, answer: Any) -> None:
        """Answers in Python, as a click does.

        Raises:
            SettingsError: it is not one of the choices, or no number.
        """
        if self.choices is not None and answer not in self.choices:
            raise SettingsError(f"{answer!r} is not among the choices: {', '.join(map(_said, self.choices))}.")
        if self.choices is None and _number(str(answer)) is None:
            raise SettingsError(f"{answer!r} is no number. {_NUMBER}")
        self._field.value = answer if self.choices is not None else str(answer)

    def reveal(self, truth: Any, why: str = "") -> Sentence:
        """What it is, what was predicted, and why; from then on the answer stands, and counts.

        Raises:
            SettingsError: `truth` is words that are not among the choices, or no number where one was asked for.
        """
        number = isinstance(truth, Real)
        if not number and truth not in (self.choices or ()):
            wanted = "a number" if self.choices is None else f"one of {', '.join(map(_said, self.choices))}"
            raise SettingsError(f"The answer is {truth!r}: it should be {wanted}.")
        said, predicted = _said(truth), self.predicted
        if predicted is None:
            words = f"{said}."
        else:
            both = number and isinstance(predicted, Real)
            right = isclose(predicted, truth, rel_tol=1e-9, abs_tol=self.within) if both else predicted == truth
            self._score[self.question] = bool(right)
            set_if_changed(self._field, disabled=True)
            words = f"✓ Right, you predicted {_said(predicted)}." if right else f"✗ You predicted {_said(predicted)}."
            words += "" if right and _said(predicted) == said else f" It is {said}."
        return Sentence(f"{words} {why}".strip())

    @classmethod
    def score(cls) -> Sentence:
        """How many predictions of this kernel were right."""
        return Sentence(cls._score)

    def _follow(self) -> None:
        predicted = self.predicted
        empty = self._field.value in (None, "")
        self._note.value = "" if empty else _NUMBER if predicted is None else f"You predict {escape(_said(predicted))}."

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        answers = "a number" if self.choices is None else " · ".join(map(_said, self.choices))
        page = tag("p", tag("b", escape(self.question)) + " " + escape(f"({answers})"))
        bundle: dict[str, str] = super()._repr_mimebundle_(**options) or {}
        return {**bundle, "text/plain": f"{self.question} ({answers})", "text/html": page}


def _said(value: Any) -> str:
    """A float to three digits, everything else as it is."""
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
