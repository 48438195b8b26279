# ruff: noqa: INP001  # a script beside its pictures, no package
"""Draws the README's pictures anew, from the run that notebooks/gallery.ipynb shows: python docs/images/draw.py."""

from __future__ import annotations

from pathlib import Path

import speclab
from speclab.views.export import view_svg

VIEWS = ("tree", "mask")


def shown() -> tuple[speclab.Trace, int]:
    """The run, and how many iterations of it are shown: up to the longest accepted path, then the largest tree."""
    prompt = speclab.prompts.examples("prose")[0].text
    session = speclab.Session(speclab.load_pair(), speclab.DynaTree.for_unsure_draft(), prompt, max_new_tokens=40)
    session.run()
    steps = session.trace.steps
    return session.trace, 1 + max(steps[1:], key=lambda step: (len(step.accepted), len(step.tree))).index


def pictures() -> dict[str, str]:
    """File name to SVG."""
    trace, cursor = shown()
    return {f"{name}.svg": view_svg(trace, cursor, name) for name in VIEWS}


if __name__ == "__main__":
    for name, svg in pictures().items():
        Path(__file__).with_name(name).write_text(svg, encoding="utf-8")
