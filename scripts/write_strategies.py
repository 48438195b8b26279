"""Writes docs/strategies.md from the registry of strategies; the hand-written parts of the page stay."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

import speclab
from speclab.loading.presets import Offer
from speclab.settings import bounds as number_bounds

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "strategies.md"

HEAD = """# Strategies

Every strategy and its settings, from `speclab.strategies()`, with the symbols of the papers.
[How to write a strategy](../CONTRIBUTING.md#a-new-strategy). `python scripts/write_strategies.py` generates this page;
text below a third-level heading of a strategy is written by hand and kept.
"""


def _range(field: FieldInfo) -> str:
    """`1 to 16`, `0 to under 1`, `from 1`, or the choices."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(map(str, get_args(field.annotation)))
    if Literal["auto"] in get_args(field.annotation):
        low, high = number_bounds(field)
        return f"{low} to {high}, auto"
    if field.annotation in {bool, str}:
        return "True, False" if field.annotation is bool else "text"
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "to under"}
    marks = [
        (word, name, mark)
        for mark in field.metadata
        for name, word in words.items()
        if hasattr(mark, name)
    ]
    bounds = " ".join(
        f"{word} {str(getattr(mark, name)).removesuffix('.0')}" for word, name, mark in marks
    )
    return bounds.removeprefix("from ") if len(marks) > 1 else bounds or "any"


def _rows(kind: type[speclab.Strategy]) -> list[str]:
    head = ["| setting | symbol | default | range | meaning |", "|---|---|---|---|---|"]
    cells = [
        (f"`{name}`", field.title or "", str(field.default), _range(field), field.description or "")
        for name, field in kind.model_fields.items()
    ]
    return [*head, *("| " + " | ".join(row) + " |" for row in cells)] if cells else ["No settings."]


def _presets(kind: type[speclab.Strategy]) -> list[str]:
    def changed(strategy: speclab.Strategy) -> str:
        values = strategy.model_dump()
        own = {
            name: value
            for name, value in values.items()
            if value != kind.model_fields[name].default
        }
        return ", ".join(f"`{name}={value!r}`" for name, value in own.items()) or "the defaults"

    presets = [f"- {name}: {changed(preset)}" for name, preset in kind.presets().items()]
    return ["", "Presets:", "", *presets] if presets else []


def written_by_hand(kind: type[speclab.Strategy]) -> str:
    """The strategy's text on the page from its first third-level heading on."""
    section = (
        TABLE.read_text(encoding="utf-8")
        .partition(f"\n## {kind.__name__}\n")[2]
        .partition("\n## ")[0]
    )
    start = section.find("\n### ")
    return section[start:].rstrip() + "\n" if start >= 0 else ""


def _section(kind: type[speclab.Strategy]) -> str:
    source = " ".join((inspect.getdoc(inspect.getmodule(kind)) or "").split())
    file = Path(inspect.getfile(kind)).relative_to(ROOT)
    needs = (
        "It drafts with a draft model or a draft head."
        if kind().missing(Offer("", draft=False, heads=0))
        else "It needs no draft model."
    )
    needs = "It drafts with a block head." if kind().missing(Offer("", True, 16, ())) else needs
    lines = [
        f"\n## {kind.__name__}\n",
        f"{inspect.getdoc(kind)} {needs}\n",
        f"[`{file}`](../{file}): {source}\n",
    ]
    return "\n".join([*lines, *_rows(kind), *_presets(kind), ""]) + written_by_hand(kind)


def page() -> str:
    """The text of docs/strategies.md."""
    shipped = (
        kind for kind in speclab.strategies().values() if kind.__module__.startswith("speclab.")
    )
    return HEAD + "".join(map(_section, shipped))


if __name__ == "__main__":
    TABLE.write_text(page(), encoding="utf-8")
