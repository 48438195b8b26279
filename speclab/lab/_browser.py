"""Pictures of figures as PNG, for a saved notebook: kaleido draws them in a process of its own.

kaleido needs a Chrome. One that is missing or does not start must neither stop the user's kernel
nor leave a server in it, so each call starts a process with a limit, which ends with its browser.
This file is also what that process runs: it imports nothing of speclab.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

LONGEST = 15
"""Seconds that the pictures of one iteration may take, the start of the browser included."""
_failed = False  # once is enough: the next picture of this kernel does not wait again


def pngs(figures: Sequence[str]) -> list[str]:
    """Figures, as plotly's JSON, drawn as PNG in base64; empty where no browser draws them."""
    global _failed
    if _failed or find_spec("kaleido") is None:
        return []
    try:
        # -P: this folder has no modules for the process
        done = subprocess.run(
            [sys.executable, "-P", str(Path(__file__)), str(LONGEST)],
            input=json.dumps(list(figures)),
            capture_output=True,
            text=True,
            timeout=LONGEST + 5,  # the process stops by itself, and its browser with it
            check=True,
        )
        drawn: list[str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        _failed = True
        return []
    return drawn


async def _draw(figures: Sequence[str], longest: float) -> list[str]:
    from kaleido import Kaleido

    drawn = []
    browser = Kaleido(n=1, mathjax=False)  # MathJax would come from a CDN
    try:
        async with asyncio.timeout(longest):
            await browser.open()
            for figure in figures:
                png = await browser.calc_fig(json.loads(figure), opts={"format": "png"})
                drawn.append(b64encode(png).decode())
            await browser.close()
    except BaseException:
        _end(browser)
        os._exit(1)  # at once: kaleido's threads would be waited for
    return drawn


def _end(browser: object) -> None:
    """Ends a browser that did not end by itself; it runs in a session of its own."""
    process = getattr(browser, "subprocess", None)  # none if it did not start
    if process is not None and hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_draw(json.load(sys.stdin), float(sys.argv[1])))))
