"""Texts with the target's hidden states, on disk: what draft heads learn from, made once and read often."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from speclab.errors import SpeclabError


class Document(NamedTuple):
    """One text of a store: its kind, where it begins, how many of its tokens are the prompt, how many there are."""

    kind: str
    start: int
    prompt: int
    length: int


class Store:
    """A folder of token ids (`tokens.bin`, uint16), states (`states.bin`, bfloat16) and a line a
    text (`texts.jsonl`).

    A text of n tokens has states at its first n - 1 places, and zeros at the last, which nothing
    was read behind. What is added counts from `flush` on; what a stopped run left behind the last
    flush is overwritten.
    """

    def __init__(self, folder: Path, width: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._index = folder / "texts.jsonl"
        note = folder / "width.json"
        if note.is_file():
            width = json.loads(note.read_text())
        if width is None:
            raise SpeclabError(
                f"There are no texts in {folder}: run the phase that makes them, or name its "
                "folder."
            )
        note.write_text(json.dumps(width))
        self.width = width
        self.folder = folder
        lines = self._index.read_text().splitlines() if self._index.is_file() else []
        self.documents = [Document(*json.loads(line)) for line in lines]
        self._fresh: list[tuple[Document, list[int], Tensor]] = []

    @property
    def length(self) -> int:
        """Tokens of all texts."""
        last = self.documents[-1] if self.documents else Document("", 0, 0, 0)
        return last.start + last.length

    def add(self, kind: str, prompt: int, tokens: list[int], states: Tensor) -> None:
        """Adds a text; `states` is `[len(tokens) - 1, width]`."""
        padded = torch.cat((states, states.new_zeros(1, self.width))).bfloat16().cpu()
        self._fresh.append((Document(kind, 0, prompt, len(tokens)), tokens, padded))

    def flush(self) -> None:
        """Writes what was added: the texts, then the lines that make them count."""
        begin = self.length
        for name, size in (("tokens.bin", 2), ("states.bin", 2 * self.width)):
            with (self.folder / name).open("ab") as file:
                file.truncate(begin * size)
                for _, tokens, states in self._fresh:
                    row = (
                        np.array(tokens, dtype=np.uint16)
                        if size == 2
                        else states.view(torch.int16).numpy()
                    )
                    file.write(row.tobytes())
        with self._index.open("a") as file:
            for document, _, _ in self._fresh:
                self.documents.append(document._replace(start=self.length))
                file.write(json.dumps(self.documents[-1]) + "\n")
        self._fresh.clear()

    def tokens(self) -> Tensor:
        """All token ids, int16 as bits of uint16, mapped from disk."""
        return torch.from_file(str(self.folder / "tokens.bin"), size=self.length, dtype=torch.int16)

    def states(self) -> Tensor:
        """All states `[length, width]`, bfloat16, mapped from disk."""
        flat = torch.from_file(
            str(self.folder / "states.bin"), size=self.length * self.width, dtype=torch.bfloat16
        )
        return flat.view(self.length, self.width)
