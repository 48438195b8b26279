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
# list(probs) -> probs
# %% parents_of: more visible nodes are not refused
def parents_of(mask):
    parents = []
    for node, row in enumerate(mask):
        parent = max((other for other in range(node) if row[other]), default=-1)
        path = [i for i, x in enumerate(mask[parent]) if x] if parent >= 0 else []
        if not row[node] or any(row[node + 1 :]) or not all(row[i] for i in path) or (parent < 0) != (node == 0):
            return None
        parents.append(parent)
    return parents
# %% parents_of: only counts are compared
# list(row) != expected or -> sum(row) != sum(expected) or
# %% expandable: max_depth does not hold below base_depth
def expandable(depth, path_prob, settings):
    if path_prob < settings["stop_probability"]:
        return False
    if depth < settings["base_depth"]:
        return True
    return depth < settings["max_depth"] and path_prob >= settings["deep_probability"]
# %% expandable: the deep threshold replaces the other
def expandable(depth, path_prob, settings):
    name = "deep_probability" if depth >= settings["base_depth"] else "stop_probability"
    return depth < settings["max_depth"] and path_prob >= settings[name]
