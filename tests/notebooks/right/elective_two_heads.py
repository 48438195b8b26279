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
