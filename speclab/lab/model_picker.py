"""Which models, and where they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ipywidgets import Dropdown, HBox, Text

from speclab.errors import ModelNotFoundError
from speclab.lab.choices import Models
from speclab.lab.memory_note import MemoryNote
from speclab.lab.sync import assign, on_change, show
from speclab.models.presets import PRESETS

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

GIVEN, OWN = "given", "own"
AUTOMATIC = "automatic"  # a list cannot show an option whose value is None
_DEVICES = ((AUTOMATIC, AUTOMATIC), ("CPU", "cpu"), ("CUDA", "cuda"), ("Apple GPU", "mps"))
_DTYPES = (AUTOMATIC, "float32", "float16", "bfloat16")


class ModelPicker(HBox):
    """Shipped models, presets, a hub id or folder of one's own, or the pair that the lab was given."""

    def __init__(self, pair: ModelPair | None, changed: Callable[[], None]) -> None:
        given = [(f"{pair.name or 'given in the notebook'}", GIVEN)] if pair else []
        presets = [(_label(name), name) for name in PRESETS]
        self._pair = pair
        self.name = Dropdown(
            options=[*given, *presets, ("your own…", OWN)],
            description="Models",
            tooltip="target and draft; memory in half precision",
        )
        self.device = Dropdown(options=_DEVICES, description="Device")
        self.dtype = Dropdown(options=_DTYPES, description="Precision")
        self.target = Text(
            description="Target", placeholder="hub id or folder", tooltip="the model whose text is decoded"
        )
        self.draft = Text(
            description="Draft", placeholder="hub id or folder, or empty", tooltip="the small model that drafts"
        )
        self.heads = Text(
            description="Draft heads",
            placeholder="hub ids or folders, or empty",
            tooltip="draft heads for the target, commas between them",
        )
        self.memory = MemoryNote()
        fields = [self.name, self.device, self.dtype, self.target, self.draft, self.heads]
        super().__init__([*fields, self.memory])
        self.add_class("speclab-models")
        for widget in fields:
            on_change(widget, lambda _: self._fit())
            on_change(widget, lambda _: changed())
            on_change(widget, lambda _: self.look())
        self._fit()

    def read(self) -> Models | None:
        """The choice; None for the pair that the lab was given.

        Raises:
            ModelNotFoundError: models of one's own, and no target is named.
        """
        if self.name.value == GIVEN:
            return None
        device, dtype = _named(self.device.value), _named(self.dtype.value)
        if self.name.value != OWN:
            return Models(self.name.value, device=device, dtype=dtype)
        if not self.target.value.strip():
            raise ModelNotFoundError("No target is named: write a hub id or a folder, or choose a pair from the list.")
        heads = tuple(head.strip() for head in self.heads.value.split(",") if head.strip())
        return Models("", self.target.value.strip(), self.draft.value.strip(), device, dtype, heads)

    def look(self) -> None:
        """Says what the choice would take of the memory, in a while."""
        try:
            self.memory.look(self.read())
        except ModelNotFoundError:  # no target yet: said where Apply is
            self.memory.look(None)

    def close(self) -> None:
        """Ends what looks up sizes."""
        self.memory.close()
        super().close()

    @property
    def has_draft(self) -> bool:
        """Whether the choice comes with a draft model."""
        if self.name.value == GIVEN:
            return self._pair is not None and self._pair.draft is not None
        if self.name.value == OWN:
            return bool(self.draft.value.strip())
        return PRESETS[self.name.value].draft is not None

    def _fit(self) -> None:
        own, given = self.name.value == OWN, self.name.value == GIVEN
        show(self.target, visible=own)
        show(self.draft, visible=own)
        show(self.heads, visible=own)
        why = "the given pair stays where it is" if given else ""
        assign(self.device, disabled=given, tooltip=why or "where the models run; automatic takes CUDA if there is one")
        assign(
            self.dtype, disabled=given, tooltip=why or "automatic: float32 on the CPU, the checkpoint's own on a GPU"
        )


def _named(choice: str) -> str | None:
    return None if choice == AUTOMATIC else choice


def _label(name: str) -> str:
    size = PRESETS[name].weight_bytes("float16") / 2**30
    return f"{name} · {size:.1f} GiB" if size >= 0.1 else f"{name} (shipped)"
