# %% parents_of: the parent is the first node that is seen
# max((other for other in range(node) if row[other]), default=-1) -> row.index(True) if node else -1
# %% parents_of: every mask is a tree's
# list(row) != expected or (parent < 0) != (node == 0) -> False
# %% parents_of: later nodes are not looked at
# list(row) != expected -> list(row)[: node + 1] != expected[: node + 1]
# %% parents_of: the mask is changed
# return parents -> mask[0][0] = False\n    return parents
# %% expandable: without max_depth
# depth >= settings["max_depth"] or  -> 
# %% expandable: without stop_probability
#  or path_prob < settings["stop_probability"] -> 
# %% expandable: base_depth itself is not deep
# depth < settings -> depth <= settings
# %% pruned: the token's probability
# path[node] *= path[parents[node]] -> pass
# %% pruned: parents keep their old numbers
# kept.index(parents[node]) -> parents[node]
# %% pruned: a probability equal to the threshold is dropped
# >= threshold -> > threshold
# %% pruned: probs are changed
# path, kept = list(probs), [0] -> path, kept = probs, [0]
