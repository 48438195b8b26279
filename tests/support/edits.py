"""Edits of a loaded model, and what each way to go on makes of them.

A line of edits.txt has the name of an edit, the edit, and what happens before the model is loaded.
"""

from __future__ import annotations

import copy
import functools  # noqa: F401
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import accelerate  # noqa: F401
import torch
from support.pairs import library_text
from support.tiny import tiny
from torch import nn

import speclab
from speclab.models import products

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 8, 7, 11, 13]
NEW = 7
SETTINGS = {"max_new_tokens": NEW, "stop_at_eos": False}
LINES = (Path(__file__).parent / "edits.txt").read_text().splitlines()
EDITS = {name: steps for name, *steps in (line.split(" || ") for line in LINES)}
FAMILIES = ("llama", "gpt_neox", "mistral", "gemma3_text")
ONLY = {"window": ("mistral",), "chunk": ("llama4_text",)}
CASES = [
    (name, family)
    for place, name in enumerate(EDITS)
    for family in ONLY.get(name, ("llama", FAMILIES[1 + place % 3]))
]
"""Each edit of Llama and of another family, in turn."""
SAME = {"half", "double", "attention", "offloaded"}
"""Edits after which the text may be the same."""


class Wrapped(nn.Module):
    """Negates a part, and records what passes: each pass writes its attributes."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.calls = 0

    def forward(self, rows):
        self.calls += 1
        self.last = -self.inner(rows)
        return self.last


def own_text(model, prompt=PROMPT, count=NEW):
    return library_text(model, prompt, count)


def negated(*values):
    """The last of the values, as a hook gets them: rows, or the output of a model."""
    if isinstance(values[-1], torch.Tensor):
        return -values[-1]
    values[-1].logits.neg_()
    return values[-1]


def add_layer(model, layers):
    twin = copy.deepcopy(layers[1])
    for part in twin.modules():
        if hasattr(part, "layer_idx"):
            part.layer_idx = 2
    layers.append(twin)
    model.config.num_hidden_layers = 3
    if kinds := getattr(model.config, "layer_types", None):
        model.config.layer_types = [*kinds, kinds[1]]


def parts(model):
    """The names that an edit may use."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    neox = model.config.model_type == "gpt_neox"
    base = model.gpt_neox if neox else model.model
    layer, rope = base.layers[0], base.rotary_emb
    mlp = getattr(layer, "mlp", layer)
    up, act = ("dense_h_to_4h", "act") if neox else ("up_proj", "act_fn")
    linear = getattr(mlp, up, head)
    weight = linear.weight
    attention = layer.attention if neox else layer.self_attn
    return globals() | locals()


def outcomes(name, family):
    """For each way to go on: "right", "wrong", or the name of the error."""
    model = tiny(family)
    names = parts(model)
    edit, *first = EDITS[name]
    exec("".join(first), names)
    strategy = speclab.LinearSpeculation(draft_tokens=2)
    before = own_text(model)

    def right(ids, done=0):
        """Whether the model continues the first tokens like this; in half precision it may differ."""
        same = ids[done:] == own_text(model, PROMPT + ids[:done], NEW - done)
        return same or model.dtype == torch.float16

    def run(session):
        done = len(session.token_ids)
        session.run()
        return right(session.token_ids, done)

    with patch.object(products, "PACKING", family == "llama"):
        draft = tiny("llama", seed=1, num_hidden_layers=1)
        pair = speclab.load_pair(target=model, draft=draft)
        first, second, checked = (
            speclab.Session(pair, strategy, PROMPT, **SETTINGS, check=check)
            for check in (False, False, True)
        )
        for session in (first, second, checked):
            session.step()
        exec(edit, names)
        assert name in SAME or own_text(model) != before
        ways: dict[str, Callable[[], bool]] = {
            "step": lambda: run(first),
            "replay": lambda: speclab.replay(second, speclab.PromptLookup()) is None,
            "new text": lambda: right(
                speclab.generate(pair, strategy, PROMPT, check=True, **SETTINGS).token_ids
            ),
            "fork": lambda: run(second.fork(check=True)),
            "later step": lambda: run(second),
            "open check": lambda: run(checked),
        }
        return {way: _outcome(call) for way, call in ways.items()}


def _outcome(call):
    try:
        return "right" if call() else "wrong"
    except Exception as error:
        return type(error).__name__
