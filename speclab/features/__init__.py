"""What a person can do with a run besides decoding it. A feature is a folder here and a line below.

A folder has what its feature adds, and nothing else knows it:

    __init__.py   its functions in Python
    lab.py        `PARTS`: what the lab answers for it (speclab/lab/_parts.py)
    tab.js        what it adds to the page (speclab/views/page/features.js)
    words.json    its sentences, merged with those of the page
    pictures.py   its functions of `speclab.views`; `PICTURES` names them

Its tests are in tests/features/, in a folder of the same name. Without its folder and its line the
rest works as before.
"""

from __future__ import annotations

from pathlib import Path

FEATURES = (
    "whatif",
    "pace",
    "replay",
    "by_hand",
    "guess",
    "caches",
    "node",
    "sampling",
    "routes",
    "metrics",
    "compare",
    "pin",
    "check",
    "runs",
    "pictures",
    "files",
    "link",
    "nodes",
)
"""The features, in the order in which the page shows what they add."""
PICTURES = {
    "node": "node",
    "metrics": "metrics",
    "whatif": "whatif",
    "curve": "replay",
    "replays": "replay",
    "residual": "sampling",
    "compare": "compare",
    "marginals": "nodes",
    "ranks": "nodes",
}
"""Functions of `speclab.views` that a feature's `pictures.py` has, and the feature."""
FOLDER = Path(__file__).parent


def parts_named(file: str) -> list[Path]:
    """The files of this name, of the features that have one, in their order."""
    paths = [FOLDER / feature / file for feature in FEATURES]
    return [path for path in paths if path.exists()]
