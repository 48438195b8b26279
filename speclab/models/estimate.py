"""What models would take of a device's memory, told before any is loaded: from their headers, or from what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch

from speclab.models import memory
from speclab.models.checkpoint import Checkpoint, count, here, locate
from speclab.models.head_files import CONFIG, WEIGHTS
from speclab.models.loading import parse_device, parse_dtype
from speclab.models.memory import amount
from speclab.models.presets import Preset, find

_AUTO = "the checkpoint's precision"


@dataclass(frozen=True)
class Estimate:
    """Bytes of memory by role, weights and the headroom of `speclab.models.memory`; None where the files do not say.

    `device`: where. `precision`: in words. `free`: bytes, None where the device does not say. `download`: bytes of
    weights to be fetched first, about.
    """

    sizes: Mapping[str, int | None]
    device: torch.device
    precision: str
    free: int | None
    download: int = 0

    @property
    def needed(self) -> int:
        """Bytes of all whose size is known."""
        return sum(size or 0 for size in self.sizes.values())

    @property
    def fits(self) -> bool:
        """Whether it would be loaded: nothing known speaks against it."""
        return self.free is None or self.needed <= self.free

    def __str__(self) -> str:
        known = [f"{role} {amount(size)}" for role, size in self.sizes.items() if size]
        unknown = [role for role, size in self.sizes.items() if size is None]
        where = f"on {self.device} in {self.precision}"
        needs = f"needs about {amount(self.needed)} {where} ({', '.join(known)})" if known else f"unknown {where}"
        room = f"{amount(self.free)} are free" if self.free is not None else "how much is free is not known"
        said = f"Memory: {needs}; {room}." if self.fits else f"Too large: {needs}, and {room}."
        said += f" The size of {' and '.join(unknown)} is not known." if unknown else ""
        said += f" About {amount(self.download)} are downloaded first." if self.download else ""
        return said if self.fits else f"{said} Choose smaller models, half precision, or another device."


def estimate(
    name: str = "mini",
    *,
    target: str | PathLike[str] | None = None,
    draft: str | PathLike[str] | None = None,
    heads: Sequence[str | PathLike[str]] = (),
    device: str | None = None,
    dtype: str | None = None,
) -> Estimate:
    """The memory that `load_pair` would need with the same arguments; loads and downloads nothing.

    A preset is answered without the hub; of hub ids that are not on this machine the hub is asked, for at most seconds.

    Raises:
        ModelNotFoundError, OfflineError, SettingsError: as `load_pair` would.
    """
    preset = find(name) if target is None else None
    if preset is not None:
        places, heads = _preset_places(preset), heads or preset.heads
    else:
        places = {role: locate(source) for role, source in (("target", target), ("draft", draft)) if source}
    drafting = [_head_place(head) for head in heads]
    place = parse_device(device) or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    asked = parse_dtype(dtype or (preset.dtype if preset else None))
    kept = asked or (torch.float32 if place.type == "cpu" else None)
    sizes = {role: _bytes([found], kept) for role, found in places.items()}
    if drafting:
        sizes["heads"] = _bytes(drafting, kept)
    fetched = sum((it.parameters or 0) * it.item_bytes for it in (*places.values(), *drafting) if not it.local)
    precision = str(kept).removeprefix("torch.") if kept else _AUTO
    return Estimate(sizes, place, precision, memory.free(place), int(fetched))


def _preset_places(preset: Preset) -> dict[str, Checkpoint]:
    """The checkpoints of a preset: read where they are here, else as published."""
    item_bytes = parse_dtype(preset.stored)
    assert item_bytes is not None
    known = {"target": (preset.target, preset.target_parameters), "draft": (preset.draft, preset.draft_parameters)}
    return {
        role: here(source) or Checkpoint(source, source, parameters, item_bytes.itemsize, True, False, local=False)
        for role, (source, parameters) in known.items()
        if source is not None
    }


def _head_place(source: str | PathLike[str]) -> Checkpoint:
    """A draft head of ours in a folder, or whatever else `locate` finds."""
    folder = Path(source).expanduser()
    if not (folder / CONFIG).is_file():
        return locate(source)
    parameters, item_bytes = count([folder / WEIGHTS])
    return Checkpoint(str(source), str(folder), parameters, item_bytes, safetensors=True, pickled=False, local=True)


def _bytes(places: Sequence[Checkpoint], dtype: torch.dtype | None) -> int | None:
    if any(place.parameters is None for place in places):
        return None
    return sum(memory.needed(place.parameters or 0, dtype.itemsize if dtype else place.item_bytes) for place in places)
