"""A JupyterLab of our own, opened in headless Chromium, with everything it asks the network for written down."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from speclab import host

ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "artifacts" / "browser"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
]  # a container's root, its small /dev/shm
LOCAL = {"127.0.0.1", "localhost"}
PATIENCE = 90_000


@dataclass
class Notebook:
    """The open page, and what it asked for and complained about."""

    page: object
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    @property
    def strangers(self) -> list[str]:
        """Addresses beyond this machine that the page asked for."""
        split = [(url, urlsplit(url)) for url in self.requests]
        return [url for url, parts in split if parts.scheme not in {"data", "blob"} and parts.hostname not in LOCAL]

    def wait(self, condition: str, timeout: int = PATIENCE) -> None:
        """Waits until an expression of the page holds."""
        self.page.wait_for_function(condition, timeout=timeout)

    def shot(self, name: str) -> Path:
        """Saves a picture of what is on the screen."""
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path


@pytest.fixture(scope="session")
def chromium() -> str:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on the PATH")
    return found


@pytest.fixture(scope="session")
def outgoing() -> Iterator[socket.socket]:
    """A proxy that serves nobody: a connection to it is a request that would have left the machine."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        yield proxy


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory, outgoing: socket.socket) -> Iterator[str]:
    """Where JupyterLab shows a copy of 00_lab.ipynb; started as `speclab lab` starts it."""
    home = tmp_path_factory.mktemp("jupyter")
    shutil.copytree(ROOT / "notebooks", home / "notebooks")
    port, token = _free_port(), secrets.token_hex(16)
    options = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"]
    options += ["--ServerApp.ip=127.0.0.1", "--no-browser", "--LabApp.expose_app_in_browser=True"]
    command = host.jupyter_command(home / "notebooks" / "00_lab.ipynb", options)
    with (home / "log.txt").open("w") as log:
        server = subprocess.Popen(
            command, env=_environment(home, outgoing), stdout=log, stderr=log, start_new_session=True
        )
    try:
        _await_server(f"http://127.0.0.1:{port}/api?token={token}", server, home / "log.txt")
        yield f"http://127.0.0.1:{port}/lab/tree/00_lab.ipynb?token={token}"
    finally:
        _end(server)


@pytest.fixture(scope="session")
def notebook(address: str, chromium: str, outgoing: socket.socket) -> Iterator[Notebook]:
    """The lab's notebook, open, its kernel idle."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1600, "height": 1300})
        opened = Notebook(page)
        page.on("request", lambda request: opened.requests.append(request.url))
        page.on("websocket", lambda socket: opened.requests.append(socket.url))
        page.on("console", lambda said: said.type == "error" and opened.complaints.append(said.text))
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        page.goto(address, timeout=PATIENCE)
        opened.wait("window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'")
        yield opened
        browser.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(home: Path, outgoing: socket.socket) -> dict[str, str]:
    """No settings of whoever runs the test, and every way out led to `outgoing`."""
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


def _await_server(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(PATIENCE // 250):
        try:
            with urlopen(url, timeout=5):
                return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.25)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


def _end(server: subprocess.Popen[bytes]) -> None:
    for signal_ in (signal.SIGTERM, signal.SIGKILL):
        if server.poll() is None:
            os.killpg(server.pid, signal_)
            try:
                server.wait(timeout=15)
            except subprocess.TimeoutExpired:
                continue
