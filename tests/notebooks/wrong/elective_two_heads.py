# %% mean_confidence: the root counts as a node
# sums[1:] -> sums
# %% mean_confidence: the sum
# np.mean -> np.sum
# %% mean_confidence: the parent's own log-probability
# sums[parent] + log_prob -> log_probs[parent] + log_prob
# %% mean_confidence: the list is changed
# sums.append(sums[parent] + log_prob) -> sums.append(sums[parent] + log_prob)\n    log_probs[:] = sums
# %% choose: the paper's own rule
def choose(margins):
    return int(margins[-1] < 0)
# %% choose: upside down
# votes > 0 or -> votes < 0 or
# %% choose: all margins
# margins[-3:] -> margins
# %% choose: the sum of the last two
def choose(margins):
    return int(sum(margins[-2:]) < 0)
# %% choose: the sum of the last three
def choose(margins):
    return int(sum(margins[-3:]) < 0)
# %% choose: switches once and never back
def choose(margins):
    signs = [margin < 0 for margin in margins]
    for i in range(2, len(signs)):
        if signs[i - 2 : i + 1] == [not signs[0]] * 3:
            return int(not signs[0])
    return int(signs[0])
