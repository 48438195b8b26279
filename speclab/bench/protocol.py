"""What is measured: methods and protocols, as `protocols.toml` names them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from speclab.bench.result import Group
from speclab.drafters import from_str
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError, SpeclabError
from speclab.files import read_whole
from speclab.trace.codecs import first_error

DRAFT = "the pair's draft"
"""Stands for the draft model in the arguments of transformers' `generate`."""
Swept = Literal["a setting", "new tokens", "prompt tokens"]
_Entry = TypeVar("_Entry")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Method(_Frozen):
    """A named way to decode.

    Args:
        strategy: of speclab; None for transformers' own `generate`.
        generate: arguments of `generate` beside the greedy ones; `DRAFT` becomes the draft model.
        passes: "module" runs speclab's passes through the transformers module instead of the lean forward.
        x, x2: the swept values that it stands for.
    """

    name: str
    strategy: Strategy | None = None
    generate: Mapping[str, Any] = Field(default_factory=dict)
    passes: Literal["lean", "module"] = "lean"
    x: float | None = None
    x2: float | None = None

    @property
    def group(self) -> Group:
        """Whose code decodes."""
        return "transformers" if self.strategy is None else "speclab"

    @property
    def settings(self) -> dict[str, Any]:
        """All that tells it from others, for records."""
        if self.strategy is None:
            return {"strategy": "generate", "do_sample": False, **self.generate}
        passes = {"passes": "module"} if self.passes == "module" else {}
        return {"strategy": type(self.strategy).__name__, **self.strategy.model_dump(mode="json"), **passes}

    def at(self, x: float | None, x2: float | None = None) -> Method:
        """The same for other swept values."""
        return self.model_copy(update={"x": x, "x2": x2})


class Protocol(_Frozen):
    """A measurement: its methods decode the same prompts, in turn, in one run.

    Args:
        name: what `--protocol` calls it.
        source: the table or figure that it stands for; "speclab" where no paper has one.
        baseline: the method that speedups are ratios to.
        swept: what `x` of a method is; then it sets that for the call.
        x_name, x2_name: what the swept values are called.
        workload: prompts by name, where none are given.
        limit: prompts of each kind, where no number is given.
        max_new_tokens: T, where none is given; a shorter context cuts it.
        prompt_tokens: L_max, the most tokens of a prompt; None takes all of it.
        warm_up: new tokens at most of the call before a method's first round on a prompt.
        recorded: each strategy decodes every prompt once more with records, off the clock, for what only records tell:
            sources, paths, bounds, heads.
        stop_at_eos: an end-of-text token ends the text; else T tokens are decoded whatever they are.
    """

    name: str
    title: str
    methods: tuple[Method, ...]
    source: str = "speclab"
    baseline: str = "plain"
    swept: Swept = "a setting"
    x_name: str | None = None
    x2_name: str | None = None
    workload: str = "shipped"
    limit: int = Field(default=3, ge=1)
    max_new_tokens: int = Field(default=128, ge=1)
    prompt_tokens: int | None = Field(default=None, ge=1)
    warm_up: int = Field(default=64, ge=1)
    recorded: bool = False
    stop_at_eos: bool = True


class _Sweep(_Frozen):
    """Named methods at every x; or one method at points, whose strategy has `{x}` and `{x2}` in it."""

    methods: list[str] = []
    name: str = ""
    strategy: str = ""
    x: list[float | int] = []
    x2: list[float | int] = []
    points: list[tuple[float | int, float | int]] = []


class _File(_Frozen):
    methods: dict[str, str | dict[str, Any]] = {}
    protocol: list[dict[str, Any]] = []


def parse_toml(kind: type[_Entry], text: bytes, where: str) -> _Entry:
    """The entries of a TOML file as `kind`, checked.

    Raises:
        MeasurementError: it is no TOML, or an entry is wrong; the sentence names it.
    """
    try:
        return TypeAdapter(kind).validate_python(tomllib.loads(text.decode()))
    except ValidationError as error:
        raise MeasurementError(f"{where}: {first_error(error)}") from None
    except ValueError as error:
        raise MeasurementError(f"{where} is no TOML file: {str(error).splitlines()[0]}") from None


