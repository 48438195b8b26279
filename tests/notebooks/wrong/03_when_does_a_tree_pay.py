# %% rates_by_rank: every node counts as tested
# (0, *step.accepted) -> range(len(step.tree.children))
# %% rates_by_rank: the root is left out
# (0, *step.accepted) -> step.accepted
# %% rates_by_rank: only the root
# (0, *step.accepted) -> (0,)
# %% expected_tokens: the target's own token is forgotten
# 1 + sum -> sum
# %% expected_tokens: the rate of the last rank alone
# prod(rates[rank - 1] for rank in path) -> rates[path[-1] - 1]
# %% expected_tokens: three ranks at most
# rates[rank - 1] -> rates[min(rank, 2) - 1]
# %% best_tree: one node too few
# < nodes -> < nodes - 1
# %% best_tree: by the rate of the last rank
# prod(rates[rank - 1] for rank in path) -> rates[path[-1] - 1]
# %% best_tree: the same path again and again
# possible.remove(path) -> pass
# %% best_gamma: the target's own token is forgotten
# range(gamma + 1) -> range(1, gamma + 1)
# %% best_gamma: never no draft at all
# range(most + 1) -> range(min(1, most), most + 1)
# %% best_gamma: most is left out
# range(most + 1) -> range(most)
