"""What a click in the lab costs until every view has followed, by the clock of a headless Chromium.

The clock starts before the click and stops at the first frame painted after every view says what it should; a
model's own seconds, as the step records them, are told apart from the rest. Needs Playwright and a Chromium.

    python benchmarks/clicks.py
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
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Annotated, Any
from urllib.request import urlopen

import typer
from common import Out, Row, show, write

import speclab
from speclab import host
from speclab.errors import SpeclabError
from speclab.trace.files import load_trace
from speclab.trace.records import Trace

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]
PATIENCE = 90_000
app = typer.Typer(add_completion=False)

_READY = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
_RUN = """() => {
  const began = window.speclabBegan = performance.now();
  jupyterapp.shell.currentWidget.content.activeCellIndex = 0;
  jupyterapp.commands.execute('notebook:run-cell');
  return began;
}"""
_SHOWN = """began => new Promise((done, fail) => {
  const look = () => {
    const seen = ['tree', 'mask'].every(name => document.querySelector(`.speclab-${name} .main-svg`));
    if (seen) requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
    else if (performance.now() - began > 60000) fail(new Error('no lab')); else setTimeout(look, 5);
  };
  look();
})"""
_TIMED = """([button, views, key]) => new Promise((done, fail) => {
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
  const at = document.querySelector(button);
  if (!key) return at.click();
  at.focus();
  at.dispatchEvent(new KeyboardEvent('keydown', {key, keyCode: key === 'ArrowLeft' ? 37 : 39, bubbles: true}));
})"""
"""Watches for changes instead of reading the views again and again, which would itself take the time measured."""

STEP_MS, HISTORY_MS, PHASE_MS, WHAT_IF_MS, SHOWN_MS, LIVE_MS = 180.0, 150.0, 100.0, 150.0, 4000.0, 6000.0
WARM_UP = 3

_CLOCK = """
from IPython.display import display
from ipywidgets import HTML

clock = HTML()
clock.add_class("speclab-clock")


def tell(change):
    step = change["new"].step
    clock.value = f"{1000 * sum(step.seconds.values()):.3f}" if step else "0"


lab.state.observe(tell, names="frame")
display(lab, clock)
"""
_SHIPPED = """
import speclab

strategy = speclab.FixedTree(depth=6, branching=4, prune_probability=0, node_budget=60)
lab = speclab.Lab("mini", strategy=strategy, max_new_tokens=512, stop_at_eos=False)
"""
_LONG = """
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

import speclab

