"""An open page: what a test does on it and waits for, and everything that the page asked for or complained about."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

ARTIFACTS = Path(__file__).parents[2] / "artifacts" / "browser"
LOCAL = {"127.0.0.1", "localhost"}
PATIENCE = int(os.environ.get("PATIENCE_MS", "120000"))
"""Milliseconds. Every wait ends as soon as what it waits for is there: only a failing test takes so long."""

STATUS = "(document.querySelector('.speclab-status [role=status]')?.innerText ?? '')"
ERROR = "document.querySelector('.speclab-error [role=alert]')?.innerText"


def drawn(slot: str) -> str:
    """What the lab shows in a slot, as the kernel sent it: an expression of the page."""
    return f"JSON.stringify(document.querySelector('.speclab-{slot} > *')?.held)"


TREE, MASK, CACHES = drawn("tree"), drawn("mask"), drawn("cache")
PAINTED = "['timeline', 'tree', 'mask'].every(name => document.querySelector(`.speclab-${name} .main-svg`))"
"""Whether the pictures of the first screen are there."""
BADGE = "document.querySelector('.sl-badge')?.innerText"
CURRENT = "document.querySelector('.speclab-tabs .lm-mod-current')?.innerText"
CURSOR = "document.querySelector('.speclab-timeline > *')?.held?.layout.meta.cursor"

LATE = int(os.environ.get("LATE_MS", "0"))
"""To find races: now and then a message of a server comes so much later, and all behind it. No test may notice.
Milliseconds; 0 for a page as it is."""
_LATE = """late => {
  const own = Object.getOwnPropertyDescriptor(WebSocket.prototype, 'onmessage');
  Object.defineProperty(WebSocket.prototype, 'onmessage', {get: own.get, set(hear) {
    let last = Promise.resolve();  // messages keep their order, and come apart
    const later = () => new Promise(done => setTimeout(done, Math.random() < 0.03 ? late : 0));
    own.set.call(this, hear && (event => { last = last.then(later).then(() => hear.call(this, event)); }));
  }});
}"""

KERNEL_IDLE = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
_RUN = """([command, only, source]) => {
  const notebook = jupyterapp.shell.currentWidget.content;
  const codes = () => [...notebook.model.sharedModel.cells]  // read anew: running may replace them
    .filter((cell, i) => cell.cell_type === 'code' && (only === null || only === i));
  if (only !== null) { notebook.activeCellIndex = only; notebook.scrollToItem(only, 'start'); }
  if (source) codes()[0].setSource(source);
  for (const cell of codes()) cell.execution_count = null;  // the saved notebook has counts, which prove nothing
  window.speclabCells = () => codes().map(cell => ({
    began: cell.execution_state === 'running' || cell.execution_count !== null,
    ran: cell.execution_state !== 'running' && cell.execution_count !== null,
    errors: cell.outputs.filter(output => output.output_type === 'error').map(output => output.evalue),
  }));
  jupyterapp.commands.execute(`notebook:run-${command}`);
}"""
_BEGAN = "speclabCells().some(cell => cell.began)"
_RAN = "speclabCells().every(cell => cell.ran) || speclabCells().some(cell => cell.errors.length)"
_OUTPUTS = "[...document.querySelectorAll('.jp-OutputArea-output')].map(output => output.innerText)"
_SHOWN = "document.querySelector('.speclab-lab')"
_LOST = f"{_OUTPUTS}.some(text => text.startsWith('Error displaying widget'))"
_AT_REST = """async ([code, laidOut, patience]) => {
  const {kernel} = jupyterapp.shell.currentWidget.sessionContext.session;
  const frames = async () => { for (let i = 0; i < 2; i++) await new Promise(done => requestAnimationFrame(done)); };
  const boxes = ['tree', 'mask'].map(name => document.querySelector(`.speclab-${name}`));
  const room = () => boxes.map(at => [at?.clientWidth, at?.clientHeight]).join();
  const fits = () => boxes[0].firstElementChild?.held?.layout.width === boxes[0].clientWidth;  // a message may be due
  const rest = async () => {
    let before;
    do {
      await frames();
      before = room();
      if (laidOut) await new Promise(done => setTimeout(done, 150));
      await kernel.requestExecute({code, silent: true, store_history: false}).done;
      await frames();
    } while (laidOut && !(room() === before && fits()));
    return true;
  };
  return Promise.race([rest(), new Promise(done => setTimeout(done, patience))]);
}"""
_DONE = """from ipywidgets.widgets.widget import _instances
import speclab
[lab._worker.wait() for lab in [*_instances.values()] if isinstance(lab, speclab.Lab)]
"""
_THEME = "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})"


@dataclass
class Opened:
    """A page of Playwright's, with the lab on it or to come."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @classmethod
    def at(cls, browser: Any, address: str, width: int = 1600, height: int = 1300) -> Opened:
        """A new page at this address."""
        opened = cls(browser.new_page(viewport={"width": width, "height": height}))
        if LATE:
            opened.page.add_init_script(f"({_LATE})({LATE})")
        opened.page.set_default_timeout(PATIENCE)
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.on("websocket", lambda socket: opened.requests.append(socket.url))
        opened.page.on("console", lambda said: said.type == "error" and opened.complaints.append(said.text))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.goto(address, timeout=PATIENCE)
        return opened

    @property
    def strangers(self) -> list[str]:
        """Addresses beyond this machine that the page asked for."""
        split = [(url, urlsplit(url)) for url in self.requests]
        return [url for url, parts in split if parts.scheme not in {"data", "blob"} and parts.hostname not in LOCAL]

    def wait(self, condition: str) -> None:
        """Waits until an expression of the page holds; if it never does, a picture of the page is kept."""
        if not self.comes(condition, PATIENCE):
            said = f"status and error: {self.read(f'[{STATUS}, {ERROR}]')}\ncomplaints: {self.complaints[-5:]}"
            pytest.fail(f"never came: {condition[:400]}\n{said}\npicture: {self.shot('late')}")

    def comes(self, condition: str, timeout: int) -> bool:
        """Whether an expression of the page holds within these milliseconds."""
        from playwright.sync_api import TimeoutError as Late

        try:
            self.page.wait_for_function(condition, timeout=timeout, polling=40)  # not with every frame: pages are busy
        except Late:
            return False
        return True

    def read(self, expression: str) -> Any:
        """The value of an expression of the page."""
        return self.page.evaluate(expression)

    def rest(self, *, laid_out: bool = False) -> None:
        """Waits until the kernel has done all it was asked, and the page has shown all it sent.

        For what must *not* have changed, and for reading several things at one moment; what must come is waited for.
        With `laid_out`, also until the tree was drawn for the room that it has, which the page tells the kernel late.
        """
        if not self.page.evaluate(_AT_REST, [_DONE, laid_out, PATIENCE]):
            pytest.fail(f"kernel and page never came to rest; {self.read(STATUS)}\npicture: {self.shot('restless')}")

    def steady(self, expression: str, argument: Any = None) -> Any:
        """The value of an expression of the page once it stays the same: for what moves, or is zoomed in steps."""
        before, now = object(), None
        for _ in range(PATIENCE // 200):
            before, now = now, self.page.evaluate(expression, argument)
            if now is not None and now == before:
                return now
            self.page.wait_for_timeout(200)
        pytest.fail(f"never came to rest: {expression[:400]}: {now}\npicture: {self.shot('restless')}")

    def says(self, start: str) -> str:
        """Waits until the status line begins so; what it says."""
        self.wait(f"{STATUS}.startsWith({json.dumps(start)})")
        return str(self.read(STATUS))

    def press(self, name: str, start: str) -> str:
        """Clicks a button of the lab; what the status says once it begins as told."""
        self.page.click(f"button.speclab-{name}")
        return self.says(start)

    def cursor(self) -> int:
        """The number of the iteration that the timeline shows, once it is there: pictures come one after another."""
        self.wait(f"{CURSOR} !== undefined")
        return int(self.read(CURSOR))

    def export(self, engine: str, part: str) -> None:
        """Opens Export, chooses an engine, waits until the line to copy has this part, and closes it."""
        self.page.click("button.speclab-export")
        self.page.select_option(".speclab-export-panel select", label=engine)
        self.wait(f"document.querySelector('.speclab-export-panel textarea')?.value.includes({json.dumps(part)})")
        self.page.click("button.speclab-export")
        self.page.locator(".speclab-export-panel").first.wait_for(state="hidden")

    def step(self) -> int:
        """Clicks Step and waits for the iteration after the one shown; its number."""
        wanted = self.cursor() + 1
        self.press("step", f"Iteration {wanted}:")
        self.wait(f"{CURSOR} === {wanted}")
        return wanted

    def run(self, cell: int | None = None, source: str = "") -> None:
        """Runs the notebook, or one cell of it after writing `source` into it, to the end and without an error.

        JupyterLab looks for a widget for two seconds; on a busy machine it may say instead that it found none. A person
        runs the cell again then, and so does this, once.
        """
        self._run(cell, source)
        self.wait(f"{_SHOWN} || {_LOST}")
        if self.read(_LOST):
            print("JupyterLab lost a widget:", self.complaints, self.shot("lost"))
            self.complaints.clear()
            self._run(cell, source)

    def _run(self, cell: int | None, source: str) -> None:
        command = "all-cells" if cell is None else "cell"
        for _ in range(5):  # what is asked for right after the kernel turned idle is sometimes lost
            self.page.evaluate(_RUN, [command, cell, source])
            if self.comes(_BEGAN, 20_000):
                break
        self.wait(_RAN)
        assert [error for each in self.read("speclabCells()") for error in each["errors"]] == []
        self.wait(f"!{_OUTPUTS}.some(text => text.startsWith('Loading widget'))")

    def theme(self, name: str) -> None:
        """Changes JupyterLab's theme, and waits until the page is in it and painted."""
        self.page.evaluate(_THEME, f"JupyterLab {name}")
        self.wait(f"document.body.dataset.jpThemeName === 'JupyterLab {name}'")
        self.rest()

    def opens(self, tab: str) -> None:
        """Opens a tab of the lab, and waits until the kernel has filled it."""
        self.page.click(f".speclab-tabs .lm-TabBar-tab:has-text('{tab}')")
        self.wait(f"{CURRENT} === {json.dumps(tab)}")
        self.rest()

    def shot(self, name: str) -> Path:
        """Saves a picture of what is on the screen."""
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path


def quiet(lab: Opened) -> Iterator[None]:
    """Of a file whose every test also asks: did the page complain, or ask a stranger? Made its fixture there."""
    yield
    assert lab.complaints == []
    assert lab.strangers == []
