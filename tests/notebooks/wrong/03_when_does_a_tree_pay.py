# %% every node counts as tried, also those whose parent was rejected
rates_by_rank = solution.replace(
    "for parent in (0, *step.accepted):\n            for rank, child in enumerate(step.tree.children[parent]):",
    "for children in step.tree.children:\n            for rank, child in enumerate(children):",
)

# %% the root is left out
rates_by_rank = solution.replace("(0, *step.accepted)", "step.accepted")

# %% divided by the tries of the first rank, though nodes have fewer children than that
def rates_by_rank(steps, ranks):
    tried, right = 0, [0] * ranks
    for step in steps:
        for parent in (0, *step.accepted):
            tried += 1
            for rank, child in enumerate(step.tree.children[parent]):
                right[rank] += child in step.accepted
    return [r / tried if tried else 0 for r in right]


# %% only the children of the root
def rates_by_rank(steps, ranks):
    tried, right = [0] * ranks, [0] * ranks
    for step in steps:
        for rank, child in enumerate(step.tree.children[0]):
            tried[rank] += 1
            right[rank] += child in step.accepted
    return [r / t if t else 0 for r, t in zip(right, tried)]


# %% siblings behind the accepted one do not count as tried
rates_by_rank = solution.replace(
    "right[rank] += child in step.accepted",
    "if child in step.accepted:\n                    right[rank] += 1\n                    break",
)

# %% the share of each rank among the accepted nodes
def rates_by_rank(steps, ranks):
    right = [0] * ranks
    for step in steps:
        for parent in (0, *step.accepted):
            for rank, child in enumerate(step.tree.children[parent]):
                right[rank] += child in step.accepted
    return [r / sum(right) if sum(right) else 0 for r in right]


# %% counted from the last child
rates_by_rank = solution.replace("step.tree.children[parent]", "reversed(step.tree.children[parent])")

# %% the last accepted node is no parent, though its children were tried
rates_by_rank = solution.replace(
    "for parent in (0, *step.accepted):", "for parent in (0, *step.accepted)[: max(1, len(step.accepted))]:"
)

# %% the target's own token is forgotten
expected_tokens = solution.replace("1 + sum", "sum")

# %% each node counts with the rate of its own rank, not with that of its path
expected_tokens = solution.replace("prod(rates[rank - 1] for rank in path)", "rates[path[-1] - 1]")

# %% only leaves count
def expected_tokens(tree, rates):
    leaves = [path for path in tree if not any(other[:-1] == path for other in tree)]
    return 1 + sum(prod(rates[rank - 1] for rank in path) for path in leaves)


# %% a leaf counts with its depth, so that what is above it counts again for each leaf
def expected_tokens(tree, rates):
    leaves = [path for path in tree if not any(other[:-1] == path for other in tree)]
    return 1 + sum(len(path) * prod(rates[rank - 1] for rank in path) for path in leaves)


# %% siblings as if they were independent
def expected_tokens(tree, rates):
    def below(parent):
        children = [path for path in tree if path[:-1] == parent]
        missed = prod(1 - rates[path[-1] - 1] for path in children)
        return (1 - missed) * (1 + max((below(path) for path in children), default=0)) if children else 0

    return 1 + below(())


# %% the best path alone
def expected_tokens(tree, rates):
    longest = max(tree, key=lambda path: prod(rates[rank - 1] for rank in path) * len(path), default=())
    return 1 + sum(prod(rates[rank - 1] for rank in longest[:depth]) for depth in range(1, len(longest) + 1))


# %% the expected tokens per level are multiplied
def expected_tokens(tree, rates):
    levels = {len(path) for path in tree}
    reach = [sum(prod(rates[r - 1] for r in path) for path in tree if len(path) == level) for level in levels]
    return 1 + sum(prod(reach[:level]) for level in range(1, len(reach) + 1))


# %% a chain
def best_tree(rates, nodes):
    return [(1,) * depth for depth in range(1, nodes + 1)]


