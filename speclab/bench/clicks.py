"""What a click in the lab costs until every view has followed, by the clock of a headless Chromium.

The clock starts before the click and stops at the first frame painted after every view says what it should; a
model's own seconds, as the step records them, are told apart from the rest. Needs Playwright and a Chromium.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.request import urlopen

from pydantic import BaseModel, ConfigDict

from speclab import host
from speclab.errors import SpeclabError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]
PATIENCE = 90_000

_READY = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
_RUN = """() => {
  const began = performance.now();
  jupyterapp.shell.currentWidget.content.activeCellIndex = 0;
  jupyterapp.commands.execute('notebook:run-cell');
  return began;
}"""
_SHOWN = """began => new Promise((done, fail) => {
  const look = () => {
    const seen = document.querySelector('.speclab-mask svg') && document.querySelector('.speclab-tree-panel svg');
    if (seen) requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
    else if (performance.now() - began > 60000) fail(new Error('no lab')); else setTimeout(look, 5);
  };
  look();
})"""
_TIMED = """([button, views]) => new Promise((done, fail) => {
  const waiting = new Set(views);
  const began = performance.now(), late = setTimeout(() => fail(new Error(`unchanged: ${[...waiting]}`)), 20000);
  const painted = () => requestAnimationFrame(() => {
    const after = new MessageChannel();
    after.port1.onmessage = () => done(performance.now() - began);
    after.port2.postMessage(0);
  });
  for (const view of views) {
    const watch = new MutationObserver(() => {
      watch.disconnect(); waiting.delete(view);
      if (!waiting.size) { clearTimeout(late); painted(); }
    });
    const all = {childList: true, subtree: true, characterData: true, attributes: true};
    watch.observe(document.querySelector(view), all);
  }
  document.querySelector(button).click();
})"""
"""Watches for changes instead of reading the views again and again, which would itself take the time measured."""

VIEWS = [".speclab-still", ".speclab-mask", ".speclab-status", ".speclab-caches", ".speclab-text-body"]
PHASE_VIEWS = [".speclab-still", ".speclab-status"]


class ClickRow(BaseModel):
    """One action: milliseconds from the click to the painted views, the model's own subtracted."""

    model_config = ConfigDict(frozen=True)

    action: str
    clicks: int
    median_ms: float
    p95_ms: float
    model_ms: float
    """Median of what the model took, not in the figures beside it."""
    target_ms: float | None


def measured(action: str, took: list[float], model: list[float] | None = None, target: float | None = None) -> ClickRow:
    """Median and 95th percentile of what is left of each click without its model's share."""
    model = model or [0.0] * len(took)
    own = [all_ - of_model for all_, of_model in zip(took, model, strict=True)]
    high = quantiles(own, n=20, method="inclusive")[-1] if len(own) > 1 else own[0]
    return ClickRow(
        action=action, clicks=len(own), median_ms=median(own), p95_ms=high, model_ms=median(model), target_ms=target
    )


class Clicks:
    """A notebook of one cell, open in a browser.

    Args:
        page: Playwright's.
    """

    def __init__(self, page: Any) -> None:
        self._page = page

    def show(self, *, empty: bool = False) -> float:
        """Runs the cell; milliseconds until the first pictures are painted, or with `empty` till the buttons are."""
        began = self._page.evaluate(_RUN)
        if empty:
            self._page.wait_for_selector("button.speclab-step", timeout=PATIENCE)
            return float(self._page.evaluate("began => performance.now() - began", began))
        return float(self._page.evaluate(_SHOWN, began))

    def click(self, name: str, views: list[str]) -> float:
        """Milliseconds from a click on a button until all these views have changed and are painted."""
        return float(self._page.evaluate(_TIMED, [f"button.speclab-{name}", views]))

    def model_ms(self) -> float:
        """What the model took for the iteration shown, as the status of the notebook's lab tells it."""
        return float(self._page.evaluate("Number(document.querySelector('.speclab-clock').innerText)"))


@contextmanager
def notebook(source: str) -> Iterator[Clicks]:
    """JupyterLab of its own over a notebook whose one cell is `source`, in headless Chromium.

    Raises:
        SpeclabError: Playwright or a Chromium is not installed, or JupyterLab does not start.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise SpeclabError(
            "Timing clicks needs Playwright, which is not installed: pip install 'speclab[test]'."
        ) from None
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SpeclabError("Timing clicks needs Chromium or Chrome on the PATH, and there is none: install one.")
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder), source) as address, sync_playwright() as play:
        opened = play.chromium.launch(executable_path=browser, args=FLAGS)
        page = opened.new_page(viewport={"width": 1600, "height": 2400})
        page.goto(address, timeout=PATIENCE)
        page.wait_for_function(_READY, timeout=PATIENCE)
        page.wait_for_timeout(1500)  # a run asked for right after the kernel turned idle is sometimes lost
        yield Clicks(page)
        opened.close()


@contextmanager
def _server(folder: Path, source: str) -> Iterator[str]:
    path = folder / "clicks.ipynb"
    cell: dict[str, object] = {
        "cell_type": "code",
        "id": "lab",
        "source": source,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    written = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(written), encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    options = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"]
    options += ["--ServerApp.ip=127.0.0.1", "--no-browser", "--LabApp.expose_app_in_browser=True"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**host.jupyter_environment(), "JUPYTERLAB_WORKSPACES_DIR": str(folder)}
    server = subprocess.Popen(host.jupyter_command(path, options), env=environment, **quiet)  # type: ignore[call-overload]  # noqa: S603
    try:
        _await(f"http://127.0.0.1:{port}/api?token={token}", server)
        yield f"http://127.0.0.1:{port}/lab/tree/clicks.ipynb?token={token}"
    finally:
        server.terminate()
        server.wait(timeout=20)


def _await(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(PATIENCE // 250):
        try:
            with urlopen(url, timeout=5):  # noqa: S310  # our own address
                return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.25)
    raise SpeclabError("JupyterLab did not start: run `speclab lab` to read why.")


def load() -> str:
    """How busy the machine is, to be printed beside what was measured."""
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return f"{os.cpu_count()} cores, load {busy:.1f}"
