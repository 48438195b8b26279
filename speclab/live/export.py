"""Writes the live page: a folder that any static server can serve, with models, decoder and page.

The page fetches nothing but the files of its folder. `worker.js` answers what the kernel answers
elsewhere; what needs a kernel is left out of the page.
"""

from __future__ import annotations

import gzip
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from speclab.drafters.base import Strategy
from speclab.drafters.chain import Autoregressive, LinearSpeculation
from speclab.drafters.draft_head import DraftHead
from speclab.drafters.dynatree import DynaTree
from speclab.drafters.fixed_tree import FixedTree
from speclab.errors import SpeclabError, UnsupportedModelError
from speclab.files import write_whole
from speclab.loading.presets import find
from speclab.prompts import examples
from speclab.views.modules import joined, page_with_features
from speclab.views.run_data import SCRIPTS as PAGE
from speclab.views.run_data import page_style, plotly_js, strategy_data

NODES = 16
"""The default node budget: nobody times a browser, where each row costs the same."""
STRATEGIES: tuple[Strategy, ...] = (
    DynaTree(node_budget=NODES),
    FixedTree(depth=3, node_budget=64),
    DraftHead(node_budget=NODES, depth=5, children=4),
    LinearSpeculation(),
    Autoregressive(),
)
"""What `grow.js` grows, with the page's defaults; DynaTree is the first setup."""
FIXED = {"history", "root", "commit", "candidates", "head"}
"""Settings that need a kernel."""
NOTE = "In a lab with a kernel: sampling, draft heads and routing, other models and strategies, history, comparing."
SPACE = "---\ntitle: speclab\nsdk: static\nlicense: mit\n---\n"
"""What makes a folder a static Space."""
LINKS = "<!--LINKS-->"
"""Where a site may add links to the page's HTML."""
SCRIPTS = Path(__file__).parent
"""The folder of the decoder's ES modules, and of the page's HTML."""


def export_live(path: str | os.PathLike[str], pair: str = "mini", *, space: bool = False) -> Path:
    """Write the live page as a folder; returns its path.

    Args:
        path: the folder; missing parents are created, files of an earlier export replaced.
        pair: the models by name; they must be GPT-NeoX in float16, as the mini family is.
        space: whether the folder is to be a static Space of Hugging Face, which its README.md says.

    Raises:
        UnsupportedModelError: the browser cannot run these models.
        SpeclabError: there is no such pair, or the folder cannot be written.
    """
    folder = Path(path)
    preset = find(pair)
    models = [Path(preset.target), Path(preset.draft or "")]
    if preset.tokenizer is None or not all(
        (model / "model.safetensors").is_file() for model in models
    ):
        raise UnsupportedModelError(
            f"The live page runs the mini family, not {pair!r}: use speclab lab for other models."
        )
    weights = {
        "target.safetensors": (models[0] / "model.safetensors").read_bytes(),
        "draft.safetensors": (models[1] / "model.safetensors").read_bytes(),
        "tokenizer.json": (Path(preset.tokenizer) / "tokenizer.json").read_bytes(),
    }
    lab = {
        "files": [_listed(name, data) for name, data in weights.items()],
        "configs": [json.loads((model / "config.json").read_text()) for model in models],
        "models": {
            "pair": pair,
            "target": f"{pair}/target",
            "draft": f"{pair}/draft",
            "device": "browser",
        },
        "catalog": catalog(),
        "wanted": _first(),
    }
    parts = {
        "page.js.gz": _packed(page_with_features(PAGE / "page.js")),
        "worker.js.gz": _packed(f"const LAB = {json.dumps(lab)};\n{joined(SCRIPTS / 'worker.js')}"),
        "plotly.js.gz": plotly_js(),
        "index.html": index().encode(),
    }
    if space:
        parts["README.md"] = SPACE.encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpeclabError(
            f"{folder} is not a folder to write ({error.strerror}): name another."
        ) from None
    for name, data in {**weights, **parts}.items():
        write_whole(folder / name, data)
    return folder


def catalog() -> dict[str, Any]:
    """What the page's form offers, as the message `Catalog` (lab/_messages.py)."""
    return {
        "strategies": [_offered(strategy) for strategy in STRATEGIES],
        "models": [],
        "prompts": [
            {"name": prompt.name, "kind": prompt.kind, "text": prompt.text, "chat": False}
            for prompt in examples()
        ],
        "devices": [],
        "current": "",
        "note": NOTE,
    }


def index() -> str:
    """The page's HTML."""
    html = SCRIPTS.joinpath("index.html").read_text(encoding="utf-8")
    start = joined(SCRIPTS / "start.js")
    return html.replace("/*STYLE*/", page_style()).replace("/*START*/", start)


def _offered(strategy: Strategy) -> dict[str, Any]:
    """A strategy without the settings that need a kernel; its node budget is a number."""
    data = strategy_data(type(strategy))
    properties = data["schema"]["properties"]
    for name in FIXED & properties.keys():
        del properties[name]
    if "node_budget" in properties:
        properties["node_budget"] |= {"minimum": 1, "maximum": 256, "type": "integer"}
        del properties["node_budget"]["anyOf"]
    defaults = strategy.model_dump(mode="json")
    for name in properties:
        properties[name]["default"] = defaults[name]
    presets = [
        {"name": preset["name"], "settings": preset["settings"]}
        for preset in data["presets"]
        if all(preset["settings"][name] == defaults[name] for name in FIXED & defaults.keys())
    ]
    return data | {"settings": defaults, "presets": presets}


def _first() -> dict[str, Any]:
    strategy = STRATEGIES[0]
    return {
        "models": None,
        "strategy": {"name": type(strategy).__name__, "settings": strategy.model_dump(mode="json")},
        "session": {"max_new_tokens": 60},
        "prompt": examples()[1].text,
        "chat": False,
    }


def _listed(name: str, data: bytes) -> dict[str, Any]:
    digest = ",".join(map(str, sha256(data).digest()))
    return {"name": name, "size": len(data), "sha256": digest}


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), 9, mtime=0)