# %% level by level, every node with all its children
def best_tree(rates, nodes):
    tree, level = [], [()]
    while len(tree) < nodes:
        level = [(*path, rank) for path in level for rank in range(1, len(rates) + 1)]
        tree += level
    return tree[:nodes]


# %% the root is counted: one node too few
best_tree = solution.replace("while len(tree) < nodes:", "while len(tree) < nodes - 1:")

# %% one node too many
best_tree = solution.replace("<", "<=")

# %% by the rate of the last rank, not by that of the path
best_tree = solution.replace("prod(rates[rank - 1] for rank in path)", "rates[path[-1] - 1]")

# %% a chain with its siblings, whose siblings get no children
def best_tree(rates, nodes):
    tree, spine = [], ()
    while len(tree) < nodes:
        tree += [(*spine, rank) for rank in range(1, len(rates) + 1)]
        spine = (*spine, 1)
    return tree[:nodes]


# %% ranks from 0
def best_tree(rates, nodes):
    tree, possible = [], [(rank,) for rank in range(len(rates))]
    while len(tree) < nodes:
        path = max(possible, key=lambda path: prod(rates[rank] for rank in path))
        possible.remove(path)
        tree.append(path)
        possible += [(*path, rank) for rank in range(len(rates))]
    return tree


# %% the same path again and again
best_tree = solution.replace(
    "path = max(possible, key=lambda path: prod(rates[rank - 1] for rank in path))\n        possible.remove(path)",
    "path = max(possible, key=lambda path: prod(rates[rank - 1] for rank in path))",
)

# %% two guesses everywhere
best_tree = solution.replace(
    "tree, possible = [], [(rank,) for rank in range(1, len(rates) + 1)]",
    "tree, possible = [], [(rank,) for rank in (1, 2)]",
).replace(
    "possible += [(*path, rank) for rank in range(1, len(rates) + 1)]", "possible += [(*path, rank) for rank in (1, 2)]"
)

# %% the closed form, which divides by zero at 1
def best_gamma(alpha, c, most):
    return max(range(most + 1), key=lambda gamma: (1 - alpha ** (gamma + 1)) / ((1 - alpha) * (gamma * c + 1)))


# %% the target's own token is forgotten
def best_gamma(alpha, c, most):
    return max(range(most + 1), key=lambda gamma: sum(alpha**n for n in range(1, gamma + 1)) / (gamma * c + 1))


# %% never no draft at all
def best_gamma(alpha, c, most):
    return max(range(1, most + 1), key=lambda gamma: sum(alpha**n for n in range(gamma + 1)) / (gamma * c + 1))


# %% the largest of equals
def best_gamma(alpha, c, most):
    return max(range(most, -1, -1), key=lambda gamma: sum(alpha**n for n in range(gamma + 1)) / (gamma * c + 1))


# %% most is left out
def best_gamma(alpha, c, most):
    return max(range(most), key=lambda gamma: sum(alpha**n for n in range(gamma + 1)) / (gamma * c + 1))


# %% drafting is free
def best_gamma(alpha, c, most):
    return max(range(most + 1), key=lambda gamma: sum(alpha**n for n in range(gamma + 1)))


# %% one power too few
def best_gamma(alpha, c, most):
    return max(range(most + 1), key=lambda gamma: sum(alpha**n for n in range(max(gamma, 1))) / (gamma * c + 1))


# %% the draft makes one pass more than the chain has tokens
def best_gamma(alpha, c, most):
    return max(range(most + 1), key=lambda gamma: sum(alpha**n for n in range(gamma + 1)) / ((gamma + 1) * c + 1))


# %% the speedup, not the length
def best_gamma(alpha, c, most):
    return max(sum(alpha**n for n in range(gamma + 1)) / (gamma * c + 1) for gamma in range(most + 1))


# %% stops at the first length that gains nothing, counted from 1
def best_gamma(alpha, c, most):
    gamma = 0
    while gamma < most and alpha ** (gamma + 1) > c:
        gamma += 1
    return gamma
