# %% corrupted_by: numpy
def corrupted_by(rows, parents):
    bad = np.zeros(len(parents), dtype=bool)
    bad[rows] = True
    for node in range(1, len(parents)):
        bad[node] |= bad[parents[node]]
    return np.flatnonzero(bad)


# %% positions: by the mask
def positions(length, parent):
    return (length - 1 + broken_decoder.visible(parent).sum(1)).tolist()


# %% takes_unverified: numpy
def takes_unverified(steps, own):
    taken = np.array([1 in step.accepted for step in steps])
    other = np.array([int(step.tree.token[1]) for step in steps]) != np.array(own)
    return taken.all() and (taken & other).any()
