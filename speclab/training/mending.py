"""Quotation marks that were encoded twice: UTF-8 read as cp1252, and written as UTF-8 again."""

from __future__ import annotations

import re

# General punctuation alone (E2 80 and a third byte): other letters and marks meet in true text, as in “café…”.
_THIRD = bytes(range(0x80, 0xC0)).decode("cp1252", errors="ignore")
_TWICE = re.compile(f"â€[{re.escape(_THIRD)}]")
# The last byte of ” is no character of cp1252, and such text has lost it: it is known by what it closes.
_CLOSING = re.compile("(“[^“”\n]*?)â€")


def mended(text: str) -> str:
    """`text` with the marks in it that were encoded twice as they were.

    What does not decode to one mark of punctuation stays, and so does a last half that closes nothing on its line.
    """
    once = _TWICE.sub(lambda mark: mark[0].encode("cp1252").decode(), text)
    return _CLOSING.sub(r"\1”", once)
