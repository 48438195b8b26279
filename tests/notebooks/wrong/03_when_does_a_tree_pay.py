# %% rates_by_rank: every node counts as tested
# (0, *step.accepted) -> range(len(step.tree.children))
# %% rates_by_rank: the root is left out
# (0, *step.accepted) -> step.accepted
# %% rates_by_rank: only the root
# (0, *step.accepted) -> (0,)
# %% rates_by_rank: siblings behind the accepted one are not tested
# right[rank] += child in step.accepted -> right[rank] += child in step.accepted\n                if child in step.accepted:\n                    break
# %% rates_by_rank: divided by the tests of rank 1
# r / t if t else 0 -> r / tested[0]
# %% rates_by_rank: the last accepted node is no parent
# (0, *step.accepted) -> (0, *step.accepted)[: max(1, len(step.accepted))]
# %% expected_tokens: the target's own token is forgotten
# 1 + sum -> sum
# %% expected_tokens: the rate of the last rank alone
# prod(rates[rank - 1] for rank in path) -> rates[path[-1] - 1]
# %% expected_tokens: only leaves count
def expected_tokens(tree, rates):
    leaves = [path for path in tree if not any(other[:-1] == path for other in tree)]
    return 1 + sum(prod(rates[rank - 1] for rank in path) for path in leaves)
# %% expected_tokens: ranks from 0
# rank - 1 -> rank % len(rates)
# %% expected_tokens: three ranks at most
# rates[rank - 1] -> rates[min(rank, 2) - 1]
# %% best_tree: a chain
def best_tree(rates, nodes):
    return [(1,) * depth for depth in range(1, nodes + 1)]
# %% best_tree: one node too few
# < nodes -> < nodes - 1
# %% best_tree: by the rate of the last rank
# prod(rates[rank - 1] for rank in path) -> rates[path[-1] - 1]
# %% best_tree: the same path again and again
# possible.remove(path) -> pass
# %% best_tree: level by level
def best_tree(rates, nodes):
    tree, level = [], [()]
    while len(tree) < nodes:
        level = [(*path, rank) for path in level for rank in range(1, len(rates) + 1)]
        tree += level
    return tree[:nodes]
# %% best_tree: three ranks at most
def best_tree(rates, nodes):
    tree, possible = [], [(rank,) for rank in range(1, min(len(rates), 3) + 1)]
    while len(tree) < nodes:
        path = max(possible, key=lambda path: prod(rates[rank - 1] for rank in path))
        possible.remove(path)
        tree.append(path)
        possible += [(*path, rank) for rank in range(1, min(len(rates), 2) + 1)]
    return tree
# %% best_gamma: the target's own token is forgotten
# range(gamma + 1) -> range(1, gamma + 1)
# %% best_gamma: never no draft at all
# range(most + 1) -> range(min(1, most), most + 1)
# %% best_gamma: the largest of equals
# range(most + 1) -> range(most, -1, -1)
# %% best_gamma: most is left out
# range(most + 1) -> range(most)
# %% best_gamma: drafting is free
#  / (gamma * c + 1) -> 
# %% best_gamma: one draft pass too many
# gamma * c -> (gamma + 1) * c
# %% best_gamma: the speedup, not the length
def best_gamma(alpha, c, most):
    return max(sum(alpha**n for n in range(gamma + 1)) / (gamma * c + 1) for gamma in range(most + 1))
