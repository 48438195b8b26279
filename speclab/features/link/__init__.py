"""A link that is the run: iterations in the address of a page, after its `#`, so that no server sees
them.

docs/link.md is the format. The page's functions write and read it (`format.js`), here as in the
browser.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from pydantic_core import from_json

from speclab.drafters import strategies
from speclab.errors import SettingsError, TraceError, named
from speclab.settings import SessionSettings
from speclab.trace.files import checked
from speclab.trace.records import Step, Trace, step_of, trace_of
from speclab.views.drawing import call
from speclab.views.run_data import run_header, step_data

__all__ = ["link", "open_link"]

Data = dict[str, Any]
PAGE = "https://speclab.github.io/speclab/"
"""The page that links open in, unless `SPECLAB_PAGE` names another (pyproject.toml has it, too). It is
assumed until the project is published."""
VERSION = "1"
NAME = "The link"
LONGEST = 8_000
"""Most characters that are written."""
MOST_READ = 64_000
"""Most characters that are read."""
MOST_UNPACKED = 1 << 20
"""Most bytes that a link may unpack to."""
_DATA = re.compile(r"(?:^|[#&]r=)(\d+)\.([A-Za-z0-9_-]*)")


def link(run: Any, *, first: int | None = None, last: int | None = None) -> str:
    """The link of an iteration, or of a run: an address that opens it in a browser, without a kernel.

    Args:
        run: a Step, a Trace or a Session. A Step does not know the text before it: `first` and
            `last` of its run do.
        first: the first iteration, counted from 0; by default that of the run.
        last: the last one, which is included.

    Raises:
        SettingsError: there is no such iteration, or the link would have more than 8,000 characters.
    """
    header, steps = _parts(run)
    if first is None:
        first = 0
    if last is None:
        last = len(steps) - 1
    if not 0 <= first <= last < len(steps):
        raise SettingsError(
            f"This run has the iterations 0 to {len(steps) - 1}, and not {first} to {last}: count from 0."
        )
    answer = call("linkChoices", header, steps, first, last, _defaults(header, steps))
    text = ""
    for data in answer["choices"]:
        text = packed(data)
        if len(text) <= answer["room"]:
            break
    if len(text) > LONGEST:
        raise SettingsError(
            f"The link of iterations {first} to {last} would have {len(text):,} characters, more than "
            f"{LONGEST:,}: name fewer, as in trace.link(first={first}, last={first + 9})."
        )
    return f"{page_address()}#r={text}"


def open_link(text: str) -> Trace:
    """The run of a link: of an address with `#r=…`, or of what follows its `r=`.

    It has what the link carries: `Step.missing` names what it does not. Token ids are numbered by
    their texts where the link has none.

    Raises:
        TraceError: the text has no link, or one that is damaged, too long or of another version.
    """
    answer = call("runOfLink", unpacked(text))
    if answer.get("wrong"):
        raise TraceError(
            f"{NAME} is not a speclab link of version {VERSION}: {answer['wrong']}; copy it again"
        )
    return checked(answer["run"], NAME)


def page_address() -> str:
    """The page that links open in."""
    return os.environ.get("SPECLAB_PAGE") or PAGE


def packed(data: Data) -> str:
    """The JSON of a link as text: raw deflate in base64url, after the version."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15, 9)
    body = squeeze.compress(text.encode("utf-8", "surrogatepass")) + squeeze.flush()
    return f"{VERSION}.{urlsafe_b64encode(body).decode().rstrip('=')}"


def unpacked(text: str) -> Any:
    """The JSON of a link."""
    if not isinstance(text, str):
        raise SettingsError(f"Expected a link as text, got {named(text)}.")
    if len(text) > MOST_READ:
        raise TraceError(f"{NAME} has more than {MOST_READ:,} characters: open the run as a file")
    match = _DATA.search(text.strip())
    if match is None:
        raise TraceError(f"{NAME} has no run: copy all of it, with what follows its #r=")
    version, body = match.groups()
    if version != VERSION:
        raise TraceError(
            f"{NAME} has version {version}, and this speclab reads version {VERSION}: "
            "upgrade speclab"
        )
    damaged = TraceError(f"{NAME} is cut short or damaged; copy it again")
    machine = zlib.decompressobj(-15)
    try:
        content = machine.decompress(
            urlsafe_b64decode(body + "=" * (-len(body) % 4)), MOST_UNPACKED
        )
    except (ValueError, zlib.error):
        raise damaged from None
    if machine.unconsumed_tail:
        raise TraceError(
            f"{NAME} unpacks to more than {MOST_UNPACKED:,} bytes: open the run as a file"
        )
    if not machine.eof or machine.unused_data:
        raise damaged
    try:
        return from_json(content, allow_inf_nan=False)
    except ValueError:
        raise damaged from None


def _parts(run: Any) -> tuple[Data, list[Data]]:
    """The header and the iterations of a run, or of a run that is one iteration."""
    if not isinstance(run, Step):
        trace = trace_of(run)
        return run_header(trace), [step_data(step) for step in trace.steps]
    step = step_data(step_of(run))
    header: Data = {
        "prompt_ids": [],
        "first_token": None,
        "texts": {},
        "settings": {},
        "models": {},
    }
    return header, [step]


def _defaults(header: Data, steps: list[Data]) -> Data:
    """The settings that a link leaves out."""
    values: Data = SessionSettings().model_dump(mode="json")
    settings = {**header["settings"], **steps[0]["settings"]}
    kind = strategies().get(settings.get("strategy", ""))
    if kind is not None:
        values |= kind().model_dump(mode="json")
    return values
