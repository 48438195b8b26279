# %% parents_of: numpy
def parents_of(mask):
    m = np.array(mask, dtype=bool)
    if np.triu(m, 1).any() or not m.diagonal().all():
        return None
    parents = np.full(len(m), -1)
    for i in range(1, len(m)):
        before = np.flatnonzero(m[i, :i])
        if not len(before) or (m[i, :i] != m[before[-1], :i]).any():
            return None
        parents[i] = before[-1]
    return parents


# %% expandable: numpy's bool
def expandable(depth, path_prob, settings):
    stop = np.bool_(depth >= settings["max_depth"]) | (path_prob < settings["stop_probability"])
    return ~np.bool_(stop) & (
        (depth < settings["base_depth"]) | (path_prob >= settings["deep_probability"])
    )


# %% pruned: numpy
def pruned(parents, probs, threshold):
    path = np.ones(len(parents))
    for node in range(1, len(parents)):
        path[node] = path[parents[node]] * probs[node]
    keep = path >= threshold
    keep[0] = True
    new = np.cumsum(keep) - 1
    above = np.array(parents)[keep]
    return np.flatnonzero(keep), np.where(above < 0, -1, new[above])
