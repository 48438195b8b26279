"""What the page's form asks of a lab: other models, another strategy, text or length."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NotRequired, Unpack

from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

from speclab.drafters import strategies
from speclab.errors import SpeclabError
from speclab.lab._commands import command
from speclab.lab._form import FORM, LabConfig, offered, with_models, with_prompt

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.lab._runs import Runs


class FormStrategy(TypedDict):
    """A strategy as the page's form has it."""

    name: str
    settings: NotRequired[dict[str, Any]]


class FormParts(TypedDict, total=False):
    """What the page's form may send: the parts that were changed."""

    models: dict[str, Any] | None
    strategy: FormStrategy
    prompt: str
    session: dict[str, Any]


class Setup:
    """The form of a lab. It changes the setup that the next Step applies."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.state = runs.state
        self._typed: dict[str, Any] = {}  # settings of a refused strategy

    @command()
    def on_want(self, **parts: Unpack[FormParts]) -> None:
        """Take over parts of the form; a refused part shows its error and changes nothing."""
        given: dict[str, Any] = {**parts}
        state = self.state
        for part in FORM:
            if part in given:
                state.mend([part])
                try:
                    state.wanted = self._changed(part, given[part])
                except SpeclabError as error:
                    state.fail(part, str(error))
        if "strategy" not in state.errors:
            offer = offered(state.wanted.models, state.given)
            if sentence := state.wanted.strategy.missing(offer):
                state.fail("strategy", sentence)
        # many changes may wait while a slider is dragged: the features answer the last one
        self.runs.worker.submit(self._tell, where="page", key="form")

    @command()
    def on_reset(self) -> None:
        """Take over the setup of the run shown."""
        self._typed = {}
        self.state.mend(FORM)
        if self.state.applied is not None:
            self.state.wanted = self.state.applied
        self.on_want()

    def _tell(self) -> None:
        for part in self.runs.parts:
            part.form_changed()

    def _changed(self, part: str, value: Any) -> LabConfig:
        config = self.state.wanted
        match part:
            case "models":
                config = with_models(config, value, self.state.given)
                self.state.mend(["strategy"])  # it may suit the new models
            case "strategy":
                strategy = self._strategy(value["name"], value.get("settings", {}))
                config = replace(config, strategy=strategy)
            case "session":
                config = replace(config, settings=config.settings.changed(**value))
            case "prompt":
                config = with_prompt(config, value)
        return config

    def _strategy(self, name: str, settings: dict[str, Any]) -> Strategy:
        former = self.state.wanted.strategy
        if type(former).__name__ == name:
            # settings that contradict each other are kept until a later one mends them
            settings = self._typed = former.model_dump() | self._typed | settings
        strategy = strategies()[name](**settings)
        self._typed = {}
        return strategy
