"""How the lab looks. Colours come from JupyterLab's variables, so that everything follows the theme."""

from __future__ import annotations

from pathlib import Path

STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
