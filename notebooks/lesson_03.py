"""Lesson 3: a clock for passes, and the tests of its exercises."""

from math import prod
from time import perf_counter
from types import SimpleNamespace

import torch

import speclab
from speclab.course import check


def seconds(model, rows, times=5):
    """The time of the fastest of several passes over this many rows."""
    tokens = torch.ones((1, rows), dtype=torch.long)
    spent = []
    for _ in range(times):
        began = perf_counter()
        with torch.inference_mode():
            model(tokens)
        spent.append(perf_counter() - began)
    return min(spent)


def A(answer, run, seed=0):
    """Rates by rank, of invented steps and of the iterations of a run but its last."""

    def of_steps(answer, steps, ranks):
        """A step is given by the children of each node, and the accepted nodes."""
        invented = []
        for children, accepted in steps:
            invented.append(SimpleNamespace(tree=SimpleNamespace(children=children), accepted=accepted))
        return answer(invented, ranks)

    def world(random):
        """Random trees, each with a random accepted path."""
        ranks = random.randint(1, 4)
        tested = [0] * ranks
        right = [0] * ranks
        steps = []
        for _ in range(random.randint(0, 4)):
            children = [[]]
            for node in range(5):
                if node < len(children):
                    size = len(children)
                    children[node] = list(range(size, size + random.randint(0, ranks)))
                    children += [[] for _ in children[node]]
            parent = 0
            path = []
            while children[parent]:
                accepted = random.choice([*children[parent], None])
                for rank, child in enumerate(children[parent]):
                    tested[rank] += 1
                    right[rank] += 1 if child == accepted else 0
                if accepted is None:
                    break
                path.append(accepted)
                parent = accepted
            steps.append((children, tuple(path)))
        return steps, ranks, [right[rank] / max(tested[rank], 1) for rank in range(ranks)]

    first = ([[1, 2], [3, 4], [], [], []], [1, 4])
    second = ([[1, 2], [3], [], []], [2])
    none = ([[1, 2], [], []], [])
    deep = ([[1, 2, 3, 4], [], [], [5], [], [6], [7], []], [3, 5, 6, 7])
    cases = [([first], 2, [1 / 2, 1 / 2]), ([none], 2, [0, 0]), ([second], 3, [0, 1, 0]), ([deep], 4, [3 / 4, 0, 1, 0])]
    frame = speclab.nodes(run)
    frame = frame[frame.tried & (frame.iteration < frame.iteration.max())]  # the text's end cuts the last one off
    decoded = [(step.tree.children, step.accepted) for step in run.steps[:-1]]
    cases.append(([first, second, none], 2, [1 / 4, 2 / 4]))
    cases.append((decoded, 3, frame.groupby("rank").accepted.mean()))
    check("A", answer, cases, through=of_steps, worlds=world, seed=seed)


def B(answer, seed=0):
    """The expected tokens of a tree."""

    def world(random):
        """A random tree of paths in any order; the probability of each is that of its parent times one rate."""
        rates = [random.random() / 2 for _ in range(random.randint(1, 4))]
        probs = {(): 1.0}
        for _ in range(random.randint(0, 12)):
            parent = random.choice(list(probs))
            rank = random.randint(1, len(rates))
            probs[(*parent, rank)] = probs[parent] * rates[rank - 1]
        tree = [path for path in probs if path]
        random.shuffle(tree)
        return tree, rates, sum(probs.values())

    cases = [
        ([], (0.6, 0.2), 1.0),
        ([(1,)], (0.6, 0.2), 1.6),
        ([(1,), (2,)], (0.6, 0.2), 1.8),
        ([(1,), (1, 1), (1, 1, 1), (1, 1, 1, 1)], (0.5,), 1.9375),
        ([(2, 1), (2,), (1,), (2, 2)], (0.6, 0.2), 1.96),
        ([(1,), (2,), (1, 1), (1, 2), (2, 1), (2, 2)], (0.7, 0.3), 3.0),
        ([(4,), (4, 1), (4, 1, 3)], (0.5, 0.2, 0.1, 0.05), 1.0775),
    ]
    check("B", answer, cases, worlds=world, seed=seed)


def C(answer, seed=0):
    """The best tree: any tree with as many expected tokens as Sequoia's."""

    def tokens_of(answer, rates, nodes):
        """The expected tokens of a tree, if it is one."""
        tree = [tuple(path) for path in answer(rates, nodes)]
        assert len(tree) <= nodes, f"expected at most {nodes} nodes, got {len(tree)}"
        assert len(set(tree)) == len(tree), f"expected each path once, got {tree}"
        for path in tree:
            assert path[:-1] in [(), *tree], f"expected the parent of each node, got {tree}"
            assert all(1 <= rank <= len(rates) for rank in path), f"expected other ranks, got {tree}"
        value = 1 + sum(prod(rates[rank - 1] for rank in path) for path in tree)
        return {"expected tokens of the tree": value}

    def case(rates, nodes):
        best = speclab.theory.sequoia_shape(rates, nodes, max(nodes, 1))
        return rates, nodes, {"expected tokens of the tree": best.expected_tokens}

    def world(random):
        parts = sorted((random.random() for _ in range(random.randint(1, 4))), reverse=True)
        whole = sum(parts) * random.choice((1.01, 1.2, 2))
        return case(tuple(round(part / whole, 3) for part in parts), random.randint(0, 14))

    cases = [case((0.6, 0.2, 0.1), 12), case((0.9, 0.05), 12), case((0.3, 0.3, 0.3), 12), case((0.5, 0.4), 0)]
    cases += [case((0.62, 0.18, 0.08), 1), case((0.6, 0.2, 0.1), 40), case((0.45, 0.3, 0.2, 0.05), 7)]
    cases.append(case((0.95,), 9))
    check("C", answer, cases, through=tokens_of, worlds=world, seed=seed)


def D(answer, seed=0):
    """The best length of a chain."""

    def world(random):
        """Random prices, without two γ that are equally good but for rounding."""
        c = random.choice((0, 0.01, 0.05, 0.2, 0.6))
        most = random.randint(0, 40)
        best = [0, 0]
        while len(best) > 1 and best[0] - best[1] < 1e-9:
            alpha = random.choice((random.random(), 0.9 + random.random() / 10))
            speedups = [sum(alpha**n for n in range(gamma + 1)) / (gamma * c + 1) for gamma in range(most + 1)]
            best = sorted(speedups, reverse=True)
        return alpha, c, most, speedups.index(best[0])

    cases = [
        (0.8, 0.1, 20, 6),
        (0.6, 0.15, 20, 2),
        (0.9, 0.02, 40, 19),
        (0.9, 0.02, 8, 8),
        (0.3, 0.5, 20, 0),  # drafting does not pay
        (0.5, 0.5, 20, 0),  # 0 and 1 are equally fast
        (1.0, 0.1, 10, 10),
        (0.0, 0.0, 10, 0),
    ]
    check("D", answer, cases, worlds=world, seed=seed)
