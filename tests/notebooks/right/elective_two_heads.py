# %% mean_confidence: probabilities
def mean_confidence(parents, log_probs):
    from math import exp

    path = [1.0]
    for node in range(1, len(parents)):
        path.append(path[parents[node]] * exp(log_probs[node]))
    return sum(path[1:]) / max(len(path) - 1, 1)


# %% mean_confidence: numpy's float32
def mean_confidence(parents, log_probs):
    total = np.array(log_probs, dtype=np.float32)
    for node in range(1, len(parents)):
        total[node] += total[parents[node]]
    return np.exp(total[1:]).mean() if len(parents) > 1 else np.float32(0)


# %% choose: three in a row
def choose(margins):
    now, row = int(margins[0] < 0), 0
    for margin in margins:
        row = row + 1 if int(margin < 0) != now else 0
        if row == 3:
            now, row = 1 - now, 0
    return now


# %% choose: two in a row
def choose(margins):
    choice = margins[0] < 0
    for before, margin in zip(margins, margins[1:]):
        if (before < 0) == (margin < 0):
            choice = margin < 0
    return choice
