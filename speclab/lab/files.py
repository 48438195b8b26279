"""Saving and opening: the run as a trace or a page, any view as a picture; a trace from a path or an upload."""

from __future__ import annotations

from functools import partial

from ipywidgets import HTML, Button, Dropdown, FileUpload, HBox, Text, ToggleButton

from speclab.lab.commands import Commands
from speclab.lab.saving import PAGE, TRACE
from speclab.lab.sync import assign, on_change, show
from speclab.lab.transport import button
from speclab.trace.files import unpack_trace
from speclab.views.files import VIEWS

_NAMES = {TRACE: "trace, to open again", PAGE: "page, to read anywhere"}
_ENDINGS = {TRACE: ".json.gz", PAGE: ".html"}


class Files(HBox):
    """A row that `toggle` shows: what to save and where, and what to open."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self.toggle = ToggleButton(description="Files", icon="save", tooltip="save the run or a view, open a trace")
        self.toggle.add_class("speclab-files-toggle")
        views = [(f"{name.replace('-', ', ')} as a picture", name) for name in VIEWS]
        self.what = Dropdown(
            options=[*((label, name) for name, label in _NAMES.items()), *views],
            tooltip="what to save", description="save",
        )  # fmt: skip
        self.path = Text(tooltip="a path on the machine that runs the notebook; pictures end in .svg or .png")
        self.path.add_class("speclab-path")
        self.save_button: Button = button("save", "Save", "write the file", "save", self._save)
        self.open_button: Button = button(
            "open", "Open", "show the trace at this path; no model runs", "folder-open", self._open
        )
        self.upload = FileUpload(accept=".gz", description="Upload", tooltip="show a trace from your computer")
        self.upload.add_class("speclab-upload")
        on_change(self.what, self._chosen)
        on_change(self.upload, lambda _: self._uploaded())
        on_change(self.toggle, lambda wanted: show(self, wanted))
        self._chosen(TRACE)
        said = HTML('<span class="sl-muted">PNG is drawn with the fonts of that machine; SVG needs none</span>')
        super().__init__([self.what, self.path, self.save_button, self.open_button, self.upload, said])
        self.add_class("speclab-files")
        show(self, visible=False)

    def _chosen(self, what: str) -> None:
        stem = what if what in VIEWS else "run"
        assign(self.path, value=stem + _ENDINGS.get(what, ".svg"))

    def _save(self) -> None:
        self._commands.save(self.what.value, self.path.value.strip())

    def _open(self) -> None:
        self._commands.open_trace(self.path.value.strip())

    def _uploaded(self) -> None:
        for file in self.upload.value:
            name, content = file["name"], bytes(file["content"])
            self._commands.open_trace(partial(unpack_trace, content, name), name)
        assign(self.upload, value=())
