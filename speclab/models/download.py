"""Fetching a model's files from the hub, telling how far it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from tqdm import tqdm  # type: ignore[import-untyped]

from speclab.models.memory import amount

Report = Callable[[str], None]
"""Hears what a load is doing, one sentence at a time; what it raises ends the load."""

_MODEL_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "model.safetensors", "model-*.safetensors")


def silent(_: str) -> None:
    """Reports to nobody."""


def fetch(name: str, report: Report, files: Sequence[str] = _MODEL_FILES) -> Path:
    """The folder of a hub id's files in the hub's cache, those downloaded that are not there.

    Args:
        name: a hub id.
        report: hears the bytes; called from several threads.
        files: patterns of the files to fetch, in the repository's top folder.

    Raises:
        Exception: whatever the hub's client raises, or `report`.
    """
    bar = _bar(name, report)
    return Path(snapshot_download(name, allow_patterns=list(files), ignore_patterns=["*/*"], tqdm_class=bar))


def _bar(name: str, report: Report) -> type[Any]:
    """A progress bar that draws nothing and reports the bytes."""

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            self._of_bytes = options.get("unit") == "B"
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self._of_bytes:
                of = f" of {amount(self.total)}" if self.total and self.total >= self.n else ""
                report(f"Downloading {name}: {amount(self.n)}{of}…")

    return Bar
