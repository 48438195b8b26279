"""Describe this machine, and start JupyterLab and Voilà on it.

Imports torch only inside functions.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from speclab import __version__
from speclab.errors import DISTRIBUTION, SpeclabError
from speclab.files import byte_count

if TYPE_CHECKING:
    import torch

JUPYTER = Path(__file__).parent / "jupyter"
"""Settings of JupyterLab and Voilà, and the notebook of one cell that `speclab app` shows."""
COPIES = Path("speclab-notebooks")
"""`speclab lab` copies the notebooks into this folder below the current one and opens the copies."""
_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "jupyterlab",
    "notebook",
    "voila",
    "anywidget",
    "plotly",
)


def report() -> dict[str, str]:
    """Versions, device, threads, memory, and how to reach the lab on this machine, as texts by name."""
    facts = {
        "speclab": __version__,
        "python": f"{platform.python_version()} on {platform.platform()}",
    }
    facts |= versions(*_PACKAGES)
    facts |= _devices()
    return facts | {"jupyter": jupyter_advice()}


def start(command: list[str]) -> None:
    """Replaces this process with `command`; Jupyter then needs no network."""
    os.execve(command[0], command, jupyter_environment())


def jupyter_command(notebook: Path | None, options: list[str]) -> list[str]:
    """The command that opens a notebook (by default the first of the course) in JupyterLab with
    further `options`.

    Raises:
        SpeclabError: JupyterLab is not installed, or there is no such notebook.
    """
    if find_spec("jupyterlab") is None:
        raise SpeclabError("JupyterLab is not installed: pip install jupyterlab.")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0  # as in most containers
    root = ["--allow-root"] if is_root else []
    opened = _course() if notebook is None else _existing(notebook)
    return [sys.executable, "-m", "jupyterlab", str(opened), *root, *options]


def app_command(notebook: Path | None, options: list[str]) -> list[str]:
    """The command that shows a notebook (by default the lab alone) as a page without code, with
    Voilà's `options`.

    Raises:
        SpeclabError: Voilà is not installed, or there is no such notebook.
    """
    if find_spec("voila") is None:
        raise SpeclabError("Voilà is not installed: pip install voila.")
    return [
        sys.executable,
        "-m",
        "voila",
        str(_existing(notebook or JUPYTER / "app.ipynb")),
        *options,
    ]


def jupyter_environment() -> dict[str, str]:
    """The environment with speclab's Jupyter settings: no announcements, and no style sheets from a CDN."""
    paths = ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH")
    return {
        **os.environ,
        **{
            name: os.pathsep.join(filter(None, [str(JUPYTER), os.environ.get(name)]))
            for name in paths
        },
    }


def jupyter_advice() -> str:
    """How to reach the lab from a hosted service, a container, over ssh, or on this machine."""
    if any(
        name in os.environ
        for name in ("COLAB_RELEASE_TAG", "JUPYTERHUB_USER", "KAGGLE_KERNEL_RUN_TYPE")
    ):
        return "A hosted notebook service is already running: open a notebook of the course in it."
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return (
            "In a container: publish the port (-p 8888:8888), start with `speclab lab --ip 0.0.0.0 "
            "--no-browser` and open the address that it prints."
        )
    if "SSH_CONNECTION" in os.environ:
        return (
            f"On a remote machine: run `ssh -L 8888:localhost:8888 {platform.node()}` at your "
            "desk, start `speclab lab --no-browser` there and open the address that it prints."
        )
    return "`speclab lab` opens a browser; if none opens, open the address that it prints."


def _existing(notebook: Path) -> Path:
    if not notebook.is_file():
        raise SpeclabError(f"There is no notebook {notebook}: check the path.")
    return notebook


def _course() -> Path:
    """Copies the course's notebooks to a writable folder and returns the first; existing copies are kept."""
    originals = notebooks()
    try:
        for path in (
            path for path in originals.rglob("*") if path.is_file() and path.suffix != ".pyc"
        ):
            copy = COPIES / path.relative_to(originals)
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
    except OSError as error:
        raise SpeclabError(
            f"The notebooks cannot be copied to {COPIES.absolute()} ({error.strerror or error}): "
            "run this in your own folder, or name your own notebook."
        ) from None
    return COPIES / min(path.name for path in originals.glob("*.ipynb"))


def notebooks() -> Path:
    """The folder of notebooks in this clone, or the one that a wheel installed."""
    clone = Path(__file__).parents[1] / "notebooks"
    if clone.is_dir():
        return clone
    try:
        files = distribution(DISTRIBUTION).files or ()
    except PackageNotFoundError:
        files = ()
    notebooks = [
        Path(str(file.locate())).resolve()
        for file in files
        if file.match("share/speclab/notebooks/*.ipynb")
    ]
    if not notebooks:
        raise SpeclabError("The notebooks of the course are not installed: name your own notebook.")
    return notebooks[0].parent


def versions(*packages: str) -> dict[str, str]:
    """Versions of installed packages, by name."""
    installed = {}
    for name in packages:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = "not installed"
    return installed


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor(device: torch.device) -> str:
    """The name of the GPU, or of the processor, that a measurement runs on."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        match = re.search(
            r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8")
        )
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


def _devices() -> dict[str, str]:
    import psutil

    memory = psutil.virtual_memory()
    facts = {"memory": f"{byte_count(memory.total)}, {byte_count(memory.available)} free"}
    try:
        import torch
    except ImportError as error:
        return facts | {
            "device": f"torch does not load ({error}): saved traces open, but nothing can be decoded"
        }
    devices = [
        f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())
    ]
    if torch.backends.mps.is_available():
        devices.append("mps")
    threads = f"{torch.get_num_threads()} of {cores()} cores"
    return {"device": ", ".join([*devices, "cpu"]), "threads": threads, **facts}
