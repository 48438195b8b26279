"""Writes the tables of fields into docs/steps.md, from where the fields are declared.

python scripts/write_steps_format.py
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from speclab.clinic._lines import Header, Pass, described

PAGE = Path(__file__).parents[1] / "docs" / "steps.md"
BEGIN = "<!-- fields, written by scripts/write_steps_format.py -->\n"
END = "<!-- end of the fields -->\n"


def rows(kind: type[BaseModel]) -> str:
    """A row for each field: a ? marks those that are optional."""
    lines = []
    for name, field in kind.model_fields.items():
        mark = "" if field.is_required() else " ?"
        lines.append(f"| `{name}`{mark} | {described(kind, name)} |\n")
    return "".join(lines)


def page() -> str:
    """The page with its tables as they should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    head = "| {} | is |\n|---|---|\n"
    tables = head.format("header") + rows(Header) + "\n" + head.format("pass") + rows(Pass)
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
