"""One Chromium for the tier; one JupyterLab with the lab's notebook open; a lab of its own for each file that asks."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from opened import BADGE, KERNEL_IDLE, PAINTED, Opened
from serving import NOTEBOOK, Home, jupyter, serving

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb")
"""A container's root, its small /dev/shm."""
FRESH = "import speclab\nlab = speclab.Lab('mini', max_new_tokens=160)\nlab"
LONGEST = ("test_site", "test_interruptions", "test_hosts", "test_lab_tour", "test_first_screen")
"""Files of tests that come first, so that no worker is left alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


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
    """JupyterLab and Notebook 7; every file of tests that disturbs its page or kernel opens a notebook of its own."""
    home = Home.make(tmp_path_factory.mktemp("jupyter"))
    with serving(jupyter(home), home, outgoing):
        yield home


@pytest.fixture(scope="session")
def notebook(browser: Any, server: Home) -> Iterator[Opened]:
    """The lab's notebook in JupyterLab, its kernel idle."""
    opened = Opened.at(browser, server.address(f"lab/tree/{NOTEBOOK}"))
    opened.wait(KERNEL_IDLE)
    yield opened
    opened.page.close()


@pytest.fixture(scope="module")
def lab(notebook: Opened) -> Opened:
    """A lab of its own, in the cell of the notebook that shows one, with its recorded run; 1280 pixels wide."""
    notebook.page.set_viewport_size({"width": 1280, "height": 1000})
    notebook.run(2, FRESH)
    notebook.page.locator("button.speclab-step").wait_for(state="visible")
    notebook.wait(f"{BADGE} === 'recorded'")
    notebook.wait("document.querySelectorAll('.speclab-lab').length === 1")
    notebook.wait(PAINTED)
    notebook.rest(laid_out=True)
    return notebook


def _on_path() -> str | None:
    """A browser that answers; Ubuntu's `chromium-browser` may be a stub that asks for a snap."""
    for found in filter(None, map(shutil.which, NAMES)):
        if subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    return None