def shipped_toml(name: str) -> bytes:
    """A data file of this folder."""
    return files("speclab.bench").joinpath(name).read_bytes()


@cache
def methods() -> dict[str, Method]:
    """Every shipped method by name."""
    return {name: _method(name, entry) for name, entry in _shipped().methods.items()}


@cache
def protocols() -> dict[str, Protocol]:
    """Every shipped protocol by name."""
    return _protocols(_shipped(), methods())


def find(name: str) -> Protocol:
    """The protocol of this name, or the first one of a TOML file of one's own, in the form of `protocols.toml`.

    Raises:
        MeasurementError: there is none, with what there is; or the file is wrong.
    """
    if name.endswith(".toml"):
        own = parse_toml(_File, read_whole(name, MeasurementError), name)
        known = methods() | {title: _method(title, entry) for title, entry in own.methods.items()}
        found = _protocols(own, known)
        if not found:
            raise MeasurementError(f"{name} holds no protocol: begin one with [[protocol]].")
        return next(iter(found.values()))
    if name not in protocols():
        raise MeasurementError(f"There is no protocol {name!r}: choose one of {', '.join(protocols())}.")
    return protocols()[name]


@cache
def _shipped() -> _File:
    return parse_toml(_File, shipped_toml("protocols.toml"), "protocols.toml")


def _method(name: str, entry: str | dict[str, Any]) -> Method:
    fields: dict[str, Any] = {"strategy": entry} if isinstance(entry, str) else {**entry}
    if ("strategy" in fields) == ("generate" in fields):
        raise MeasurementError(f"The method {name!r} needs either a strategy or arguments of generate.")
    try:
        if "strategy" in fields:
            fields["strategy"] = from_str(str(fields["strategy"]))
        return Method(name=name, **fields)
    except ValidationError as error:
        raise MeasurementError(f"The method {name!r}: {first_error(error)}") from None
    except SpeclabError as error:
        raise MeasurementError(f"The method {name!r}: {error}") from None


def _protocols(file: _File, known: Mapping[str, Method]) -> dict[str, Protocol]:
    entries: dict[str, dict[str, Any]] = {}
    for entry in file.protocol:
        name = str(entry.get("name"))
        base = entries.get(entry.get("like", ""), {})
        if "like" in entry and not base:
            raise MeasurementError(f"The protocol {name!r} is like {entry['like']!r}, which is not above it.")
        entries[name] = {key: value for key, value in base.items() if key != "sweep"} | entry
    return {name: _protocol(name, entry, known) for name, entry in entries.items()}


def _protocol(name: str, entry: dict[str, Any], known: Mapping[str, Method]) -> Protocol:
    where = f"The protocol {name!r}"
    fields = {key: value for key, value in entry.items() if key not in {"like", "sweep", "methods"}}
    try:
        sweeps = TypeAdapter(list[_Sweep]).validate_python(entry.get("sweep", []))
        own = [_known(where, title, known) for title in entry.get("methods", [])]
        swept = [method for sweep in sweeps for method in _swept(where, sweep, known)]
        return Protocol(methods=(*own, *swept), **fields)
    except ValidationError as error:
        raise MeasurementError(f"{where}: {first_error(error)}") from None


def _known(where: str, name: str, known: Mapping[str, Method]) -> Method:
    if name not in known:
        raise MeasurementError(f"{where} names the method {name!r}, which is not under [methods].")
    return known[name]


def _swept(where: str, sweep: _Sweep, known: Mapping[str, Method]) -> list[Method]:
    if sweep.methods:
        return [_known(where, name, known).at(x) for x in sweep.x for name in sweep.methods]
    alone: list[Any] = [None]
    points: Iterable[tuple[Any, Any]] = sweep.points or product(sweep.x, sweep.x2 or alone)
    return [_method(sweep.name, sweep.strategy.format(x=x, x2=x2)).at(x, x2) for x, x2 in points]
