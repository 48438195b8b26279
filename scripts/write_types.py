"""Writes the messages of the page into `speclab/types.d.ts`, from the commands of the lab; `--check` compares.

A command is a marked method (`speclab/lab/_commands.py`): its parameters are the fields of the message.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from speclab.lab._runs import Until
from speclab.lab._setup import FormStrategy
from speclab.lab.lab import every_command

TYPES = Path(__file__).parents[1] / "speclab" / "types.d.ts"
BLOCK = re.compile(r"(?s)(/\*\* What the page tells the kernel[^\n]*\ntype Message =\n).*?;\n\n")
NAMES = {
    int: "number",
    float: "number",
    str: "string",
    bool: "boolean",
    NoneType: "null",
    Any: "Values",
    Until: "Until",
    FormStrategy: 'Wanted["strategy"]',
}


def script_type(hint: Any) -> str:
    """A Python type in TypeScript."""
    if get_origin(hint) in (UnionType, Union):
        names = [script_type(part) for part in get_args(hint)]
        return " | ".join(dict.fromkeys(names))
    if get_origin(hint) is list:
        return f"{script_type(get_args(hint)[0])}[]"
    if get_origin(hint) is dict:
        return "Values"
    return NAMES[hint]


def written() -> str:
    """The text of the file with the commands as they are."""
    lines = []
    for name, command in sorted(every_command().items()):
        fields = [f'do: "{name}"']
        for field, info in command.fields.model_fields.items():
            optional = "" if info.is_required() else "?"
            fields.append(f"{field}{optional}: {script_type(info.annotation)}")
        lines.append(f"  | {{ {'; '.join(fields)} }}")
    union = "\n".join(lines) + ";\n\n"
    text = TYPES.read_text(encoding="utf-8")
    return BLOCK.sub(lambda match: match[1] + union, text, count=1)


def as_written() -> bool:
    """Whether the file has the commands as they are; prettier breaks its lines."""
    texts = [re.sub(r"\s", "", text) for text in (written(), TYPES.read_text(encoding="utf-8"))]
    return len({text.replace(";}", "}") for text in texts}) == 1


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        if not as_written():
            sys.exit("types.d.ts lacks commands of the lab: run python scripts/write_types.py")
        sys.exit()
    TYPES.write_text(written(), encoding="utf-8")
