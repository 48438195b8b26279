"""Draw README's pictures in headless Chromium: the first screen of the live page, light and dark,
and five iterations with the phases of one as an animated PNG.

python scripts/draw_readme.py    needs Playwright and a Chromium

The words of the screen stand in the pictures; a browser test compares them with today's screen.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

import speclab

IMAGES = Path(__file__).parents[1] / "docs" / "images"
QUERY = "?prompt=Once%20upon%20a%20time&length=50"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHASES = ("draft", "flatten", "verify", "accept", "commit", "all")
MILLISECONDS = 1100
"""How long a frame is shown."""
SIGNATURE = b"\x89PNG\r\n\x1a\n"
_WORDS = """[...document.querySelectorAll('.speclab-page :is(button, .sl-caption, .sl-title, .sl-said)')]
  .filter(one => one.checkVisibility()).map(one => one.innerText).join(' ')"""
_WIDE = """document.querySelector('.speclab-page')?.clientWidth === 1000
  && document.querySelector('.speclab-tree .main-svg')"""


def words_of(page: Any) -> bytes:
    """The controls, names and sentences that a page shows, as a chunk of a PNG."""
    return _chunk(b"iTXt", b"words\0\0\0\0\0" + page.evaluate(_WORDS).encode())


def first_screen(page: Any) -> None:
    """Show the first iteration with its answer, 1,000 pixels wide."""
    page.set_viewport_size({"width": 1040, "height": 900})
    page.wait_for_function(_WIDE)
    skip = page.locator("text=Just show it")
    if skip.count():
        skip.click()
    page.wait_for_timeout(700)  # nothing moves any more


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        speclab.export_live(folder)
        handler = partial(Quiet, directory=folder)
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/index.html{QUERY}"
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        flags = ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        for name, scheme in (("lab", "light"), ("lab_dark", "dark")):
            _draw(browser, address, name, scheme)
        server.shutdown()
        browser.close()


def _draw(browser: Browser, address: str, name: str, scheme: Any) -> None:
    page = browser.new_page(color_scheme=scheme, bypass_csp=True)
    page.goto(address)
    first_screen(page)
    picture = page.locator(".speclab-page").screenshot()
    (IMAGES / f"{name}.png").write_bytes(picture[:-12] + words_of(page) + picture[-12:])
    if scheme == "light":
        (IMAGES / "lab_steps.png").write_bytes(_animated([*_frames(page)]))
    page.close()


def _frames(page: Any) -> Iterator[bytes]:
    clip = {"x": 20, "y": 120, "width": 1000, "height": 520}
    for phase in PHASES:
        page.click(f"[data-phase={phase}]")
        page.wait_for_timeout(500)
        yield page.screenshot(clip=clip)
    for _ in range(4):
        page.click("button.speclab-step")
        page.wait_for_timeout(1500)
        yield page.screenshot(clip=clip)


def _animated(frames: Sequence[bytes]) -> bytes:
    """PNGs of one size as an animated PNG, which shows its first frame where nothing moves."""
    parts = [SIGNATURE]
    number = 0
    for index, frame in enumerate(frames):
        chunks = [*_chunks(frame)]
        header = next(data for kind, data in chunks if kind == b"IHDR")
        if index == 0:
            parts += [_chunk(b"IHDR", header), _chunk(b"acTL", struct.pack(">II", len(frames), 0))]
        control = struct.pack(">I", number) + header[:8]
        control += struct.pack(">IIHHBB", 0, 0, MILLISECONDS, 1000, 0, 0)
        parts.append(_chunk(b"fcTL", control))
        number += 1
        for kind, data in chunks:
            if kind == b"IDAT" and index == 0:
                parts.append(_chunk(kind, data))
            elif kind == b"IDAT":
                parts.append(_chunk(b"fdAT", struct.pack(">I", number) + data))
                number += 1
    return b"".join([*parts, _chunk(b"IEND", b"")])


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(picture):
        (length,) = struct.unpack_from(">I", picture, at)
        yield picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        at += length + 12


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    main()
