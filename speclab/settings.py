"""Settings as data: frozen pydantic models whose errors are one sentence."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from math import inf, nextafter
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from speclab.errors import SettingsError


class Settings(BaseModel):
    """A frozen settings model; bounds, defaults and one-line help live in its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(_sentence(type(self), error)) from None

    @model_validator(mode="before")
    @classmethod
    def _no_truth_is_a_number(cls, values: Any) -> Any:
        """Python treats True as the number 1."""
        for name, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, bool) and name in cls.model_fields:
                field = cls.model_fields[name]
                kinds = {field.annotation, *get_args(field.annotation), number_kind(field)}
                if kinds & {int, float} and bool not in kinds:
                    raise ValueError(f"{cls.__name__}: {name} must be a number (got {value!r})")
        return values

    def __setattr__(self, name: str, value: Any) -> None:
        raise SettingsError(
            f"settings are frozen: take a copy with .changed({name}={_shown(value)})"
        )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """The settings that differ from their defaults, so that a repr is short and valid Python."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.default:
                yield name, value

    __str__ = BaseModel.__repr__

    def changed(self, /, **values: Any) -> Self:
        """A validated copy with some values changed."""
        return type(self)(**{**self.model_dump(), **values})


class SessionSettings(Settings):
    """Settings of a session that do not depend on the strategy.

    The sampling settings of the target's generation_config are recorded but not used.
    """

    max_new_tokens: int = Field(default=256, ge=1, lt=2**31, description="most tokens to generate")
    temperature: float = Field(
        default=0.0, ge=0, le=100, description="0 is greedy; higher is more varied"
    )
    top_k: int | None = Field(
        default=None, ge=1, lt=2**31, description="sample among the k most probable tokens only"
    )
    top_p: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="sample among the most probable tokens of this total mass",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="the same seed gives the same text")
    stop_at_eos: bool = Field(default=True, description="stop at the end-of-text token")
    check: bool = Field(
        default=False, description="compare every commit with the target decoding alone"
    )


def assignments(words: Iterable[str]) -> dict[str, Any]:
    """Parse texts such as `depth=3` from a command line into settings by name.

    Raises:
        SettingsError: a text is not of the form NAME=VALUE.
    """
    settings = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise SettingsError(
                f"{word!r} is not a setting: write NAME=VALUE, without spaces around the =."
            )
        settings[name] = parse_value(text)
    return settings


def parse_value(text: str) -> Any:
    """Parse a number, a list, true, false or none; any other text stays a text."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text


def number_kind(field: FieldInfo) -> type[int] | type[float] | None:
    """The number type of a setting; int for a setting that may also be "auto"; None for other types."""
    if Literal["auto"] in get_args(field.annotation):
        return int
    if field.annotation is int:
        return int
    return float if field.annotation is float else None


def bounds(field: FieldInfo, step: float | None = None) -> tuple[float | None, float | None]:
    """The smallest and the largest number that a field accepts; an open bound moves in by a step.

    Args:
        step: by default 1 for whole numbers, and for a float the distance to the next float.
    """
    low = high = None
    step = 1 if step is None and number_kind(field) is int else step
    nested = [
        rule for kind in get_args(field.annotation) for rule in getattr(kind, "__metadata__", ())
    ]
    for rule in [*field.metadata, *nested]:
        low = getattr(rule, "ge", low)
        high = getattr(rule, "le", high)
        if hasattr(rule, "gt"):
            low = nextafter(rule.gt, inf) if step is None else rule.gt + step
        if hasattr(rule, "lt"):
            high = nextafter(rule.lt, -inf) if step is None else rule.lt - step
    return low, high


def _sentence(kind: type[BaseModel], error: ValidationError) -> str:
    subject = kind.__name__.removesuffix("Settings")
    errors = error.errors()
    first = errors[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        near = get_close_matches(name, kind.model_fields)
        names = [*near, *(field for field in kind.model_fields if field not in near)]
        settings = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        meant = f"did you mean {near[0]}? Its" if near else "its"
        return f"{subject} has no setting {name!r}: {meant} settings are {settings or 'none'}"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    others = [
        error["msg"].removeprefix("Input should be ")
        for error in errors[1:]
        if error["loc"][0] == first["loc"][0]
    ]
    return refusal(
        subject, first["loc"][:1], {**first, "msg": " or ".join([first["msg"], *others])}
    )


def refusal(subject: str, place: Sequence[int | str], details: Mapping[str, Any]) -> str:
    """Describe a pydantic error as a sentence without its full stop: the setting and what it must be."""
    message = details["msg"].replace("Input should be", "must be")
    return f"{subject}: {'.'.join(map(str, place))} {message} (got {_shown(details['input'])})"


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # an integer with too many digits, or an object whose repr fails
        return f"some {type(value).__name__}"
