"""Start JupyterLab and Voilà on this machine, and name its processor.

Imports torch only inside functions.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import site
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from speclab.errors import SpeclabError
from speclab.files import write_whole

if TYPE_CHECKING:
    import torch

JUPYTER = Path(__file__).parent / "jupyter"
"""Settings of JupyterLab and Voilà, and the notebook of one cell that `speclab app` shows."""
COPIES = Path("speclab-notebooks")
"""`speclab lab` copies the notebooks into this folder below the current one and opens the copies."""


SPIN = "GOMP_SPINCOUNT"
SPINS = "4000"
"""How long torch's threads spin while they wait for each other; OpenMP reads it when torch is loaded.

With OpenMP's own number a step took up to a second where the browser had the other core; with 0 a
step of SmolLM2 takes half as long again.
"""


def spinning() -> str:
    """Whether the threads of this environment soon stop spinning, and what to do."""
    if SPIN in os.environ:
        return f"{SPIN}={os.environ[SPIN]}"
    return f"{SPIN} is not set: `speclab lab` gives its kernels {SPINS}; set it for a Jupyter of your own."


def start(command: list[str]) -> None:
    """Replaces this process with `command`; Jupyter then needs no network."""
    os.execve(command[0], command, jupyter_environment())


def jupyter_command(notebook: Path | None, options: list[str]) -> list[str]:
    """The command that opens a notebook (by default the first of the course) in JupyterLab with
    further `options`.

    Raises:
        SpeclabError: JupyterLab is not installed, or the course's notebooks cannot be copied.
    """
    _check("jupyterlab", "JupyterLab")
    opened = notebook or _course()
    command = [sys.executable, "-m", "jupyterlab", str(opened)]
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # as in most containers
        command.append("--allow-root")
    # The address that JupyterLab prints opens its launcher. An option may choose another page or root.
    if not re.search(r"default_url|[-_]dir\b", " ".join(options)):
        command.append(f"--LabApp.default_url=/lab/tree/{quote(opened.name)}")
    return command + options


def app_command(notebook: Path | None, options: list[str]) -> list[str]:
    """The command that shows a notebook (by default the lab alone) as a page without code, with
    Voilà's `options`.

    Raises:
        SpeclabError: Voilà is not installed.
    """
    _check("voila", "Voilà")
    opened = notebook or JUPYTER / "app.ipynb"
    return [sys.executable, "-m", "voila", str(opened)] + options


def _check(package: str, name: str) -> None:
    if find_spec(package) is None:
        raise SpeclabError(f"{name} is not installed: pip install {package}.")


def jupyter_environment() -> dict[str, str]:
    """The environment with speclab's Jupyter settings: no announcements, no style sheets from a CDN,
    and threads that soon stop spinning.
    """
    environment = {SPIN: SPINS} | os.environ
    for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH"):
        paths = [str(JUPYTER), os.environ.get(name)]
        environment[name] = os.pathsep.join(filter(None, paths))
    return environment


ADVICE = (
    "`speclab lab` opens a browser. In a container publish the port (-p 8888:8888) and add "
    "--ip 0.0.0.0 --no-browser; for a remote machine run `ssh -L 8888:localhost:8888 HOST` at your "
    "desk and add --no-browser; then open the address that it prints."
)
"""How to reach the lab."""


def notebook_of(source: str, name: str) -> Path:
    """Writes a notebook of one cell below the current folder; one of this name is replaced.

    Raises:
        SpeclabError: the folder cannot be written.
    """
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": "cell",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
    }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = {
        "cells": [cell],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    try:
        COPIES.mkdir(exist_ok=True)
    except OSError as error:
        raise SpeclabError(
            f"{COPIES.absolute()} cannot be written ({error.strerror}): run this in your own folder."
        ) from None
    return write_whole(COPIES / f"{name}.ipynb", json.dumps(book).encode())


def _course() -> Path:
    """Copies the course's notebooks to a writable folder and returns the first; existing copies are kept."""
    originals = notebooks()
    try:
        shutil.copytree(
            originals,
            COPIES,
            ignore=shutil.ignore_patterns("__pycache__"),
            copy_function=lambda source, to: Path(to).exists() or shutil.copyfile(source, to),
            dirs_exist_ok=True,
        )
    except OSError as error:
        raise SpeclabError(
            f"The notebooks cannot be copied to {COPIES.absolute()} ({error.strerror or error}): "
            "run this in your own folder, or name your own notebook."
        ) from None
    return COPIES / min(path.name for path in originals.glob("*.ipynb"))


def notebooks() -> Path:
    """The folder of notebooks in this clone, or the one that a wheel installed."""
    folders = [Path(__file__).parents[1] / "notebooks"]
    for base in (sys.prefix, site.USER_BASE or ""):
        folders.append(Path(base) / "share/speclab/notebooks")
    for folder in folders:
        if folder.is_dir():
            return folder
    raise SpeclabError("The notebooks of the course are not installed: name your own notebook.")


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor(device: torch.device) -> str:
    """The name of the GPU, or of the processor, that a measurement runs on."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    facts = Path("/proc/cpuinfo")  # of Linux
    if facts.exists():
        match = re.search(r"model name\s*:\s*(.+)", facts.read_text())
        if match:
            return match[1]
    return platform.processor() or platform.machine()
