"""Settings as data: frozen pydantic models whose errors are one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from speclab.errors import SettingsError, meant


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
    def _refuse_bool(cls, values: Any) -> Any:
        """pydantic would accept True as the number 1."""
        for name, value in values.items():
            if not isinstance(value, bool) or name not in cls.model_fields:
                continue
            kind = cls.model_fields[name].annotation
            if bool not in (kind, *get_args(kind)):
                raise ValueError(f"{cls.__name__}: {name} cannot be {value}")
        return values

    def __setattr__(self, name: str, value: Any) -> None:
        raise SettingsError(f"settings are frozen: take a copy with .changed({name}={value!r})")

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

    The sampling settings of the target's generation_config are not used.
    """

    max_new_tokens: int = Field(256, ge=1, lt=2**31, description="most tokens to generate")
    temperature: float = Field(0.0, ge=0, le=100, description="0 is greedy; higher is more varied")
    top_k: int | None = Field(
        None, ge=1, lt=2**31, description="sample among the k most probable tokens only"
    )
    top_p: float | None = Field(
        None,
        gt=0,
        le=1,
        description="sample among the most probable tokens of this total mass",
    )
    seed: int = Field(0, ge=0, lt=2**63, description="the same seed gives the same text")
    stop_at_eos: bool = Field(True, description="stop at the end-of-text token")
    check: bool = Field(False, description="compare every commit with the target decoding alone")

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> Self:
        """The session's among the settings of a recorded run."""
        return cls(**{name: value for name, value in recorded.items() if name in cls.model_fields})


def number_kind(field: FieldInfo) -> type[int] | type[float] | None:
    """The number type of a setting; int for a setting that may also be "auto"; None for other types."""
    if field.annotation is int or Literal["auto"] in get_args(field.annotation):
        return int
    if field.annotation is float:
        return float
    return None


def bounds(field: FieldInfo, step: float = 0) -> tuple[float | None, float | None]:
    """The smallest and the largest number that a field accepts; an open bound moves in by `step`."""
    low = high = None
    rules: list[Any] = list(field.metadata)
    for kind in get_args(field.annotation):
        rules += getattr(kind, "__metadata__", ())
    for rule in rules:
        low = getattr(rule, "ge", low)
        high = getattr(rule, "le", high)
        if hasattr(rule, "gt"):
            low = rule.gt + step
        if hasattr(rule, "lt"):
            high = rule.lt - step
    return low, high


def _sentence(kind: type[BaseModel], error: ValidationError) -> str:
    subject = kind.__name__.removesuffix("Settings")
    errors = error.errors()
    first = errors[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        way_out = f"its settings are {', '.join(kind.model_fields) or 'none'}"
        if near := meant(name, kind.model_fields):
            way_out = f"did you mean {near}?"
        return f"{subject} has no setting {name!r}: {way_out}"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    place = first["loc"][:1]
    words = [first["msg"]]
    for other in errors[1:]:
        if other["loc"][:1] == place:
            words.append(other["msg"].removeprefix("Input should be "))
    return refusal(subject, place, {**first, "msg": " or ".join(words)})


def refusal(subject: str, place: Sequence[int | str], details: Mapping[str, Any]) -> str:
    """Describe a pydantic error as a sentence without its full stop: the setting and what it must be."""
    message = details["msg"].replace("Input should be", "must be")
    return f"{subject}: {'.'.join(map(str, place))} {message} (got {details['input']!r})"
