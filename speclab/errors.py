"""Errors a user can cause: one sentence each, naming the cause and the way out."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST = 500
"""Most characters of a sentence.

A longer one loses its middle, which is usually a value that the user gave.
"""


def named(value: object) -> str:
    """How a sentence names a wrong value: the value itself if it is short, else its type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    return f"an object of type {type(value).__name__}"


def meant(name: str, known: Iterable[str]) -> str:
    """The known name that a misspelt one resembles, whatever its case; "" if none does."""
    lower = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    return lower[near[0]] if near else ""


def first_line(error: Exception, most: int) -> str:
    """The beginning of another library's message, for a sentence."""
    return str(error).partition("\n")[0][:most]


class SpeclabError(Exception):
    """Base of every error that a user can cause and correct; its message is one sentence."""

    def __init__(self, sentence: str = "") -> None:
        if len(sentence) > LONGEST:
            sentence = f"{sentence[: LONGEST - 200]} … {sentence[-180:]}"
        super().__init__(
            "".join(
                char if char.isprintable() else "\ufffd" for char in sentence.replace("\n", " ")
            )
        )


def absent(error: ModuleNotFoundError, what: str) -> Exception:
    """The sentence for a package that is not installed; the error itself for a module of speclab."""
    first: BaseException = error
    while first.__cause__ is not None:  # transformers raises an error without a name from it
        first = first.__cause__
    package = (getattr(first, "name", None) or "speclab").partition(".")[0]
    if package == "speclab":
        return error
    return SpeclabError(f"{what} needs {package}: pip install {package}.")


class SettingsError(SpeclabError, ValueError):
    """A setting is out of bounds, contradicts another, or does not exist."""


class ExpressionError(SettingsError):
    """A condition cannot be parsed as an expression."""


class PromptError(SpeclabError, ValueError):
    """The prompt is empty, or contains ids outside the vocabulary."""


class ContextExceededError(SpeclabError, ValueError):
    """Prompt and new tokens together do not fit the context of the target."""


class ModelNotFoundError(SpeclabError, LookupError):
    """No model, folder or preset has this name."""


class OfflineError(SpeclabError, ConnectionError):
    """The model is not on this machine and the hub cannot be reached."""


class TokenizerMismatchError(SpeclabError, ValueError):
    """Target and draft tokenize the same text differently."""


class UnsupportedModelError(SpeclabError, ValueError):
    """This family cannot verify a tree; the probe at load reports why."""


class ChangedModelError(SpeclabError, RuntimeError):
    """A model was changed in the middle of a text."""


class OutOfMemoryError(SpeclabError, MemoryError):
    """The models do not fit the memory of the device."""


class LogitsError(SpeclabError, ArithmeticError):
    """A model returned NaN or infinite logits."""


class GenerationConfigWarning(UserWarning):
    """speclab does not support a setting of the target's generation_config."""


class NoDraftError(SpeclabError, ValueError):
    """The strategy needs a draft model, or a draft head, and the pair has none."""


class HeadMismatchError(SpeclabError, ValueError):
    """A draft head was made for another target: other sizes, or another name."""


class TraceError(SpeclabError, ValueError):
    """A trace file is damaged, foreign, or of a newer version."""


class NotRecordedError(SpeclabError, LookupError):
    """A step does not contain what was requested."""


class MeasurementError(SpeclabError, ValueError):
    """There is nothing to measure, or a method cannot run on the pair."""


class ExactnessError(SpeclabError, AssertionError):
    """Committed tokens differ from what the target alone would have decoded."""


class FinishedError(SpeclabError, RuntimeError):
    """The text has ended."""


class CancelledError(SpeclabError):
    """An iteration was stopped before its commit; everything committed earlier is kept."""


def __dir__() -> list[str]:
    return [name for name, value in globals().items() if isinstance(value, type)]
