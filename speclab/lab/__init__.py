"""The lab: one widget over a Session. Only this room imports ipywidgets."""

from __future__ import annotations

from speclab.lab.lab import Lab

__all__ = ["Lab"]
