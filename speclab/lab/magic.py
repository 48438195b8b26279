"""`%%speculate`: the lab on the text of a cell. `%load_ext speclab` makes it known."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from speclab.drafters import strategies
from speclab.drafters.base import Strategy
from speclab.errors import PromptError, SettingsError, SpeclabError
from speclab.lab.lab import Lab
from speclab.settings import SessionSettings, assignments

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

_MODELS = ("target", "draft", "heads", "device", "dtype")


def register(shell: Any) -> None:
    """Makes `%%speculate` known to an IPython shell."""

    def speculate(line: str, cell: str) -> Lab:
        """Shows the lab on the text of the cell.

        %%speculate [STRATEGY] [SETTING=VALUE ...] [pair=NAME] [target=ID draft=ID device=cuda ...] [--name VARIABLE]

        STRATEGY is a name that speclab.strategies() lists; settings are the strategy's own and the session's, such as
        temperature=0.7 max_new_tokens=64 seed=1. pair is a variable that holds models, or the name of a preset. With
        --name the lab is kept in a variable too.
        """
        try:
            return _lab(shell.user_ns, line, cell)
        except SpeclabError as error:
            raise UsageError(str(error)) from None

    shell.register_magic_function(speculate, "cell")


def _lab(variables: dict[str, Any], line: str, cell: str) -> Lab:
    kind, assigned, name = _read(line)
    prompt = cell.removesuffix("\n")  # the one that IPython ends every cell with
    if not prompt.strip():
        raise PromptError("The cell is empty: write the prompt below the line of %%speculate.")
    models = {key: assigned.pop(key) for key in (*_MODELS, "pair") if key in assigned}
    session = {key: assigned.pop(key) for key in list(assigned) if key in SessionSettings.model_fields}
    strategy = _strategy(kind, assigned)
    settings = SessionSettings(**session).model_dump(include=set(session))  # before any model is loaded
    lab = Lab(_pair(variables, models), strategy, prompt=prompt, **settings)
    if name:
        variables[name] = lab
    return lab


def _read(line: str) -> tuple[str, dict[str, Any], str]:
    """The name of a strategy, what is assigned, and the variable for the lab."""
    try:
        words = shlex.split(line)
    except ValueError:
        raise SettingsError("A quote is opened and not closed in the line of %%speculate.") from None
    name = ""
    if "--name" in words:
        at = words.index("--name")
        name = words[at + 1] if len(words) > at + 1 else ""
        if not name.isidentifier():
            raise SettingsError("--name takes the name of a variable, such as --name lab.")
        del words[at : at + 2]
    kind = words.pop(0) if words and "=" not in words[0] else ""
    return kind, assignments(words), name


def _strategy(kind: str, own: dict[str, Any]) -> Strategy | None:
    """The strategy with its own settings; None for the lab's choice."""
    known = strategies()
    if kind and kind not in known:
        raise SettingsError(f"There is no strategy {kind!r}: choose one of {', '.join(known)}.")
    if not kind and own:
        settings = ", ".join(SessionSettings.model_fields)
        raise SettingsError(
            f"{next(iter(own))!r} is no setting of a session ({settings}): to set it for a strategy, name that first."
        )
    return known[kind](**own) if kind else None


def _pair(variables: dict[str, Any], models: dict[str, Any]) -> ModelPair | None:
    """ModelChoice that a variable holds, or those named; None for the shipped ones, loaded when they are needed."""
    if not models:
        return None
    from speclab.models.pair import ModelPair, load_pair

    name = str(models.pop("pair", "mini"))
    held = variables.get(name)
    if not isinstance(held, ModelPair):
        return load_pair(name, **models)
    if models:
        raise SettingsError(f"{name} holds models already: leave out {', '.join(models)}.")
    return held
