"""The API reference: a page of all public names, by Sphinx's autodoc."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx

import speclab
from speclab import Strategy
from speclab.errors import SpeclabError

EXTENSIONS = ["sphinx.ext.autodoc", "sphinx.ext.napoleon"]
OPTIONS = {
    "autodoc_typehints": "signature",
    "autodoc_member_order": "bysource",
    "default_role": "code",
    "add_module_names": False,
}
TITLE = """API reference
=============

Everything that ``import speclab`` offers. Settings of strategies, with their symbols in the papers,
are in :doc:`strategies`; bounds and help of each are in ``Strategy.model_fields``.
"""


def page() -> str:
    """The page as reStructuredText: functions, classes, strategies, errors, then each module."""
    public = {name: getattr(speclab, name) for name in speclab.__all__ if name != "__version__"}
    titles = ("Functions", "Classes", "Strategies", "Errors")
    parts: dict[str, list[str]] = {title: [] for title in titles}
    for name, value in public.items():
        if not isinstance(value, ModuleType):
            parts[_title(value)].append(_entry(name, value))
    for name, module in public.items():
        if isinstance(module, ModuleType):
            listed = [(each, getattr(module, each)) for each in dir(module)]
            own = [(each, value) for each, value in listed if each not in public]
            parts[f"speclab.{name}"] = [_entry(f"{name}.{each}", value) for each, value in own]
    parts = {title: entries for title, entries in parts.items() if entries}
    return TITLE + "".join(
        f"\n{title}\n{'-' * len(title)}\n\n{''.join(entries)}" for title, entries in parts.items()
    )


def _title(value: Any) -> str:
    if not inspect.isclass(value):
        return "Functions"
    if issubclass(value, SpeclabError | Warning):
        return "Errors"
    return "Strategies" if issubclass(value, Strategy) and value is not Strategy else "Classes"


def _entry(name: str, value: Any) -> str:
    """A directive that names the public path of an object, wherever it is defined."""
    members = "   :members:\n" if _title(value) == "Classes" and inspect.isclass(value) else ""
    if inspect.isclass(value):
        return f".. autoclass:: speclab.{name}\n{members}\n"
    kind = "autofunction" if inspect.isfunction(value) else "data"
    return f".. {kind}:: speclab.{name}\n\n"


def _as_restructured_text(*given: Any) -> None:
    """Docstrings are Markdown: their tables and indented code become literal blocks."""
    lines: list[str] = given[-1]
    lines[:] = list(_literal(lines))


def _literal(lines: list[str]) -> Iterator[str]:
    section = inside = False
    for line in lines:
        if line and not line.startswith(" "):
            section = line.endswith(":")  # such as Args: its lines are napoleon's
        literal = line.startswith("|") or (line.startswith("    ") and not section)
        if literal and not inside:
            yield from ("::", "")
        inside = literal or (inside and not line)
        yield f"    {line}" if literal else line


def setup(app: Sphinx) -> None:
    """Sphinx calls this when the file is named among the extensions."""
    app.connect("autodoc-process-docstring", _as_restructured_text, priority=100)
