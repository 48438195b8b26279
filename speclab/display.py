"""What a notebook shows for an object beside its line: a picture, a text or a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from speclab.errors import SpeclabError

LONGEST = 60
"""Most characters of a text within a line."""


def line(kind: str, *parts: object, **values: object) -> str:
    """A line such as `Step(3, nodes=12)`, without addresses and seconds; empty values are left out."""
    words = list(map(str, parts))
    for name, value in values.items():
        if value not in ("", None):
            words.append(f"{name}={value!r}")
    return f"{kind}({', '.join(words)})"


def short(text: str) -> str:
    """The beginning of a text."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 1]}…"


def counted(number: int, noun: str, nouns: str = "") -> str:
    """`1 token`, `2 tokens`; `nouns`: a plural that is not made with an s."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {nouns or noun + 's'}"


_public: list[Callable[[str], Any]] = []


def told_by(public: Callable[[str], Any]) -> None:
    """Take pictures and links from the public names, when the first is asked for."""
    _public[:] = [public]


def public(name: str) -> Any:
    """A public name of the package, for records, which import nothing of what shows them."""
    return _public[0](name)


def view(name: str, value: object) -> dict[str, Any]:
    """The bundle of a picture of a record; empty if the record has no such picture."""
    try:
        shown = attrgetter(name)(public("views"))(value)
    except SpeclabError:
        return {}
    if hasattr(shown, "_repr_mimebundle_"):
        bundle: dict[str, Any] = shown._repr_mimebundle_() or {}
        return bundle
    return {"text/html": shown._repr_html_()}


def table(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A small HTML table: a row for each record, whose values are named by their columns."""
    from pandas import DataFrame

    frame = DataFrame(rows)
    return {"text/html": frame.to_html(index=False, float_format="{:.3g}".format)}
