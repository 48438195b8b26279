"""Lesson 2: what compares two caches, and the tests of its exercises."""

import numpy as np
import torch

import speclab
from speclab.course import check


def same_keys(cache, rows, expected):
    """Whether these rows of a cache, in every layer, are the keys of another one."""
    for layer, plain in zip(cache.layers, expected.layers):
        if not torch.allclose(layer.keys[:, :, rows], plain.keys, atol=1e-3):
            return False
    return True


def A(answer, pair, seed=0):
    """The tree of a mask: drawn ones, those of a decoded text, and random ones."""

    def world(random):
        """The mask of a random tree; in two of three worlds one or two entries are flipped."""
        size = random.randint(1, 9)
        mask = []
        for node in range(size):
            row = list(mask[random.randrange(node)]) if node else [False] * size
            row[node] = True
            mask.append(row)
        for _ in range(random.randrange(3)):
            row = random.choice(mask)
            row[random.randrange(size)] ^= True
        parents = []
        for node, row in enumerate(mask):
            before = [other for other in range(node) if row[other]]
            parents.append(max(before, default=-1))
            expected = list(mask[parents[node]]) if before else [False] * size
            expected[node] = True
            if row != expected or (node > 0 and not before):
                return mask, None
        return mask, parents

    drawn = {
        "x": [-1],
        "x.. xx. x.x": [-1, 0, 0],
        "x.... xx... x.x.. xx.x. x.x.x": [-1, 0, 0, 1, 2],
        "x... xx.. xxx. xxxx": [-1, 0, 1, 2],  # a causal mask is that of a chain
        "x..... xx.... x.x... xx.x.. xx.xx. xx.xxx": [-1, 0, 0, 1, 3, 4],
        "x.... xx... xxx.. xx.x. x.x.x": None,  # red sees big, and ball does not
        "x..... xx.... xxx... xxxx.. xxxxx. x.xxxx": None,  # one ancestor is hidden, deep down
        "x... xx.. x.x. xxxx": None,  # a node sees its cousin, too
        "x.... xx... x.x.. xx.x. x.xxx": None,
        ".": None,
        "xx xx": None,
        "x.. xx. x..": None,
        "x.. xxx x.x": None,
        "xx. xx. x.x": None,
        "x.. .x. x.x": None,  # a second root
        "x.. xx. .xx": None,  # a node that does not see the root
    }
    cases = []
    for letters, parents in drawn.items():
        cases.append(([[mark == "x" for mark in row] for row in letters.split()], parents))
    strategy = speclab.DynaTree(prune_probability=0.01, stop_probability=0.02, node_budget=24)
    session = speclab.Session(pair, strategy, "Once upon a time there was a little girl", max_new_tokens=40)
    session.run()
    for step in session.steps:
        cases.append((step.mask.tolist(), step.tree.parent.tolist()))
    check("A", answer, cases, worlds=world, seed=seed)


def B(answer, session, seed=0):
    """The gates of a node: by hand, as in a run, and with random settings."""

    def world(random):
        """Random settings in any order, and a node that is often exactly at a limit."""
        grid = [0.01, 0.05, 0.125, 0.25, 0.5, 0.9]
        settings = {"max_depth": random.randint(1, 9), "base_depth": random.randint(0, 9)}
        settings["stop_probability"] = random.choice(grid)
        settings["deep_probability"] = random.choice(grid)
        depth = random.randint(0, 10)
        prob = random.choice(grid)
        needed = settings["stop_probability"]
        if depth >= settings["base_depth"]:
            needed = max(needed, settings["deep_probability"])
        return depth, prob, settings, depth < settings["max_depth"] and prob >= needed

    settings = {"max_depth": 5, "stop_probability": 0.125, "base_depth": 3, "deep_probability": 0.5}
    cases = [
        (0, 1.0, settings, True),
        (2, 0.25, settings, True),
        (2, 0.1, settings, False),
        (2, 0.125, settings, True),
        (3, 0.25, settings, False),
        (3, 0.5, settings, True),
        (4, 0.9, settings, True),
        (4, 0.4, settings, False),
        (5, 0.9, settings, False),
        (6, 1.0, settings, False),
        (1, 0.05, settings, False),
    ]
    for step in session.steps:
        current = {name: step.settings[name] for name in settings}
        for event in step.events:
            if event.kind != "prune" and event.values.get("gate", "max_depth") in settings:
                depth = int(step.tree.depth[event.node])
                cases.append((depth, event.values["path_prob"], current, event.kind == "expand"))
    check("B", answer, cases, worlds=world, seed=seed)


def C(answer, session, seed=0):
    """Pruned trees: by hand, of a run, and random ones."""

    def of_names(answer, parents, probs, threshold):
        kept, above = answer(parents, probs, threshold)
        return {"old numbers of the nodes that stay": kept, "new numbers of their parents": above}

    def case(parents, probs, threshold, kept, above):
        expected = {"old numbers of the nodes that stay": kept, "new numbers of their parents": above}
        return parents, probs, threshold, expected

    def world(random):
        """A random tree with probabilities of powers of two, so that some paths are exactly at the threshold."""
        parents = [-1]
        probs = [1.0]
        paths = [1.0]
        for node in range(1, random.randint(1, 14)):
            parents.append(random.randrange(node))
            probs.append(random.choice((1.0, 0.5, 0.25, 0.125)))
            paths.append(paths[parents[node]] * probs[node])
        threshold = random.choice((0.5, 0.25, 0.125, 0.0625))
        kept = [0]
        above = [-1]
        for node in range(1, len(parents)):
            if paths[node] >= threshold:
                kept.append(node)
                above.append(kept.index(parents[node]))
        return case(parents, probs, threshold, kept, above)

    cases = [
        case([-1], [1.0], 0.5, [0], [-1]),
        case([-1, 0, 0], [1.0, 0.6, 0.3], 0.5, [0, 1], [-1, 0]),
        # equal is not below
        case([-1, 0, 0, 1, 2], [1.0, 0.5, 0.25, 0.5, 1.0], 0.25, [0, 1, 2, 3, 4], [-1, 0, 0, 1, 2]),
        case([-1, 0, 0, 1, 2, 2], [1.0, 0.1, 0.8, 0.9, 0.5, 0.25], 0.3, [0, 2, 4], [-1, 0, 1]),
        case([-1, 0, 0, 1], [1.0, 0.2, 0.1, 0.9], 0.3, [0], [-1]),
        case([-1, 0, 1, 2, 3, 4], [1.0, 0.9, 0.9, 0.9, 0.9, 0.5], 0.5, [0, 1, 2, 3, 4], [-1, 0, 1, 2, 3]),
        case(
            [-1, 0, 0, 0, 3, 2, 4], [1.0, 0.1, 0.4, 0.5, 1.0, 0.9, 0.8], 0.35, [0, 2, 3, 4, 5, 6], [-1, 0, 0, 2, 1, 3]
        ),
    ]
    for step in session.steps:
        stay = np.exp(step.tree.path_log_prob) >= 0.05
        above = step.tree.select(stay).parent.tolist()
        probs = np.exp(step.tree.log_prob).tolist()
        cases.append(case(step.tree.parent.tolist(), probs, 0.05, np.flatnonzero(stay).tolist(), above))
    check("C", answer, cases, through=of_names, worlds=world, seed=seed)
