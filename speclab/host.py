"""What this machine offers, and how JupyterLab and Voilà start on it. Imports torch only inside functions."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from speclab import __version__
from speclab.errors import DISTRIBUTION, SpeclabError
from speclab.files import byte_count

if TYPE_CHECKING:
    import torch

LAB_NOTEBOOK = Path("notebooks/00_lab.ipynb")
COPIES = Path("speclab-notebooks")
"""Where `speclab lab` puts the notebooks of an installed wheel, below the folder that it is called in."""

_PACKAGES = (
    "torch", "transformers", "tokenizers", "numpy", "jupyterlab", "notebook", "voila",
    "ipywidgets", "anywidget", "plotly",
)  # fmt: skip

HOSTS = {
    "JupyterLab 4": "`speclab lab`. Tested in a browser.",
    "Notebook 7": "`pip install notebook`, then `jupyter notebook notebooks/00_lab.ipynb`. Tested in a browser.",
    "Voilà": "`pip install voila`, then `speclab app`: a page without code, nothing from a CDN. Tested in a browser.",
    "VS Code": "Open the notebook, choose this Python as its kernel, and allow the CDN that it asks about "
    "(jupyter.widgetScriptSources): it fetches the widgets' scripts from there. Not tested.",
    "Colab": "Run `from google.colab import output; output.enable_custom_widget_manager()` first: "
    "without it the tree stays a still picture. Not tested.",
}
"""Where the lab's notebook opens, what each place asks for, and whether speclab's tests open it there."""


def report() -> dict[str, str]:
    """Versions, device, threads, memory, and advice on each host of the lab, as texts by name."""
    facts = {"speclab": __version__, "python": f"{platform.python_version()} on {platform.platform()}"}
    facts |= versions(*_PACKAGES)
    facts |= _devices()
    facts["jupyter"] = jupyter_advice()
    return facts | {f"in {place}": advice for place, advice in HOSTS.items()}


def start(command: list[str]) -> None:
    """Replaces this process by a `command`; nothing that Jupyter shows then asks the network."""
    os.execve(command[0], command, jupyter_environment())  # noqa: S606  # our own interpreter, no shell


def jupyter_command(notebook: Path | None, options: list[str]) -> list[str]:
    """The command that opens a notebook (None: the lab's own) in JupyterLab; `options` go to JupyterLab as they are.

    Raises:
        SpeclabError: JupyterLab is not installed, or the notebook is not there.
    """
    if find_spec("jupyterlab") is None:
        raise SpeclabError("JupyterLab is not installed: pip install jupyterlab.")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0  # as in most containers
    root = ["--allow-root"] if is_root else []
    return [sys.executable, "-m", "jupyterlab", str(_find(notebook)), *root, *options]


def app_command(notebook: Path | None, options: list[str]) -> list[str]:
    """The command that shows a notebook as a page without code; `options` go to Voilà as they are.

    Raises:
        SpeclabError: Voilà is not installed, or the notebook is not there.
    """
    if find_spec("voila") is None:
        raise SpeclabError("Voilà is not installed: pip install voila.")
    return [sys.executable, "-m", "voila", str(_find(notebook)), *options]


def jupyter_environment() -> dict[str, str]:
    """This process's environment, and speclab's settings of Jupyter.

    JupyterLab's announcements are off, and Voilà takes our template, which leaves out its style sheets from a CDN.
    """
    ours, env = str(Path(__file__).parent / "jupyter"), os.environ
    paths = ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH")
    return {**env, **{name: os.pathsep.join(filter(None, [ours, env.get(name)])) for name in paths}}


def jupyter_advice() -> str:
    """A sentence or two on reaching the lab where this process runs: hub, Colab, VS Code, container, remote or desk."""
    env = os.environ
    if "COLAB_RELEASE_TAG" in env:
        return f"In Colab: open {LAB_NOTEBOOK} in it. {HOSTS['Colab']}"
    if "JUPYTERHUB_USER" in env or "KAGGLE_KERNEL_RUN_TYPE" in env:
        return f"A hosted notebook service is running already: open {LAB_NOTEBOOK} in it."
    if env.get("TERM_PROGRAM") == "vscode" or "VSCODE_PID" in env:
        lab = "`speclab lab --no-browser`, then open the address it prints"
        return f"In VS Code: {lab}; or {LAB_NOTEBOOK} in its editor. {HOSTS['VS Code']}"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return (
            "In a container: publish the port (-p 8888:8888) and start with "
            "`speclab lab --ip 0.0.0.0 --no-browser`, then open the address it prints."
        )
    if "SSH_CONNECTION" in env:
        return (
            f"On a remote machine: run `ssh -L 8888:localhost:8888 {platform.node()}` at your desk, start "
            "with `speclab lab --no-browser`, then open the address it prints."
        )
    return "`speclab lab` opens a browser; if none opens, follow the address it prints."


def _find(notebook: Path | None) -> Path:
    checkout = Path(__file__).resolve().parents[1]
    places = [notebook] if notebook else [LAB_NOTEBOOK, checkout / LAB_NOTEBOOK, COPIES / LAB_NOTEBOOK.name]
    for place in places:
        with suppress(OSError):  # no name may be so long
            if place.is_file():
                return place
    shipped = None if notebook else _shipped()
    if shipped is None:
        raise SpeclabError(
            f"There is no notebook {places[0]}: run this in a clone of speclab, or name a notebook of yours."
        )
    try:
        shutil.copytree(shipped, COPIES, dirs_exist_ok=True, copy_function=_copy_once)
    except OSError as error:
        raise SpeclabError(
            f"speclab's notebooks cannot be copied to {COPIES.absolute()} ({error.strerror or error}): run this in a "
            "folder of yours, or name a notebook of yours."
        ) from None
    return COPIES / LAB_NOTEBOOK.name


def _copy_once(source: str, target: str) -> None:
    if not Path(target).exists():
        shutil.copyfile(source, target)


def _shipped() -> Path | None:
    """The folder of notebooks that a wheel brought; None where speclab runs from its source."""
    try:
        files = distribution(DISTRIBUTION).files or ()
    except PackageNotFoundError:
        return None
    found = [Path(str(file.locate())).resolve() for file in files if file.name == LAB_NOTEBOOK.name]
    return next((place.parent for place in found if place.is_file()), None)


def versions(*packages: str) -> dict[str, str]:
    """Of installed packages, by name."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine(device: torch.device) -> dict[str, str]:
    """What a measurement runs on, in words by name: system, processor, cores, memory, device."""
    import psutil  # type: ignore[import-untyped]
    import torch

    facts = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "device": str(device),
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
        facts["cuda"] = str(torch.version.cuda)
    return facts


def _processor() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _devices() -> dict[str, str]:
    import psutil

    memory = psutil.virtual_memory()
    facts = {"memory": f"{byte_count(memory.total)}, {byte_count(memory.available)} of it free"}
    try:
        import torch
    except ImportError as error:
        return facts | {"device": f"torch does not load ({error}); nothing can be decoded, saved traces still open"}
    devices = [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    threads = f"{torch.get_num_threads()} of {os.cpu_count()} cores"
    return {"device": ", ".join([*devices, "cpu"]), "threads": threads, **facts}
