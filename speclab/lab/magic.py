"""`%%speculate`: the lab on the text of a cell. `%load_ext speclab` makes it known."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from speclab.drafters import strategies
from speclab.drafters.base import Strategy
from speclab.errors import PromptError, SettingsError, SpeclabError
from speclab.lab.lab import Lab
from speclab.prompts import as_messages
from speclab.settings import SessionSettings, assignments

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

_MODELS = ("target", "draft", "heads", "device", "dtype")


def register(shell: Any) -> None:
    """Makes `%%speculate` known to an IPython shell."""

    def speculate(line: str, cell: str) -> Lab:
        """Shows the lab on the text of the cell.

        %%speculate [STRATEGY] [SETTING=VALUE ...] [pair=NAME] [target=ID draft=ID device=cuda ...]
                    [--chat] [--system "TEXT"] [--name VARIABLE]

        STRATEGY is a name that speclab.strategies() lists; settings are the strategy's own and the session's, such as
        temperature=0.7 max_new_tokens=64 seed=1. pair is a variable that holds models, or the name of a preset. The
        cell is continued as plain text; with --chat it is a message of the user, for models with a chat template, and
        --system puts a system message before it. With --name the lab is kept in a variable too.
        """
        try:
            return _lab(shell.user_ns, line, cell)
        except SpeclabError as error:
            raise UsageError(str(error)) from None

    shell.register_magic_function(speculate, "cell")


def _lab(variables: dict[str, Any], line: str, cell: str) -> Lab:
    words = _words(line)
    name, system = _option(words, "--name"), _option(words, "--system")
    if name is not None and not name.isidentifier():
        raise SettingsError("--name takes the name of a variable, such as --name lab.")
    chat = "--chat" in words or system is not None
    words = [word for word in words if word != "--chat"]
    kind = words.pop(0) if words and "=" not in words[0] else ""
    assigned = assignments(words)
    prompt = cell.removesuffix("\n")  # the one that IPython ends every cell with
    if not prompt.strip():
        raise PromptError("The cell is empty: write the prompt below the line of %%speculate.")
    models = {key: assigned.pop(key) for key in (*_MODELS, "pair") if key in assigned}
    session = {key: assigned.pop(key) for key in list(assigned) if key in SessionSettings.model_fields}
    strategy = _strategy(kind, assigned)
    settings = SessionSettings(**session).model_dump(include=set(session))  # before any model is loaded
    given = as_messages(prompt, system or "") if chat else prompt
    lab = Lab(_pair(variables, models), strategy, prompt=given, **settings)
    if name:
        variables[name] = lab
    return lab


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        raise SettingsError("A quote is opened and not closed in the line of %%speculate.") from None


def _option(words: list[str], name: str) -> str | None:
    """What follows `name`, both taken out of the words; None where it is not among them."""
    if name not in words:
        return None
    at = words.index(name)
    _, *value = words[at : at + 2]
    del words[at : at + 2]
    return value[0] if value else ""


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
