"""Writes what Python declares for the page's scripts; `--check` compares.

The records go into `speclab/records.d.ts`, and as a JSON schema into `speclab/views/records.json`, by
which the page checks what it opens; the columns of a node (`speclab/trace/columns.py`) there and
into `speclab/views/columns.json`; the messages of the page into `speclab/types.d.ts`.

pydantic prints the JSON schema of a record and of a message (`speclab/lab/_commands.py`,
`speclab/lab/_messages.py`), and `script_type` says it in TypeScript.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from speclab.lab._messages import messages
from speclab.lab.lab import every_command
from speclab.trace.columns import COLUMNS
from speclab.trace.records import Trace

PACKAGE = Path(__file__).parents[1] / "speclab"
RECORDS = PACKAGE / "records.d.ts"
TYPES = PACKAGE / "types.d.ts"
SCHEMA = PACKAGE / "views" / "records.json"
HEADS = PACKAGE / "views" / "columns.json"
TOP = """// Records as a trace writes them (trace/records.py says what each field means), and the columns of a
// node that the page shows (trace/columns.py). Written by scripts/write_types.py.
"""
PRIMITIVES = {
    "array": "any[]",
    "boolean": "boolean",
    "integer": "number",
    "null": "null",
    "number": "number",
    "string": "string",
}
CELLS = {
    "bool": "boolean",
    "boolean": "boolean | null",
    "float64": "number | null",
    "int64": "number",
    "str": "string",
}
"""The values of a column by its dtype."""
NAMES = {
    "Event": "TreeEvent",
    "FormStrategy": 'Wanted["strategy"]',
    "Message": "PromptMessage",
}
"""Scripts call these otherwise: a browser has an `Event`, the page a `Message`."""


def script_type(schema: dict[str, Any]) -> str:
    """The TypeScript type of a JSON schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return NAMES.get(name, name)
    if "enum" in schema:
        return " | ".join([json.dumps(value) for value in schema["enum"]])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys([script_type(part) for part in schema["anyOf"]]))
    if "prefixItems" in schema:
        parts = [script_type(part) for part in schema["prefixItems"]]
        return f"[{', '.join(parts)}]"
    if "items" in schema:
        item = script_type(schema["items"])
        return f"({item})[]" if " | " in item else f"{item}[]"
    if schema.get("type") in PRIMITIVES:
        return PRIMITIVES[schema["type"]]
    values = schema.get("additionalProperties")
    value = script_type(values) if isinstance(values, dict) else ""
    # the values of settings and of events have several types
    return f"Record<string, {value}>" if value in PRIMITIVES.values() else "Values"


def interfaces(kind: type) -> dict[str, str]:
    """A record and those that it contains, as interfaces by name. A record is written whole."""
    schema = TypeAdapter(kind).json_schema(mode="serialization")
    texts = {}
    for name, record in {**schema.pop("$defs", {}), kind.__name__: schema}.items():
        shown = NAMES.get(name, name)
        if "properties" in record:
            lines = [f"interface {shown} {{\n"]
            for field, part in record["properties"].items():
                lines.append(f"  {field}: {script_type(part)};\n")
            texts[shown] = "".join(lines) + "}\n"
        else:
            texts[shown] = f"type {shown} = {script_type(record)};\n"
    return texts


def record_schema() -> str:
    """The JSON schema by which the page checks a run: a file's types, and what a file may leave out."""
    adapter = TypeAdapter(Trace)
    schema = adapter.json_schema(mode="serialization")
    needed = adapter.json_schema(mode="validation")
    for name, record in schema["$defs"].items():
        record["required"] = needed["$defs"].get(name, record).get("required", [])
    schema["required"] = needed["required"]
    schema["$defs"]["Step"]["properties"]["mask"] = {}  # the page checks all of it at once
    return json.dumps(_without_words(schema), indent=1) + "\n"


def _without_words(schema: Any) -> Any:
    """A schema without descriptions, and with titles of records only."""
    if isinstance(schema, list):
        return [_without_words(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    shown = {}
    for key, part in schema.items():
        if key == "properties":
            shown[key] = {name: _without_words(field) for name, field in part.items()}
        elif (key == "title" and "properties" in schema) or key not in ("title", "description"):
            shown[key] = _without_words(part)
    if "texts" in shown.get("properties", {}):
        # ids of tokens, which JSON has as texts
        shown["properties"]["texts"]["propertyNames"] = {"type": "integer"}
    return shown


def node_columns() -> str:
    """The columns that the page shows, as an interface."""
    lines = ["interface NodeColumns {\n"]
    for column in COLUMNS:
        if column.head:
            cell = CELLS[column.dtype]
            lines.append(f"  {column.name}?: {f'({cell})' if ' ' in cell else cell}[];\n")
    return "".join(lines) + "}\n"


def heads() -> str:
    """The heads of these columns, as JSON with a column a line."""
    lines = []
    for column in COLUMNS:
        if column.head:
            shown = {"name": column.name, "head": column.head, "format": column.format}
            lines.append(json.dumps(shown))
    return "[\n  " + ",\n  ".join(lines) + "\n]\n"


def union_of(kinds: Mapping[str, type[BaseModel]], tag: str) -> str:
    """Messages as a union of types; `tag`: the field that has the name."""
    lines = []
    for name, kind in sorted(kinds.items()):
        message = [f'{tag}: "{name}"']
        parts = kind.model_json_schema().get("properties", {})
        for field, info in kind.model_fields.items():
            optional = "" if info.is_required() else "?"
            named = [word for word in info.metadata if isinstance(word, str)]
            message.append(f"{field}{optional}: {named[0] if named else script_type(parts[field])}")
        lines.append(f"  | {{ {'; '.join(message)} }}")
    return "\n".join(lines) + ";\n\n"


def written() -> dict[Path, str]:
    """The texts of the files with records, columns and messages as they are."""
    records = {**interfaces(Trace), "NodeColumns": node_columns()}
    asked = {name: command.fields for name, command in every_command().items()}
    types = TYPES.read_text(encoding="utf-8")
    for start, union in {
        "type Message =\n": union_of(asked, "do"),
        "type KernelEvent =\n": union_of(messages(), "type"),
    }.items():
        before, _, rest = types.partition(start)
        after = rest.partition(";\n\n")[2]
        types = before + start + union + after
    return {
        RECORDS: TOP + "".join([f"\n{text}" for _, text in sorted(records.items())]),
        HEADS: heads(),
        SCHEMA: record_schema(),
        TYPES: types,
    }


def _squeezed(text: str) -> str:
    """A text without what prettier changes."""
    return re.sub(r"\s", "", text).replace(";}", "}")


def out_of_date() -> dict[Path, str]:
    """The texts of the files that do not have records, columns and commands as they are."""
    late = {}
    for path, text in written().items():
        if _squeezed(text) != _squeezed(path.read_text(encoding="utf-8")):
            late[path] = text
    return late


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        if out_of_date():
            sys.exit(
                "A file for the scripts is not what Python declares: run python scripts/write_types.py"
            )
        sys.exit()
    for path, text in out_of_date().items():
        path.write_text(text, encoding="utf-8")
        print(f"{path.name} is written: python scripts/check_javascript.py --write formats it.")
