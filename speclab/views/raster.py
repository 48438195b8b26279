"""An SVG as PNG bytes at twice its size: by resvg, else by a Chromium or Chrome on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from tempfile import TemporaryDirectory

from speclab.errors import TraceError
from speclab.views.resvg import SCALE, png_by_resvg

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
PATIENCE = 60
_PAGE = """<!doctype html><meta charset="utf-8"><body><img src="data:image/svg+xml;base64,%s" onload="
const c=document.createElement('canvas'),s=%d;c.width=this.naturalWidth*s;c.height=this.naturalHeight*s;
const g=c.getContext('2d');g.scale(s,s);g.drawImage(this,0,0);document.body.dataset.png=c.toDataURL('image/png')">"""
_FOUND = re.compile(r'data-png="data:image/png;base64,([^"]+)"')


def png_of(svg: str) -> bytes:
    """The picture as PNG.

    Raises:
        TraceError: neither can draw it here.
    """
    return png_by_resvg(svg) or _by_browser(svg)


def _by_browser(svg: str) -> bytes:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise TraceError(
            "A PNG is drawn by the package resvg_py with the fonts of this machine, or by Chromium or Chrome, and here "
            "is neither: install one (and a font, such as DejaVu), or save as .svg."
        )
    with TemporaryDirectory() as home:
        page = Path(home) / "page.html"
        page.write_text(_PAGE % (b64encode(svg.encode()).decode(), SCALE), encoding="utf-8")
        # A browser of root's has no sandbox; what it opens here is this page alone.
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        options = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={home}/profile", *root]
        try:
            done = subprocess.run(  # noqa: S603  # our own page, in a browser found on the PATH
                [browser, *options, "--dump-dom", page.as_uri()], capture_output=True, timeout=PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            raise TraceError(f"{browser} did not draw the picture in {PATIENCE} s: save it as .svg.") from None
    found = _FOUND.search(done.stdout.decode(errors="replace"))
    if found is None:
        raise TraceError(f"{browser} drew no picture (it ended with {done.returncode}): save it as .svg.")
    return b64decode(found[1])