torch.manual_seed(0)
sizes = dict(vocab_size=2048, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
target, draft = (GPTNeoXForCausalLM(GPTNeoXConfig(max_position_embeddings=8192, **sizes)) for _ in range(2))
strategy = speclab.FixedTree(depth=6, branching=4, prune_probability=0, node_budget=256)
prompt = torch.randint(2048, (4096,)).tolist()
lab = speclab.Lab(speclab.load_pair(target=target, draft=draft), strategy, prompt=prompt, temperature=1.0)
"""
VIEWS = [".speclab-tree", ".speclab-mask", ".speclab-status", ".speclab-cache", ".speclab-text-body"]
PHASE_VIEWS = [".speclab-tree", ".speclab-status"]
_HANDLE = ".speclab-settings .noUi-handle"


def row(action: str, took: list[float], model: list[float] | None = None, target: float | None = None) -> Row:
    """Median and 95th percentile of what is left of each click without the model's share, which stands beside it."""
    model = model or [0.0] * len(took)
    own = [all_ - of_model for all_, of_model in zip(took, model, strict=True)]
    high = quantiles(own, n=20, method="inclusive")[-1] if len(own) > 1 else own[0]
    return {
        "action": action, "clicks": len(own), "median ms": median(own), "p95 ms": high,
        "model ms, apart": median(model), "target p95": target,
    }  # fmt: skip


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

    def live(self) -> float:
        """Milliseconds from the start of the cell until the models have taken over, Run live clicked at once."""
        self._page.click("button.speclab-live")
        self._page.wait_for_function("document.querySelector('.sl-badge')?.innerText === 'live'", timeout=PATIENCE)
        return float(self._page.evaluate("performance.now() - window.speclabBegan"))

    def click(self, name: str, views: list[str]) -> float:
        """Milliseconds from a click on a button until all these views have changed and are painted."""
        return float(self._page.evaluate(_TIMED, [f"button.speclab-{name}", views, ""]))

    def open_what_if(self) -> None:
        """Opens the tab of the strategy's settings."""
        self._page.click(".speclab-tabs .lm-TabBar-tab:has-text('What if')")
        self._page.wait_for_selector(_HANDLE, timeout=PATIENCE)
        self._page.wait_for_timeout(500)

    def drag(self, key: str) -> float:
        """Milliseconds from a key on the first slider until the tree that would have been is painted."""
        return float(self._page.evaluate(_TIMED, [_HANDLE, PHASE_VIEWS, key]))

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
    server = subprocess.Popen(host.jupyter_command(path, options), env=environment, **quiet)  # type: ignore[call-overload]
    try:
        _await(f"http://127.0.0.1:{port}/api?token={token}", server)
        yield f"http://127.0.0.1:{port}/lab/tree/clicks.ipynb?token={token}"
    finally:
        server.terminate()
        server.wait(timeout=20)


def _await(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(PATIENCE // 250):
        try:
            with urlopen(url, timeout=5):  # our own address
                return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.25)
    raise SpeclabError("JupyterLab did not start: run `speclab lab` to read why.")


def clicks(count: int = 30) -> Iterator[Row]:
    """Rows as measured: the lab as it opens, the shipped family's trees of 60 nodes, a random pair's of 256."""
    with notebook("import speclab\n\nspeclab.Lab()") as opened:
        yield row("lab with its recording visible", [opened.show()], target=SHOWN_MS)
        yield row("the models decode in its place", [opened.live()], target=LIVE_MS)
    with notebook(_SHIPPED + _CLOCK) as opened:
        opened.show(empty=True)
        yield from _actions(opened, count, "60 nodes", 1)
    with notebook(_LONG + _CLOCK) as opened:
        opened.show(empty=True)
        yield from _actions(opened, count, "256 nodes, prefix 4,096", 2)


def _actions(opened: Clicks, count: int, of: str, times: int) -> Iterator[Row]:
    took, model = [], []
    for i in range(WARM_UP + count):
        spent = opened.click("step", VIEWS[1:] if i == 0 else VIEWS)
        if i >= WARM_UP:
            took.append(spent)
            model.append(opened.model_ms())
    yield row(f"Step, {of}", took, model, times * STEP_MS)
    for action, name, views, target in (
        ("back in history", "back", VIEWS, HISTORY_MS),
        ("forward in history", "step", VIEWS, HISTORY_MS),
        ("phase step", "phase-back", PHASE_VIEWS, PHASE_MS),
    ):
        yield row(f"{action}, {of}", [opened.click(name, views) for _ in range(count)], target=times * target)
    opened.open_what_if()
    dragged = [opened.drag("ArrowLeft" if i % 2 == 0 else "ArrowRight") for i in range(count)]
    yield row(f"what-if while dragging, {of}", dragged, target=times * WHAT_IF_MS)


def kept(trace: Trace) -> Iterator[Row]:
    """Memory and file of half a history and of the whole: twice as much of each, if both grow linearly.

    Memory is that of Python and numpy after opening the file (`tracemalloc`).
    """
    for count in (len(trace.steps) // 2, len(trace.steps)):
        with tempfile.TemporaryDirectory() as folder:
            path = replace(trace, steps=trace.steps[:count]).save(Path(folder) / "run.json.gz")
            size = path.stat().st_size
            tracemalloc.start()
            try:
                opened = load_trace(path)
                memory, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        nodes = mean(len(step.tree) for step in opened.steps)
        mebibytes = {"MiB in memory": memory / 2**20, "MiB on disk": size / 2**20}
        yield {"iterations": count, "nodes per tree": nodes, **mebibytes}


def decoded(iterations: int) -> Trace:
    """A run of the shipped family with trees of 60 nodes."""
    strategy = speclab.FixedTree(depth=6, branching=4, prune_probability=0, node_budget=60)
    text = speclab.prompts.examples()[0].text
    session = speclab.Session(
        speclab.load_pair(), strategy, text, max_new_tokens=900, stop_at_eos=False, temperature=1.0
    )
    while len(session.steps) < iterations and not session.done:
        session.step()
    return session.trace


@app.command()
def main(
    count: Annotated[int, typer.Option("--clicks", min=2, help="Clicks on each button.")] = 30,
    iterations: Annotated[int, typer.Option(min=2, help="Of the history kept.")] = 200,
    out: Out = None,
) -> None:
    """Time clicks in the lab, in a real browser, and say what a long history takes."""
    busy = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    rows = list(clicks(count))
    show(f"The lab in Chromium, milliseconds without the model ({os.cpu_count()} cores{busy})", rows)
    history = list(kept(decoded(iterations)))
    show("A run kept in history", history)
    write(out, [*rows, *history])


if __name__ == "__main__":
    app()
