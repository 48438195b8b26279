"""Measured cost curves in the user's cache directory, one small file each; a damaged one counts as none."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from speclab.costs import Curve
from speclab.writing import read_whole, write_whole

FORMAT = "1"
"""Changes with what is measured and with our own passes, so that older files are not read."""


def folder() -> Path:
    """Where curves are kept: `SPECLAB_CACHE`, or the platform's directory for caches."""
    given = os.environ.get("SPECLAB_CACHE")
    if given:
        return Path(given) / "costs"
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "speclab" / "costs"


def key(facts: Mapping[str, str]) -> str:
    """The name of the file for a model on a machine, by all that its time depends on."""
    return sha256(json.dumps([FORMAT, sorted(facts.items())]).encode()).hexdigest()[:24]


def read(name: str) -> Curve | None:
    """The curve of that name; None where there is none, or what is there is no curve."""
    try:
        kept = json.loads(read_whole(folder() / f"{name}.json", max_bytes=1 << 20))
        return Curve.model_validate(kept["curve"])
    except (RuntimeError, ValueError, KeyError, TypeError):  # no home directory, no file, no curve
        return None


def write(name: str, curve: Curve, facts: Mapping[str, str]) -> None:
    """Keeps a curve, whole or not at all; where the directory cannot be written it is not kept."""
    told = {fact: value for fact, value in facts.items() if fact != "shape"}
    text = json.dumps({"curve": curve.model_dump(), "measured": told}, indent=1)
    with suppress(RuntimeError, OSError, ValueError):  # no home directory, or none that may be written
        place = folder() / f"{name}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text.encode())
