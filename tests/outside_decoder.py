"""A plain tree decoder of another make, with faults as switches; it writes its passes down with the recorder."""

from __future__ import annotations

import copy

import numpy as np
import torch

from speclab.models.runner import Runner
from speclab.recorder import Recorder


class Outside:
    """Greedy, over trees whose right branch is drafted three times out of four; `fault` is a name of `KINDS`."""

    def __init__(self, model, fault: str = "", seed: int = 0) -> None:
        self.runner, self.ideal = Runner(changed(model, fault), lean=False), Runner(model, lean=False)
        self.fault, self.random, self.mask = fault, np.random.default_rng(seed), None
        self.vocab = min(model.config.vocab_size, 4000)

    def tree(self, text: list[int], branches) -> tuple[list[int], list[int]]:
        token, parent, level = [text[-1]], [-1], [(0, [])]
        for width in branches:
            below = []
            for node, path in level[:4]:
                self.ideal.crop(0)
                right = int(self.ideal.extend([*text, *path]).argmax())
                others = self.random.permutation(self.vocab)[:width].tolist()
                for one in dict.fromkeys([right, *others] if self.random.random() < 0.75 else others):
                    below.append((len(token), [*path, one]))
                    token.append(one)
                    parent.append(node)
            level = below
        return token, parent

    def decode(self, prompt, path, iterations: int = 5, whole: bool = True, **header) -> list[int]:
        """`whole`: the record also has positions, masks and slots."""
        text = [*prompt, int(self.runner.extend(prompt).argmax())]
        with Recorder(path, prompt, **header) as recorder:
            for iteration in range(iterations):
                step = self.step(text, *self.tree(text, (2, 2, 1, 1)[iteration % 2 :]))
                seen = {name: step.pop(name) for name in ("position", "mask", "slot", "kept_slots", "hidden_prefix")}
                recorder.step(**step, **(seen if whole else {}))
                text += step["committed"]
        return text

    def step(self, text, token, parent) -> dict:
        """One pass: what a line of the file holds."""
        n, held, first = len(token), len(text) - 1, self.runner.length
        mask = np.eye(n, dtype=bool)
        for row in range(1, n):
            mask[row] |= mask[parent[row]]
        pass_ = {"token": token, "position": [held + int(row.sum()) - 1 for row in mask], "mask": mask.copy()}
        before, self.mask = self.mask, mask
        shown = np.ones((n, first), dtype=bool)
        if self.fault in BEFORE:
            BEFORE[self.fault](pass_, shown, parent, before)
        seen = np.concatenate([shown, pass_["mask"]], axis=1)
        logits = self.runner.logits(pass_["token"], pass_["position"], seen).logits
        logits = AFTER.get(self.fault, lambda rows: rows)(logits)
        choice, path = logits.argmax(-1).tolist(), [0]
        while below := [r for r in range(n) if parent[r] == path[-1] and token[r] == choice[path[-1]]]:
            path.append(below[0])
        kept = list(range(len(path))) if self.fault == "order" else path
        if self.fault == "stale":
            kept = sorted([*path, next(row for row in range(1, n) if row not in path)])
        self.runner.keep(first, [first + row for row in kept])
        top = logits.float().log_softmax(-1).topk(16)
        best = top.indices.tolist(), top.values.tolist()
        return pass_ | {
            "prefix_length": first, "token": token, "parent": parent, "accepted": path[1:], "choice": choice,
            "committed": [*(token[row] for row in path[1:]), choice[path[-1]]],
            "topk": [list(zip(ids, values, strict=True)) for ids, values in zip(*best, strict=True)],
            "slot": range(first, first + n), "kept_slots": [first + row for row in kept],
            "hidden_prefix": [[row, entry, entry] for row, entry in np.argwhere(~shown).tolist()],
        }  # fmt: skip


def moved(shift):
    def move(pass_, shown, parent, before):
        pass_["position"] = [place + shift for place in pass_["position"]]

    return move


def along(pass_, shown, parent, before):
    pass_["position"] = [pass_["position"][0] + row for row in range(len(parent))]


def sibling(pass_, shown, parent, before):
    pass_["mask"][2, 1] = True


def ancestor(pass_, shown, parent, before):
    pass_["mask"][-1, parent[-1]] = False


def exchanged(pass_, shown, parent, before):
    pass_["mask"][[1, 2]] = pass_["mask"][[2, 1]]


def rootless(pass_, shown, parent, before):
    pass_["mask"][1:, 0] = False


def chain(pass_, shown, parent, before):
    pass_["mask"] = np.tri(len(parent), dtype=bool)


def old_mask(pass_, shown, parent, before):
    if before is not None:
        least, pass_["mask"] = min(len(parent), len(before)), np.eye(len(parent), dtype=bool)
        pass_["mask"][:least, :least] = before[:least, :least]


def short(pass_, shown, parent, before):
    shown[:, -1] = False


def token(pass_, shown, parent, before):
    pass_["token"] = [*pass_["token"][:2], pass_["token"][1], *pass_["token"][3:]]


BEFORE = {"position": moved(4), "back": moved(-1), "along": along, "sibling": sibling, "ancestor": ancestor}
BEFORE |= {"exchanged": exchanged, "rootless": rootless, "chain": chain, "old mask": old_mask, "short": short}
BEFORE |= {"token": token}
AFTER = {"temperature": lambda rows: rows / 0.6, "answer": lambda rows: rows[[1, 0, *range(2, len(rows))]]}
KINDS = {
    "position": "position", "back": "position", "along": "position", "sibling": "mask", "ancestor": "mask",
    "exchanged": "mask", "rootless": "mask", "chain": "mask", "old mask": "mask", "short": "prefix", "token": "token",
    "temperature": "temperature", "answer": "answer", "order": "order", "stale": "prefix", "final norm": "norm",
    "first norm": "norm", "scale": "scale", "window": "window",
}  # fmt: skip
"""The kind by which each fault is explained."""
ALONE = {"position": "position", "back": "position", "along": "position", "order": "slot", "stale": "slot"}
ALONE |= dict.fromkeys(("sibling", "ancestor", "exchanged", "rootless", "chain", "old mask"), "mask")
ALONE |= {"short": "prefix"}
"""The kind by which the record alone tells it, where it does."""


def changed(model, fault: str):
    if fault not in {"final norm", "first norm", "scale", "window"}:
        return model
    twin = copy.deepcopy(model)
    norms = [name for name, part in twin.named_modules() if "norm" in type(part).__name__.lower()]
    if "norm" in fault:
        outside_layers = [name for name in norms if not any(piece.isdigit() for piece in name.split("."))]
        twin.set_submodule(outside_layers[-1] if fault == "final norm" else norms[0], torch.nn.Identity())
    elif fault == "scale":
        table = twin.get_input_embeddings()
        table.register_forward_hook(lambda _, __, rows: rows * table.embedding_dim**0.5)
    else:
        twin.config.sliding_window = None
    return twin
