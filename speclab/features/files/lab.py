"""Saves a run of the lab to a file, and opens one."""

from __future__ import annotations

import base64
import gzip
import tempfile
from pathlib import Path

from speclab.errors import TraceError
from speclab.lab._commands import command
from speclab.lab._messages import ToPage, kept_panels
from speclab.lab._parts import Part
from speclab.trace.codecs import adapter
from speclab.trace.files import unpack_trace
from speclab.trace.records import Trace
from speclab.views.exported_page import page


class File(ToPage):
    """A file to download; `data` is base64."""

    name: str
    mime: str
    data: str


class FilesPart(Part):
    """A run as a file."""

    @command("Saving")
    def on_save(self, what: str) -> None:
        """Send the page the run as a file to download: an HTML page, or a trace."""
        trace = self.runs.shown().trace
        if what == "page":
            name = "run.html"
            mime = "text/html"
            content = page(trace, "run", panels=kept_panels(self.state.panels)).encode()
        else:
            name = "run.json.gz"
            mime = "application/gzip"
            content = gzip.compress(adapter(Trace).dump_json(trace))
        self.state.post("file", name=name, mime=mime, data=base64.b64encode(content).decode())

    @command("Opening")
    def on_open(self, name: str, data: str) -> None:
        """Show a run from an uploaded file; the row of runs switches back."""
        try:
            content = base64.b64decode(data, validate=True)
        except ValueError:
            raise TraceError(f"{name} did not arrive whole: open it again") from None
        if name.endswith(".jsonl"):
            from speclab.clinic.steps_file import load_steps

            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "run.jsonl"
                path.write_bytes(content)
                trace = load_steps(path)
        else:
            trace = unpack_trace(content, name)
        self.runs.open_trace(trace, Path(name).name)


PARTS = (FilesPart,)
