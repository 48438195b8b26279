"""Servers of our own: of static files; and Jupyter's, without anybody's settings, every way out watched."""

from __future__ import annotations

import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import nbformat
import pytest

from speclab import host

PATIENCE = 180.0
"""Seconds. A server that is up is noticed at once; only one that never comes costs this much."""
FRESH = (
    "import speclab\nlab = speclab.Lab('mini', prompt='Once upon a time', max_new_tokens=120)\nlab"
)


class Quiet(SimpleHTTPRequestHandler):
    """Files without a log."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder's index.html while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()
    server.server_close()


@dataclass(frozen=True)
class Home:
    """A folder with notebooks of one cell; a port and a token that nobody else has."""

    folder: Path
    port: int
    token: str

    @classmethod
    def make(cls, folder: Path) -> Home:
        return cls(folder, _free(), secrets.token_hex(16))

    def notebook(self, name: str, *cells: str) -> Path:
        """A new notebook with these cells."""
        kernel = {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        }
        book = nbformat.v4.new_notebook(
            metadata=kernel, cells=[nbformat.v4.new_code_cell(cell) for cell in cells]
        )
        path = self.folder / f"{name}.ipynb"
        nbformat.write(book, path)
        return path

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}?token={self.token}"


def jupyter(home: Home, notebook: Path) -> list[str]:
    """As `speclab lab` starts it: JupyterLab, and Notebook 7 beside it where that is installed."""
    told = {
        "ServerApp.port": home.port,
        "ServerApp.port_retries": 0,
        "ServerApp.ip": "127.0.0.1",
        "IdentityProvider.token": home.token,
        "LabApp.expose_app_in_browser": True,
        "JupyterNotebookApp.expose_app_in_browser": True,
        # seconds; a kernel that is killed is missed sooner
        "AsyncIOLoopKernelRestarter.time_to_dead": 0.5,
    }
    return host.jupyter_command(
        notebook, [*(f"--{name}={value}" for name, value in told.items()), "--no-browser"]
    )


def voila(home: Home) -> list[str]:
    """As `speclab app` starts it, on its own notebook."""
    return host.app_command(None, ["--no-browser", f"--port={home.port}", "--Voila.ip=127.0.0.1"])


def marimo(home: Home, app: Path) -> list[str]:
    """A marimo app without its code."""
    options = ["--headless", "--no-token", "--host=127.0.0.1", f"--port={home.port}"]
    return [sys.executable, "-m", "marimo", "run", str(app), *options]


def _free() -> int:
    """A port below those that systems give out of themselves: kernels and connections take these at any moment."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port := random.SystemRandom().randrange(20_000, 32_000)))
            return port


@contextmanager
def serving(command: Sequence[str], home: Home, outgoing: socket.socket) -> Iterator[None]:
    """Runs the server until the block ends; fails with its log if it does not come up."""
    log = home.folder / "log.txt"
    with log.open("w") as lines:
        server = subprocess.Popen(
            command,
            env=_environment(home.folder, outgoing),
            stdout=lines,
            stderr=lines,
            start_new_session=True,
        )
    try:
        _await(home.port, server, log)
        yield
    finally:
        if server.poll() is None:
            # without a farewell: kernels notice that their parent is gone
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _environment(home: Path, outgoing: socket.socket) -> dict[str, str]:
    way_out = f"http://127.0.0.1:{outgoing.getsockname()[1]}"
    folders = (
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR",
        "IPYTHONDIR",
    )
    return {
        **host.jupyter_environment(),
        **{name: str(home / name.lower()) for name in folders},
        **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), way_out),
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), way_out),
        **dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost"),
        "OMP_NUM_THREADS": "1",  # two threads wait for each other where the machine is busy
    }


def _await(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    late = time.monotonic() + PATIENCE
    while server.poll() is None and time.monotonic() < late:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"{server.args} did not start:\n{log.read_text()[-3000:]}")
