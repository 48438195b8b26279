"""A plain tree decoder of another make: transformers and the recorder alone, and each fault is one switch."""

from __future__ import annotations

import copy

import numpy as np
import torch
from support.pairs import PROMPT, pair_of
from transformers import DynamicCache

import speclab
from speclab.recorder import Recorder, topk

_FAULTS = """
position -8: position
position -1: position
position +3: position
positions of drafted -2: position; position
positions of drafted +8: position; position
along: position; position
sibling: mask; mask
ancestor: mask; mask
exchanged: mask; mask
rootless: mask; mask
transposed: mask; mask
chain: mask; mask
old mask: mask; mask
first hidden: prefix
short: prefix; prefix
long: prefix; text
stale: prefix; slot
first rows: order; slot
first keys: cache
first layer: cache
token: token
temperature: temperature
rows exchanged: answer
rows shifted: answer
unverified: choice
final norm: norm
scaled down: answer
window: window
"""
FAULTS = {}
"""The kind by which each is explained, and the kinds that the record alone tells."""
for _line in _FAULTS.split("\n")[1:-1]:
    _fault, _, _kinds = _line.partition(": ")
    _kind, _, _alone = _kinds.partition("; ")
    FAULTS[_fault] = (_kind, set(_alone.split()))


def recorded(path, fault="", family="llama", dtype="float32", **more):
    """The opened run of a family's target, and the pair."""
    pair = pair_of(family)
    model = copy.deepcopy(pair.target.model)
    if dtype == "int8":
        round_weights(model)
    else:
        model.to(getattr(torch, dtype))
    torch.manual_seed(0)
    decode(model, PROMPT, path, fault, dtype=dtype, **more)
    return speclab.load_steps(path, pair), pair


@torch.no_grad()
def round_weights(model):
    """To a 127th of the largest of a row."""
    for weights in model.parameters():
        step = weights.abs().amax(-1, keepdim=True) / 127
        weights.copy_((weights / step).round() * step)


@torch.inference_mode()
def decode(
    model, prompt, file, fault="", *, iterations=5, temperature=0.0, seed=0, whole=True, **header
):
    """Writes `iterations` passes to `file`, with positions, mask and slots if `whole`."""
    random = np.random.default_rng(seed)
    ideal = model
    cache = DynamicCache()
    before = np.eye(1, dtype=bool)
    model = changed(model, fault)
    first = model(torch.tensor([prompt]), past_key_values=cache).logits[0, -1]
    text = [*prompt, int(first.argmax())]
    places = np.arange(len(prompt))  # of the cache's entries
    recorder = Recorder(file, prompt, temperature=temperature, **header)
    for iteration in range(iterations):
        token, parent = tree(ideal, text, (2, 2, 1, 1)[iteration % 2 :], random)
        n = len(token)
        held = cache.get_seq_length()
        own = ancestors(parent)
        position = len(text) - 2 + own.sum(1)
        given = list(token)
        if fault == "long":
            step(model, [text[-1]], position[:1], np.ones((1, held + 1), dtype=bool), cache, places)
            places = np.append(places, len(text) - 1)
            held = held + 1
        mask = wrong_mask(fault, own, parent, before)
        shown = np.ones((n, held), dtype=bool)
        position = wrong_positions(fault, position)
        if fault in ("first hidden", "short"):
            shown[:, 0 if fault == "first hidden" else -1] = False
        if fault == "token":
            given[2] = given[1]
        window = None if fault == "window" else "as configured"
        logits = step(model, given, position, np.hstack([shown, mask]), cache, places, window)
        logits = wrong_answers(fault, logits, token)
        before = own
        choice = chosen(logits, temperature)
        path = accepted_path(token, parent, choice)
        if fault == "path short" and len(path) > 1:
            path.pop()
        accepted = path[1:]
        committed = [*(token[row] for row in accepted), choice[path[-1]]]
        if fault == "no bonus" and accepted:
            committed.pop()
            path.pop()
        kept = [held + row for row in wrong_rows(fault, path, n)]
        slots = [*range(len(text) - 1 if fault == "long" else held), *kept]
        first = [*slots[: -len(path)], *range(held, held + len(path))]
        for number, layer in enumerate(cache.layers):
            wrong = fault == "first layer" and not number
            layer.keys = layer.keys[:, :, first if wrong or fault == "first keys" else slots]
            layer.values = layer.values[:, :, first if wrong else slots]
        places = np.append(places, position)[slots]
        seen = np.hstack([shown, mask])
        more = {"position": position, "mask": seen, "slot": range(held, held + n)}
        more["kept_slots"] = kept
        held = held if whole else len(text) - 1  # or as the engine believes
        recorder.step(prefix_length=held, token=token, parent=parent, accepted=accepted, committed=committed,
                      choice=choice, topk=topk(logits), **(more if whole else {}))  # fmt: skip
        text += committed
    recorder.close()
    return text


