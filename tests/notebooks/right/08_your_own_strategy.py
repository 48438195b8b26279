# %% columns: a tree of dicts
def columns(root, paths):
    trie = {}
    for path in paths:
        below = trie
        for token in path:
            below = below.setdefault(token, {})
    tokens, parents, queue = [root], [-1], [(0, trie)]
    while queue:
        node, below = queue.pop(0)
        for token, deeper in below.items():
            queue.append((len(tokens), deeper))
            tokens.append(token)
            parents.append(node)
    return tuple(tokens), torch.tensor(parents)


# %% my_strategy: sharper in the first place
def my_strategy():
    class Sharper(BestFirst):
        """A higher power."""

        def weigh(self, top):
            total = log(sum(exp(1.8 * log_prob) for _, log_prob in top))
            return [(token, 1.8 * log_prob - total) for token, log_prob in top]

    return Sharper(node_budget=6)
