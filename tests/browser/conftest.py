"""One Chromium for the tier, one JupyterLab, one notebook, in which each file of tests makes a lab."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from opened import KERNEL_IDLE, Opened
from serving import FRESH, Home, jupyter, serving

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb")
"""A container's root, its small /dev/shm."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium: the one on the PATH, else Playwright's own."""
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            launched = playwright.chromium.launch(executable_path=_on_path(), args=list(FLAGS))
        except Error as error:
            if "Executable doesn't exist" not in str(error):
                raise
            missing = "no Chromium on the PATH, and none of Playwright's"
            if os.environ.get("CI") == "true":
                pytest.fail(missing)
            pytest.skip(missing)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def outgoing() -> Iterator[socket.socket]:
    """A proxy that serves nobody: a connection to it is a request that would have left the machine."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        yield proxy


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, outgoing: socket.socket) -> Iterator[Home]:
    """JupyterLab and Notebook 7."""
    home = Home.make(tmp_path_factory.mktemp("jupyter"))
    with serving(jupyter(home, home.notebook("first", FRESH)), home, outgoing):
        yield home


@pytest.fixture(scope="session")
def notebook(browser: Any, server: Home) -> Iterator[Opened]:
    """The notebook lab.ipynb of one cell in JupyterLab, its kernel idle; 1440 × 900."""
    path = server.notebook("lab", FRESH)
    opened = Opened.at(browser, server.address(f"lab/workspaces/{path.stem}/tree/{path.name}"))
    opened.wait(KERNEL_IDLE)
    yield opened
    opened.read("jupyterapp.shell.currentWidget.sessionContext.shutdown().then(() => 1)")
    opened.page.close()


@pytest.fixture(scope="module")
def lab(notebook: Opened) -> Opened:
    """The notebook with a lab of the mini family, its first iteration decoded."""
    notebook.fresh(FRESH)
    return notebook


def _on_path() -> str | None:
    """A browser that answers; Ubuntu's `chromium-browser` may be a stub that asks for a snap."""
    for path in filter(None, map(shutil.which, NAMES)):
        if subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return path
    return None
