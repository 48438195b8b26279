"""Time clicks in a lab, from the click to the painted picture, in headless Chromium.

python scripts/time_clicks.py [--nodes 7 21 63 255] [--clicks 20]    needs Playwright and a Chromium

Voilà shows the lab. Step is timed with its kernel; back, phases and nodes with the kernel alive and
killed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import nbformat
import psutil
from playwright.sync_api import Page, sync_playwright

import speclab
from speclab import host
from speclab.drafters import from_str

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROMPT = "Once upon a time there was a little girl named Lily. One day,"
WIDE = "max_branches=8, prune_probability=0, stop_probability=0, deep_probability=0"
LAB = (
    "import speclab\n"
    "from speclab.drafters import from_str\n"
    "strategy = from_str({!r})\n"
    "speclab.Lab('mini', strategy, prompt={!r}, max_new_tokens=400)"
)
CLICKS = """async ([actions, clicks]) => {
  const frame = () => new Promise(done => requestAnimationFrame(done));
  const shown = () => ["speclab-status", "sl-place", "sl-node-line"].map(name =>
    document.querySelector("." + name)?.textContent).join() +
    document.querySelector("[data-phase][aria-pressed=true]")?.dataset.phase;
  const act = { click: selector => document.querySelector(selector).click(), key: ([selector, key]) =>
    document.querySelector(selector).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })) };
  const times = [];
  for (let i = 0; i < clicks; i++) {
    const [kind, what] = actions[i % actions.length], before = shown(), began = performance.now();
    act[kind](what);
    while (shown() === before && performance.now() - began < 20_000) await frame();
    await frame();
    times.push(performance.now() - began);
    await new Promise(done => setTimeout(done, 300));
  }
  return times;
}"""
STEP = [["click", "button.speclab-step"]]
STILL = {
    "back and forward": [["key", [".speclab-tree", "PageUp"]], ["key", [".speclab-tree", "End"]]],
    "phase": [["click", f"[data-phase={name}]"] for name in ("verify", "accept", "all")],
    "node": [["key", [".speclab-tree", "ArrowRight"]], ["key", [".speclab-tree", "Escape"]]],
}


@contextmanager
def served(nodes: int) -> Iterator[tuple[int, int]]:
    """The port and the process of Voilà with a lab whose trees have so many nodes."""
    port = random.SystemRandom().randrange(20_000, 32_000)
    with tempfile.TemporaryDirectory() as folder:
        cell = nbformat.v4.new_code_cell(
            LAB.format(f"DynaTree(node_budget={nodes}, {WIDE})", PROMPT)
        )
        notebook = Path(folder) / "lab.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), notebook)
        command = host.app_command(notebook, ["--no-browser", f"--port={port}"])
        server = subprocess.Popen(
            command,
            env=host.jupyter_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield port, server.pid
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def report(name: str, times: list[float]) -> None:
    high = quantiles(times, n=20)[-1]
    load = os.getloadavg()[0]
    print(f"  {name}: median {median(times):.0f} ms, 95 % below {high:.0f} ms, load {load:.1f}")


def time_lab(page: Page, nodes: int, clicks: int) -> None:
    """Print the times of one lab."""
    strategy = from_str(f"DynaTree(node_budget={nodes}, {WIDE})")
    session = speclab.Session(speclab.load_pair(), strategy, PROMPT, max_new_tokens=400)
    steps = [session.step() for _ in range(clicks)]
    model = 1000 * median(sum(step.seconds.values()) for step in steps)
    size = max(len(step.tree) for step in steps)
    print(f"up to {size} nodes; the model takes {model:.0f} ms an iteration in a quiet process")
    with served(nodes) as (port, pid):
        page.goto(f"http://127.0.0.1:{port}/", timeout=180_000)
        ready = "document.querySelector('.speclab-status')?.textContent.includes('Iteration 1:')"
        page.wait_for_function(ready, timeout=180_000)
        page.wait_for_timeout(2_000)
        report("Step", page.evaluate(CLICKS, [STEP, clicks]))
        for name, actions in STILL.items():
            report(name, page.evaluate(CLICKS, [actions, clicks]))
        for process in psutil.Process(pid).children(recursive=True):
            if "ipykernel" in " ".join(process.cmdline()):
                process.kill()
        page.wait_for_timeout(2_000)
        for name, actions in STILL.items():
            report(f"{name}, without a kernel", page.evaluate(CLICKS, [actions, clicks]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[7, 21, 63, 255])
    parser.add_argument("--clicks", type=int, default=20)
    options = parser.parse_args()
    with sync_playwright() as playwright:
        program = next(filter(None, map(shutil.which, BROWSERS)), None)
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        for nodes in options.nodes:
            time_lab(page, nodes, options.clicks)
        browser.close()


if __name__ == "__main__":
    main()
