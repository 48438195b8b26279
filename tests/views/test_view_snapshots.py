"""One stored picture each, of the five-node step or a run of four iterations.

After a wanted change look at the new pictures, then store them: SPECLAB_STORE_SNAPSHOTS=1 pytest tests/views.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from draft_samples import routed, routed_run, stopped, typical, united
from spine_samples import compared, found, run
from view_samples import five_nodes, trace

from speclab.theory import IsotropicShape, SpineShape, isotropic_yield, spine_yield
from speclab.views import (
    cache,
    drafts_page,
    explain,
    figure,
    lookup,
    mask,
    metrics,
    points,
    residual,
    routes,
    shapes,
    strategy,
    text,
    tree,
)
from speclab.views.walk import Moment

FOLDER = Path(__file__).parent / "snapshots"


def _figure() -> str:
    made = tree.tree_figure(five_nodes(), selected=3)
    arrays = {
        name: {"x": trace.x, "y": trace.y, "text": trace.text, "hovertext": trace.hovertext}
        for name, trace in zip(figure.TRACES, made.data, strict=True)
    }
    return json.dumps(arrays, indent=1, ensure_ascii=False)


def _without_image(svg: str) -> str:
    """Compressed bytes differ from one zlib to the next; the pixels have their own test."""
    return re.sub(r"base64,[^\"]+", "base64,", svg)


SPINE = SpineShape(4, (3.4, 1.8, 0.2, 0.0), spine_yield(0.6, 0.2, (3.4, 1.8, 0.2, 0.0), 2))
EVEN = IsotropicShape(3, 2, isotropic_yield(0.2, 3, 2))
RATES = ("accepted over drafted tokens", ("copied", "guessed"), {"prose": (0.26, 0.03), "code <b>": (0.25, 0.0)})

PICTURES = {
    "tree.svg": lambda: tree.tree_svg(five_nodes(), 3),
    "tree_draft.svg": lambda: tree.tree_svg(five_nodes(), moment=Moment("draft", level=1)),
    "tree_verify_dark.svg": lambda: tree.tree_svg(five_nodes(), theme="dark", moment=Moment("verify")),
    "tree_figure.json": _figure,
    "tree.html": lambda: tree.table(five_nodes()),
    "node.html": lambda: explain.node_table(five_nodes(), 3),
    "events.html": lambda: explain.events_table(five_nodes()),
    "mask.svg": lambda: mask.mask_svg(five_nodes(), 3),
    "mask_full.svg": lambda: _without_image(mask.mask_svg(five_nodes(), mode="full")),
    "mask_compare.svg": lambda: mask.mask_svg(five_nodes(), mode="compare"),
    "text.html": lambda: text.text_html(trace(4)),
    "text_probability.html": lambda: text.text_html(trace(4), 2, by="probability"),
    "cache.svg": lambda: cache.cache_svg(five_nodes(), 3, prompt=8),
    "metrics.svg": lambda: metrics.metrics_svg(trace(4)),
    "metrics.html": lambda: metrics.metrics_table(trace(4)),
    "strategy.html": lambda: strategy.strategy_html(run(), 2, compared()),
    "drafts.html": lambda: drafts_page.drafts_html(routed()),
    "drafts_merged.html": lambda: drafts_page.drafts_html(united(), theme="dark"),
    "drafts_nodes.html": lambda: drafts_page.nodes_table(routed()),
    "routes.html": lambda: routes.routing_html(routed_run()),
    "residual.html": lambda: residual.residual_html(stopped()),
    "residual_typical.html": lambda: residual.residual_html(typical(), "dark"),
    "lookup.html": lambda: lookup.lookup_html(found(), {3: "accepted"}),
    "shapes.svg": lambda: shapes.shapes_svg(SPINE, EVEN, 2),
    "points.svg": lambda: points.points_svg(*RATES),
    "points.html": lambda: points.points_table(*RATES),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_the_stored_one(name):
    path, made = FOLDER / name, PICTURES[name]() + "\n"
    if os.environ.get("SPECLAB_STORE_SNAPSHOTS"):
        path.write_text(made, encoding="utf-8")
    assert made == path.read_text(encoding="utf-8")


def test_drawing_twice_gives_the_same():
    for make in PICTURES.values():
        assert make() == make()


def test_views_need_neither_models_nor_widgets():
    names = [path.stem for path in Path(tree.__file__).parent.glob("*.py") if path.stem != "__init__"]
    code = "\n".join(
        [
            "import sys",
            *(f"import speclab.views.{name}" for name in names),
            "heavy = {'torch', 'transformers', 'ipywidgets', 'plotly', 'IPython'} & set(sys.modules)",
            "assert not heavy, heavy",
        ]
    )
    subprocess.run([sys.executable, "-c", code], check=True)