def ancestors(parent):
    """Which rows each row sees."""
    own = np.eye(len(parent), dtype=bool)
    for row in range(1, len(parent)):
        own[row] |= own[parent[row]]
    return own


def chosen(logits, temperature):
    """The target's token after each row."""
    if not temperature:
        return logits.argmax(-1).tolist()
    return (logits / temperature).softmax(-1).multinomial(1)[:, 0].tolist()


def accepted_path(token, parent, choice):
    """The rows that carry the target's choices, from the root."""
    path = [0]
    while below := [
        row
        for row in range(len(token))
        if parent[row] == path[-1] and token[row] == choice[path[-1]]
    ]:
        path += below[:1]
    return path


def wrong_positions(fault, position):
    """The positions that the model is given."""
    rows = np.arange(len(position))
    if fault.startswith("position"):
        return position + int(fault.split()[-1]) * (rows >= fault.startswith("positions of"))
    return position[0] + rows if fault == "along" else position


def wrong_mask(fault, own, parent, before):
    """What each row sees of the others."""
    mask = own.copy()
    n = len(own)
    if fault == "exchanged":
        mask[[1, 2]] = mask[[2, 1]]
    if fault == "old mask":
        mask = np.eye(n, dtype=bool)
        least = min(n, len(before))
        mask[:least, :least] = before[:least, :least]
    changes = {"sibling": (2, 1), "ancestor": (-1, parent[-1]), "rootless": (slice(1, None), 0)}
    if fault in changes:
        mask[changes[fault]] = fault == "sibling"
    return {"transposed": own.T, "chain": np.tri(n, dtype=bool)}.get(fault, mask)


def wrong_answers(fault, logits, token):
    """What is taken for the answers of the pass."""
    n = len(logits)
    if fault == "temperature":
        return logits / 0.6
    if fault == "rows exchanged":
        return logits[[1, 0, *range(2, n)]]
    if fault == "rows shifted":
        return logits.roll(1, 0)
    if fault == "unverified":
        logits[0] = torch.where(torch.arange(logits.shape[1]) == token[1], 0, -torch.inf)
    return logits


def wrong_rows(fault, path, n):
    """The rows that stay in the cache."""
    if fault == "first rows":
        return list(range(len(path)))
    if fault == "reversed rows":
        return path[::-1]
    return sorted([*path, *[row for row in range(1, n) if row not in path][: fault == "stale"]])


def step(model, token, position, seen, cache, places, window="as configured"):
    """One pass, logits `[n, V]`; the mask of a sliding window is cut by position."""
    config = model.config
    far = position[:, None] - np.append(places, position)[None] >= (
        getattr(config, "sliding_window", None) or 1 << 30
    )
    full, cut = [
        torch.where(torch.tensor(rows), 0.0, torch.finfo(model.dtype).min).to(model.dtype)[
            None, None
        ]
        for rows in (seen, seen & ~far if window else seen)
    ]
    kinds = {"full_attention": full, "sliding_attention": cut}
    mask = kinds if "sliding_attention" in (getattr(config, "layer_types", None) or ()) else cut
    at = torch.tensor(position)[None]
    return model(
        torch.tensor([token]), attention_mask=mask, position_ids=at, past_key_values=cache
    ).logits[0]


def tree(model, text, branches, random):
    """The target's own best tokens after each path, the very best left out one time in four."""
    token = [text[-1]]
    parent = [-1]
    level = [(0, list(text))]
    for width in branches:
        logits = model(torch.tensor([path for _, path in level])).logits[:, -1]
        below = []
        for (node, path), row in zip(level, logits, strict=True):
            first = int(random.random() < 0.25)
            for child in row.topk(width + 1).indices[first : first + width].tolist():
                below.append((len(token), [*path, child]))
                token.append(child)
                parent.append(node)
        level = below[:4]
    return token, parent


def changed(model, fault):
    """A copy of the model with what the fault leaves out or scales."""
    twin = copy.deepcopy(model)
    if fault == "final norm":
        norms = [
            name for name, _ in twin.named_modules() if "norm" in name and ".layers." not in name
        ]
        twin.set_submodule(norms[-1], torch.nn.Identity())
    if fault == "scaled down":
        table = twin.get_input_embeddings()
        table.register_forward_hook(lambda _, __, rows: rows * table.embedding_dim**-0.5)
    return twin
