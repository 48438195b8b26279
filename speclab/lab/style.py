"""How the lab looks: colours come from JupyterLab's variables, so that it follows the theme."""

from __future__ import annotations

STYLE = ""
