"""Joins ES modules into the one script that a widget, a page or a worker is."""

from __future__ import annotations

import re
from pathlib import Path

from speclab.features import parts_named

_IMPORT = re.compile(
    r'^import (?:(\w+)|\{[^}]*\}) from "([^"]+)"(?: with \{ type: "json" \})?;\n', re.M
)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const|class) (\w+))", re.M)


def joined(*entries: Path) -> str:
    """The scripts and all that they import, each once and after what it uses, in one scope.

    Raises:
        ImportError: scripts import each other in a circle.
    """
    texts: dict[Path, str] = {}
    for entry in entries:
        _add(entry.resolve(), texts, ())
    return "\n".join(texts.values())


def page_with_features(*entries: Path) -> str:
    """Scripts of the page, after those of all features."""
    return joined(*parts_named("tab.js"), *entries)


def _add(path: Path, texts: dict[Path, str], above: tuple[Path, ...]) -> None:
    if path in above:
        raise ImportError(f"{path.name} imports itself, through {above[-1].name}.")
    if path in texts:
        return
    source = path.read_text(encoding="utf-8")
    for data, target in _IMPORT.findall(source):
        module = (path.parent / target).resolve()
        if data:
            texts[module] = f"const {data} = {module.read_text(encoding='utf-8').rstrip()};"
        else:
            _add(module, texts, (*above, path))
    texts[path] = _EXPORT.sub(r"\1", _IMPORT.sub("", source))
