"""An open page: what a test does on it and waits for, and everything that the page asked for or complained about."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

ARTIFACTS = Path(__file__).parents[2] / "artifacts" / "browser"
LOCAL = {"127.0.0.1", "localhost"}
PATIENCE = int(os.environ.get("PATIENCE_MS", "120000"))
"""Milliseconds.

Every wait ends as soon as what it waits for is there: only a failing test takes so long.
"""


def text(name: str) -> str:
    """What stands in an element, by its class: an expression of the page."""
    return f"(document.querySelector('.{name}')?.innerText ?? '')"


STATUS = text("speclab-status")
ERROR = text("speclab-error")
PENDING = text("sl-pending")
STEP = "document.querySelector('button.speclab-step')"
PAINTED = "['timeline', 'tree', 'mask'].every(name => document.querySelector(`.speclab-${name} .main-svg`))"
"""Whether the pictures of the first screen are there."""
CURSOR = "(document.querySelector('.sl-place')?.innerText ?? '')"
WHAT = "data => data.map(({customdata, text, marker, z}) => [customdata, text, marker?.symbol, z])"
TREE, MASK = (
    f"JSON.stringify(({WHAT})(document.querySelector('.speclab-{name}').data))"
    for name in ("tree", "mask")
)
"""What is drawn, and not where: the room for it may change while a page is laid out."""

KERNEL = "jupyterapp.shell.currentWidget.sessionContext.session.kernel"
KERNEL_IDLE = (
    "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
)
_RUN = """source => {
  const notebook = jupyterapp.shell.currentWidget.content;
  const number = notebook.model.sharedModel.cells.findIndex(one => one.cell_type === 'code');
  const cell = () => notebook.model.sharedModel.cells[number];
  notebook.activeCellIndex = number;
  if (source) cell().setSource(source);
  cell().execution_count = null;
  window.speclabCell = () => ({
    began: cell().execution_state === 'running' || cell().execution_count !== null,
    ran: cell().execution_state !== 'running' && cell().execution_count !== null,
    errors: cell().outputs.filter(output => output.output_type === 'error').map(output => output.evalue),
  });
  jupyterapp.commands.execute('notebook:run-cell');
}"""
_DONE = """from ipywidgets.widgets.widget import _instances
import speclab
[lab.wait() for lab in [*_instances.values()] if isinstance(lab, speclab.Lab)]
"""
_AT_REST = f"""async code => {{
  const frames = async () => {{ for (let i = 0; i < 3; i++) await new Promise(done => requestAnimationFrame(done)); }};
  for (let i = 0; i < 2; i++) {{  // the page may answer what the kernel said
    await new Promise(done => setTimeout(done, 60));
    await {KERNEL}.requestExecute({{code, silent: true, store_history: false}}).done;
    await frames();
  }}
}}"""
_EXECUTE = f"""async code => {{
  const {{content}} = await {KERNEL}.requestExecute({{code}}).done;
  if (content.status !== 'ok') throw new Error(content.evalue);
}}"""


@dataclass
class Opened:
    """A page of Playwright's, with the lab on it or to come."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @classmethod
    def at(cls, browser: Any, address: str, width: int = 1440, height: int = 900) -> Opened:
        """A new page at this address."""
        opened = cls(browser.new_page(viewport={"width": width, "height": height}, bypass_csp=True))
        opened.page.set_default_timeout(PATIENCE)
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.on("websocket", lambda socket: opened.requests.append(socket.url))
        opened.page.on(
            "console", lambda said: said.type == "error" and opened.complaints.append(said.text)
        )
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.goto(address, timeout=PATIENCE)
        return opened

    @property
    def strangers(self) -> list[str]:
        """Addresses beyond this machine that the page asked for."""
        split = [(url, urlsplit(url)) for url in self.requests]
        return [
            url
            for url, parts in split
            if parts.scheme not in {"data", "blob"} and parts.hostname not in LOCAL
        ]

    def wait(self, condition: str) -> None:
        """Waits until an expression of the page holds; if it never does, a picture of the page is kept."""
        if not self.comes(condition, PATIENCE):
            words = f"status, error: {self.read(f'[{STATUS}, {ERROR}]')}\ncomplaints: {self.complaints[-5:]}"
            pytest.fail(f"never came: {condition[:400]}\n{words}\npicture: {self.shot('late')}")

    def comes(self, condition: str, timeout: int) -> bool:
        """Whether an expression of the page holds within these milliseconds."""
        from playwright.sync_api import TimeoutError as Late

        try:
            # not with every frame: pages are busy
            self.page.wait_for_function(condition, timeout=timeout, polling=40)
        except Late:
            return False
        return True

    def read(self, expression: str) -> Any:
        """The value of an expression of the page."""
        return self.page.evaluate(expression)

    def execute(self, code: str) -> None:
        """Runs code in the kernel."""
        self.page.evaluate(_EXECUTE, code)

    def rest(self) -> None:
        """Waits until the kernel has done all it was asked, and the page has drawn it: for what must not change."""
        self.page.evaluate(_AT_REST, _DONE)

    def at_iteration(self, cursor: int, count: int | None = None) -> None:
        """Waits until the page shows this iteration, of so many."""
        end = f"{cursor} of {count}" if count else f"{cursor} of "
        self.wait(f"{CURSOR}.startsWith({json.dumps(end)}) && {PAINTED}")

    def cursor(self) -> int:
        """The number of the iteration that is shown."""
        return int(self.read(CURSOR).split()[0])

    def step(self) -> int:
        """Clicks Step and waits for the iteration after the one shown; its number."""
        wanted = self.cursor() + 1
        self.page.click("button.speclab-step:not([disabled])")
        self.wait(f"{CURSOR}.startsWith('{wanted} of') && {STATUS}.includes('Iteration {wanted}:')")
        return wanted

    def phase(self, name: str) -> None:
        """Shows a phase of the iteration."""
        self.page.click(f"[data-phase='{name}']")
        self.wait(
            f"document.querySelector('[data-phase={name}]').getAttribute('aria-pressed') === 'true'"
        )
        self.wait(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => "
            "done(true))))"
        )

    def menu(self, entry: str) -> None:
        """Clicks an entry of the menu."""
        self.page.click(".sl-more summary")
        self.page.get_by_role("button", name=entry, exact=True).click()

    def tab(self, name: str) -> None:
        """Opens a tab, and waits until the kernel has filled it."""
        tab = self.page.locator(f"[role=tab][data-tab={name}]")
        if tab.is_hidden():
            self.menu(name.capitalize())
        else:
            tab.click()
        self.rest()

    def fresh(self, source: str = "") -> None:
        """Runs the first cell of code, with this source if one is given, and waits until its lab shows a tree.

        JupyterLab looks for a widget for two seconds; on a busy machine it may say instead that it
        found none. A person runs the cell again then, and so does this.
        """
        for _ in range(5):
            self.page.evaluate(_RUN, source)
            if not self.comes("speclabCell().began", 20_000):
                continue  # what is asked for right after the kernel turned idle is sometimes lost
            self.wait("speclabCell().ran")
            assert self.read("speclabCell().errors") == []
            if self.comes(
                f"document.querySelectorAll('.speclab-lab').length === 1 && {PAINTED}", 40_000
            ):
                return
            self.complaints.clear()
        pytest.fail(f"no lab came; picture: {self.shot('lost')}")

    def theme(self, name: str) -> None:
        """Changes JupyterLab's theme, and waits until the page is in it and painted."""
        self.read(
            "jupyterapp.commands.execute('apputils:change-theme', "
            f"{{theme: 'JupyterLab {name}'}}).then(() => 1)"
        )
        self.wait(f"document.body.dataset.jpThemeName === 'JupyterLab {name}'")
        self.rest()

    def shot(self, name: str) -> Path:
        """Saves a picture of what is on the screen."""
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path
