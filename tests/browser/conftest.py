"""One Chromium for the tier; one JupyterLab with the lab's notebook open; a lab of its own for each file that asks."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from opened import KERNEL_IDLE, PAINTED, Opened
from serving import NOTEBOOK, Home, jupyterlab, serving

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb")
"""A container's root, its small /dev/shm."""
FRESH = "import speclab\nlab = speclab.Lab('mini', max_new_tokens=160)\nlab"


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
def notebook(browser: Any, tmp_path_factory: pytest.TempPathFactory, outgoing: socket.socket) -> Iterator[Opened]:
    """The lab's notebook in JupyterLab, its kernel idle."""
    home = Home.make(tmp_path_factory.mktemp("jupyterlab"))
    with serving(jupyterlab(home), home, outgoing):
        opened = Opened.at(browser, f"http://127.0.0.1:{home.port}/lab/tree/{NOTEBOOK}?token={home.token}")
        opened.wait(KERNEL_IDLE)
        yield opened
        opened.page.close()


@pytest.fixture(scope="module")
def lab(notebook: Opened) -> Opened:
    """A lab of its own, in the notebook's first cell, showing its recorded run; 1280 pixels wide."""
    notebook.page.set_viewport_size({"width": 1280, "height": 1000})
    notebook.run(1, FRESH)
    notebook.page.locator("button.speclab-step").wait_for(state="visible")
    notebook.wait("document.querySelector('.sl-badge')?.innerText === 'recorded'")
    notebook.wait("document.querySelectorAll('.speclab-lab').length === 1")
    notebook.wait(PAINTED)
    return notebook


def _on_path() -> str | None:
    """A browser that answers; Ubuntu's `chromium-browser` may be a stub that asks for a snap."""
    for found in filter(None, map(shutil.which, NAMES)):
        if subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    return None
