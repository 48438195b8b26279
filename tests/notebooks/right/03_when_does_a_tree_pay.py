# %% rates_by_rank: fractions
def rates_by_rank(steps, ranks):
    from collections import Counter
    from fractions import Fraction

    tested, right = Counter(), Counter()
    for step in steps:
        for parent in [0] + list(step.accepted):
            for rank, child in enumerate(list(step.tree.children[parent]), start=1):
                tested[rank] += 1
                if child in step.accepted:
                    right[rank] += 1
    return [
        Fraction(right[rank], tested[rank]) if tested[rank] else 0 for rank in range(1, ranks + 1)
    ]


# %% rates_by_rank: a tensor
def rates_by_rank(steps, ranks):
    counts = torch.zeros(2, ranks)
    for step in steps:
        for parent in (0, *step.accepted):
            for rank, child in enumerate(step.tree.children[parent]):
                counts[0, rank] += 1
                counts[1, rank] += float(child in set(step.accepted))
    return torch.where(counts[0] > 0, counts[1] / counts[0].clamp(min=1), 0.0)


# %% expected_tokens: a loop over float32
def expected_tokens(tree, rates):
    import numpy as np

    rates, total = np.array(rates, dtype=np.float32), np.float32(1)
    for path in tree:
        total += np.prod(rates[[rank - 1 for rank in path]])
    return total


# %% expected_tokens: logarithms
def expected_tokens(tree, rates):
    from math import exp, log

    return 1.0 + sum(
        exp(sum(log(rates[rank - 1]) for rank in path)) if all(rates[r - 1] for r in path) else 0
        for path in tree
    )


# %% best_tree: a heap
def best_tree(rates, nodes):
    import heapq

    heap, tree = [(-rate, (rank,)) for rank, rate in enumerate(rates, 1)], set()
    heapq.heapify(heap)
    while len(tree) < nodes:
        cost, path = heapq.heappop(heap)
        tree.add(path)
        for rank, rate in enumerate(rates, 1):
            heapq.heappush(heap, (cost * rate, path + (rank,)))
    return tree


# %% best_tree: lists
def best_tree(rates, nodes):
    tree, waiting = [], [[1.0, []]]
    if not nodes:
        return []
    waiting = [[rate, [rank]] for rank, rate in enumerate(rates, 1)]
    for _ in range(nodes):
        waiting.sort(key=lambda one: -one[0])
        value, path = waiting.pop(0)
        tree.append(path)
        waiting.extend([value * rate, [*path, rank]] for rank, rate in enumerate(rates, 1))
    return tree


# %% best_gamma: numpy
def best_gamma(alpha, c, most):
    import numpy as np

    gammas = np.arange(most + 1)
    return int(np.argmax(np.cumsum(float(alpha) ** gammas) / (gammas * c + 1)))


# %% best_gamma: a running sum
def best_gamma(alpha, c, most):
    best, found, total, power = 1.0, 0, 1.0, 1.0
    for gamma in range(1, most + 1):
        power *= alpha
        total += power
        if total / (1 + gamma * c) > best:
            best, found = total / (1 + gamma * c), gamma
    return found
