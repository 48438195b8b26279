"""What the kernel tells the page. The name of a message is that of its class, in small letters.

A feature declares its own messages in its `lab.py`; `scripts/write_types.py` writes all of them for
the scripts. `Annotated` names the type that a script knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict

Message = dict[str, Any]
Record = dict[str, Any]


class ToPage(BaseModel):
    """A message to the page; what may be None may be absent. `kept`: a saved page shows it, too."""

    kept: ClassVar[bool] = False
    model_config = ConfigDict(extra="forbid", strict=True)


class Catalog(ToPage):
    """What the form offers."""

    strategies: Annotated[list[Record], "OfferedStrategy[]"]
    models: list[Record]
    prompts: Annotated[list[Record], 'Catalog["prompts"]']
    devices: list[Record]
    current: str


class Run(ToPage):
    """Another run. `keep`: iterations of the former run that are the same."""

    id: int
    header: Annotated[Record, "Header"]
    keep: int
    steps: Annotated[list[Record], "Step[]"]
    cursor: int


class Step(ToPage):
    """A new iteration of the run."""

    index: int
    step: Annotated[Record, "Step"]


class Show(ToPage):
    """What the page is to show. `moves`: how often the kernel has moved it."""

    cursor: int
    phase: str
    level: int | None = None
    node: int | str | None = None
    tab: str | None = None
    moves: int


class Status(ToPage):
    """What has changed of the state."""

    busy: str | None = None
    since: float | None = None
    progress: float | None = None
    message: str | None = None
    error: Annotated[Record | None, "Failure | null"] = None
    finished: str | None = None
    can_step: bool | None = None
    live: bool | None = None
    wanted: Annotated[Record | None, "Wanted"] = None
    pending: list[str] | None = None
    new_run: bool | None = None
    missing: Annotated[Record | None, "Record<string, string>"] = None
    by_hand: bool | None = None
    guess: bool | None = None


def to_page(name: str, /, **fields: Any) -> Message:
    """A message to the page.

    Raises:
        KeyError: there is no such message.
        ValueError: it has other fields.
    """
    messages()[name].model_validate(fields)
    return {"type": name, **fields}


def messages() -> dict[str, type[ToPage]]:
    """The messages to the page by name, with those of the features."""
    return {kind.__name__.lower(): kind for kind in ToPage.__subclasses__()}


def kept_panels(panels: Mapping[str, Message]) -> dict[str, Message]:
    """Of what the page shows, that which a saved page shows, too."""
    known = messages()
    return {name: fields for name, fields in panels.items() if fields and known[name].kept}
