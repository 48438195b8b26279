# %% parents_of: the parent is the first node that is seen
# max((other for other in range(node) if row[other]), default=-1) -> row.index(True) if node else -1
# %% parents_of: every mask is a tree's
# list(row) != expected or (parent < 0) != (node == 0) -> False
# %% parents_of: later nodes are not looked at
# list(row) != expected -> list(row)[: node + 1] != expected[: node + 1]
# %% parents_of: a second root is taken for one
# or (parent < 0) != (node == 0) -> or False
# %% parents_of: row 0 is not looked at
# if list(row) != expected -> if node and list(row) != expected
# %% parents_of: ancestors above the parent may be hidden
# list(row) != expected -> not row[node] or any(row[node + 1 :])
# %% parents_of: the mask is changed
# return parents -> mask[0][0] = False\n    return parents
# %% expandable: a deep node is asked for deep_probability alone
def expandable(depth, path_prob, settings):
    if depth >= settings["max_depth"]:
        return False
    return path_prob >= settings["stop_probability" if depth < settings["base_depth"] else "deep_probability"]
# %% expandable: without max_depth
# depth >= settings["max_depth"] or  -> 
# %% expandable: without stop_probability
#  or path_prob < settings["stop_probability"] -> 
# %% expandable: max_depth itself passes
# depth >= settings -> depth > settings
# %% expandable: base_depth itself is not deep
# depth < settings -> depth <= settings
# %% expandable: a probability equal to its threshold is stopped
# path_prob < settings -> path_prob <= settings
# %% expandable: deep_probability of every node
# depth < settings["base_depth"] or  -> 
# %% expandable: the settings that the run began with
def expandable(depth, path_prob, settings):
    return depth < 5 and path_prob >= 0.02 and (depth < 3 or path_prob >= 0.05)
# %% pruned: the token's probability
# path[node] *= path[parents[node]] -> pass
# %% pruned: parents keep their old numbers
# kept.index(parents[node]) -> parents[node]
# %% pruned: a probability equal to the threshold is dropped
# >= threshold -> > threshold
# %% pruned: nodes with children stay
# >= threshold -> >= threshold or node in parents
# %% pruned: probs are changed
# path, kept = list(probs), [0] -> path, kept = probs, [0]
# %% pruned: grandparents do not count
# path[node] *= path[parents[node]] -> path[node] *= probs[parents[node]]
# %% pruned: sorted by probability
#     return kept, ->     kept.sort(key=lambda node: -path[node])\n    return kept,
