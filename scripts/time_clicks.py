"""Time clicks on the page of a run in headless Chromium: from the key to the painted picture,
without a kernel.

python scripts/time_clicks.py [--nodes 60] [--clicks 40]     needs Playwright and a Chromium
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from statistics import median, quantiles

from playwright.sync_api import Page, sync_playwright

import speclab
from speclab.views import export_html

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROMPT = "Once upon a time there was a little girl named Lily. One day,"
TIMED = """async ([place, keys, clicks]) => {
  const times = [], frame = () => new Promise(done => requestAnimationFrame(done));
  for (let i = 0; i < clicks; i++) {
    const began = performance.now(), key = keys[i % keys.length];
    document.querySelector(place).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await frame();
    await frame();
    times.push(performance.now() - began);
    await new Promise(done => setTimeout(done, 80));
  }
  return times;
}"""
ACTIONS = {
    "another iteration": ("body", ["ArrowRight", "ArrowLeft"]),
    "another phase": ("body", ["[", "[", "]", "]"]),
    "another node": (".speclab-tree", ["ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft"]),
}


def timed(page: Page, place: str, keys: list[str], clicks: int) -> str:
    times = page.evaluate(TIMED, [place, keys, clicks])
    return f"median {median(times):.0f} ms, 95 % below {quantiles(times, n=20)[-1]:.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=60, help="nodes of a draft tree, at most")
    parser.add_argument("--clicks", type=int, default=40)
    given = parser.parse_args()
    strategy = speclab.DynaTree(
        node_budget=given.nodes, prune_probability=0.0001, stop_probability=0.0005
    )
    session = speclab.Session(speclab.load_pair(), strategy, PROMPT, max_new_tokens=40)
    session.run()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = export_html(session.trace, Path(folder) / "run.html", cursor=2)
        size = max(len(step.tree) for step in session.steps)
        print(
            f"{len(session.steps)} iterations, up to {size} nodes, "
            f"{path.stat().st_size / 2**20:.1f} MiB"
        )
        program = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_function("document.querySelector('.speclab-tree')?.data")
        page.wait_for_timeout(500)
        for name, (place, keys) in ACTIONS.items():
            print(f"{name}: {timed(page, place, keys, given.clicks)}")
        browser.close()


if __name__ == "__main__":
    main()
