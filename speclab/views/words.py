"""Every sentence of the pictures: templates of `words.json`, filled with the numbers of a record.

`page/words.js` fills the same templates in the page. `{name}` stands for a value, `{name:format}`
for one that is formatted: `token` (the text of a token id, quoted), `percent`, `.2f`, `g`, `name`
(of a setting), `count of NOUN` or `count of NOUN/NOUNS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speclab.trace.records import Event
from speclab.views.tokens import fixed, percent, plural, quoted

WORDS: dict[str, Any] = json.loads(
    Path(__file__).with_name("words.json").read_text(encoding="utf-8")
)
_PLACE = re.compile(r"\{(\w+)(?::([^}]*))?\}")
_NO_TEXTS: Mapping[int, str] = {}


def fill(
    group: str, name: str, values: Mapping[str, Any], texts: Mapping[int, str] = _NO_TEXTS
) -> str:
    """The template `name` of a group, filled; `texts` are those of the token ids."""
    return filled(WORDS[group][name], values, texts)


def filled(template: str, values: Mapping[str, Any], texts: Mapping[int, str] = _NO_TEXTS) -> str:
    """A template with its places filled; a value that is not recorded is `?`."""

    def value_of(place: re.Match[str]) -> str:
        value = values.get(place[1])
        return "?" if value is None else formatted(value, place[2] or "", texts)

    return _PLACE.sub(value_of, template)


def formatted(value: Any, form: str, texts: Mapping[int, str] = _NO_TEXTS) -> str:
    """A value in a format of the templates."""
    if form == "token":
        return quoted(int(value), texts)
    if form == "percent":
        return percent(value)
    if form == "name":
        return str(value).replace("_", " ")
    if form.startswith("count of "):
        noun, _, nouns = form.removeprefix("count of ").partition("/")
        return f"{value} {nouns}" if nouns and value != 1 else plural(value, noun)
    if form.endswith("f"):
        return fixed(value, int(form[1:-1]))
    if form == "g":
        return f"{value:g}"
    return str(value)


def event_words(event: Event, texts: Mapping[int, str] = _NO_TEXTS) -> str:
    """A drafting decision: `2 children: confidence 0.62 between 0.40 and 0.90`."""
    values = event.values
    how = values.get("rule") or values.get("gate") or values.get("by")
    names = [f"{event.kind}.{how}.{values.get('route')}", f"{event.kind}.{how}", event.kind]
    template = next((WORDS["event"][name] for name in names if name in WORDS["event"]), event.kind)
    if "added" not in values:
        values = {**values, "added": values.get("branches")}
    words = filled(template, values, texts)
    if "part" in values:
        return filled(WORDS["part"], {"part": values["part"], "event": words})
    return words
