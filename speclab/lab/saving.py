"""What is on the screen as a file: the run to open again, the run to read anywhere, or one view of it."""

from __future__ import annotations

import os
from pathlib import Path

from speclab.lab.state import Frame
from speclab.views.files import save_view
from speclab.views.page import export_html

TRACE, PAGE = "trace", "page"


def save(frame: Frame, what: str, path: str | os.PathLike[str]) -> Path:
    """Writes the run (`what` is "trace" or "page") or a view of the iteration shown, by its name in `views.files`.

    Raises:
        SpeclabError: it cannot be drawn or written.
    """
    if what == TRACE:
        return frame.trace.save(path)
    if what == PAGE:
        return export_html(frame.trace, path, frame.cursor, frame.beside)
    return save_view(frame.trace, frame.cursor, what, path, frame.selected)
