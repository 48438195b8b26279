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


# %% best_gamma: numpy
def best_gamma(alpha, c, most):
    import numpy as np

    gammas = np.arange(most + 1)
    return int(np.argmax(np.cumsum(float(alpha) ** gammas) / (gammas * c + 1)))


