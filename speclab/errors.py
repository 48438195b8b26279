"""Errors a user can cause: one sentence each, naming the cause and the way out."""

from __future__ import annotations

DISTRIBUTION = "speclab-decoding"
"""The package's name in an index; `speclab` there is an astronomy package."""
INSTALL = f"pip install {DISTRIBUTION}"
LONGEST = 500
"""Characters of a sentence at most; of a longer one the middle is left out, which is some value that was given."""


def named(value: object) -> str:
    """What a sentence calls a value that is not what it should be: itself where it is short, else its type."""
    if isinstance(value, type):
        return f"The class {value.__name__}"
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    return f"An object of type {type(value).__name__}"


class SpeclabError(Exception):
    """Root of every error that a user can cause and correct: one sentence that any terminal can print."""

    def __init__(self, sentence: str = "") -> None:
        if len(sentence) > LONGEST:
            sentence = f"{sentence[: LONGEST - 200]} … {sentence[-180:]}"
        super().__init__("".join(char if char.isprintable() else "\ufffd" for char in sentence.replace("\n", " ")))


class SettingsError(SpeclabError, ValueError):
    """A setting is out of bounds, contradicts another, or does not exist."""


class ExpressionError(SettingsError):
    """A condition does not read as an expression."""


class PromptError(SpeclabError, ValueError):
    """The prompt is empty, or holds ids outside the vocabulary."""


class ContextExceededError(SpeclabError, ValueError):
    """Prompt and new tokens together do not fit the context of a model."""


class ModelNotFoundError(SpeclabError, LookupError):
    """No model, folder or preset has this name."""


class OfflineError(SpeclabError, ConnectionError):
    """The model is not on this machine and the hub cannot be reached."""


class TokenizerMismatchError(SpeclabError, ValueError):
    """Target and draft do not give the same ids to the same text."""


class UnsupportedModelError(SpeclabError, ValueError):
    """This family cannot verify a tree: the probe at load says why."""


class OutOfMemoryError(SpeclabError, MemoryError):
    """The models do not fit the memory of the device."""


class LogitsError(SpeclabError, ArithmeticError):
    """A model gave logits that are no numbers: NaN or infinity."""


class GenerationConfigWarning(UserWarning):
    """The target's generation_config asks for something that is not followed."""


class NoDraftError(SpeclabError, ValueError):
    """The strategy needs a draft model, or a draft head, and the pair has none."""


class HeadMismatchError(SpeclabError, ValueError):
    """A draft head was made for another target: other sizes, or another name."""


class TraceError(SpeclabError, ValueError):
    """A trace file is damaged, foreign, or of a newer version."""


class NotRecordedError(SpeclabError, LookupError):
    """The record of a step does not hold what is asked of it."""


class MeasurementError(SpeclabError, ValueError):
    """What is to be measured does not exist, or a folder of results is damaged, full, or of another run."""


class ExactnessError(SpeclabError, AssertionError):
    """A commit differs from what the target alone would have decoded."""


class FinishedError(SpeclabError, RuntimeError):
    """The session has decoded all it was asked for."""


class CancelledError(SpeclabError):
    """An iteration was stopped before its commit; everything committed before it stands."""
