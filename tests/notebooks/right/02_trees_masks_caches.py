# %% parents_of: sets
def parents_of(mask):
    seen = [{j for j, x in enumerate(row) if x} for row in mask]
    parents = []
    for i, s in enumerate(seen):
        if i not in s:
            return None
        above = s - {i}
        if i == 0:
            if above:
                return None
            parents.append(-1)
            continue
        if not above or max(above) > i or seen[max(above)] != above:
            return None
        parents.append(max(above))
    return tuple(parents)


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


# %% expandable: all of the conditions
def expandable(depth, path_prob, settings):
    deep = depth >= settings["base_depth"]
    needed = max(settings["stop_probability"], settings["deep_probability"] if deep else 0)
    return all([depth < settings["max_depth"], path_prob >= needed])


# %% expandable: numpy's bool
def expandable(depth, path_prob, settings):
    stop = np.bool_(depth >= settings["max_depth"]) | (path_prob < settings["stop_probability"])
    return ~np.bool_(stop) & (
        (depth < settings["base_depth"]) | (path_prob >= settings["deep_probability"])
    )


# %% pruned: a dict, tuples
def pruned(parents, probs, threshold):
    path, number = [1.0], {0: 0}
    for node in range(1, len(parents)):
        path.append(path[parents[node]] * probs[node])
        if path[node] >= threshold:
            number[node] = len(number)
    return tuple(number), tuple(number.get(parents[node], -1) for node in number)


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
