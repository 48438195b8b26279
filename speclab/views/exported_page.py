"""A run as one HTML file: the lab's page without a kernel."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from typing import Any

from speclab.drafters import strategies
from speclab.trace.records import Trace
from speclab.views.modules import page_with_features
from speclab.views.run_data import (
    SCRIPTS,
    pack,
    page_style,
    plotly_js,
    run_header,
    step_data,
    strategy_data,
)

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""What the exported page may load: nothing but what is in the file."""
NO_SCRIPT = "This page draws the run with scripts, which are off here."


def page(
    trace: Trace, name: str, cursor: int | None = None, panels: Mapping[str, Any] | None = None
) -> str:
    """A run as one HTML file: the lab's page without a kernel.

    It contains plotly.js and needs no network.
    """
    shown = min(1, len(trace.steps)) if cursor is None else cursor
    run = {
        "header": run_header(trace),
        "cursor": shown,
        "steps": [step_data(step) for step in trace.steps],
        "panels": panels or {},
    }
    known = strategies()
    used = sorted({str(step.settings.get("strategy")) for step in trace.steps} & known.keys())
    kinds = [strategy_data(known[name]) for name in used]
    data = json.dumps(
        {"run": pack(run), "strategies": kinds, "plotly": b64encode(plotly_js()).decode()}
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>{escape(name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{page_style()}</style></head><body>'
        f'<main id="page"></main><noscript>{NO_SCRIPT}</noscript>'
        f'<script type="application/json" id="data">{data}</script>'
        f"<script>{page_with_features(SCRIPTS / 'exported.js')}</script></body></html>"
    )
