# %% mean_confidence: the root counts as a node
# sums[1:] -> sums
# %% mean_confidence: each node's own probability
def mean_confidence(parents, log_probs):
    return float(np.mean(np.exp(log_probs[1:]))) if len(log_probs) > 1 else 0.0
# %% mean_confidence: the exponential of the mean
# np.mean(np.exp(sums[1:])) -> np.exp(np.mean(sums[1:]))
# %% mean_confidence: the sum
# np.mean -> np.sum
# %% mean_confidence: the parent's own log-probability
# sums[parent] + log_prob -> log_probs[parent] + log_prob
# %% mean_confidence: a root alone has the mean 1
# else 0.0 -> else 1.0
# %% mean_confidence: the list is changed
# sums.append(sums[parent] + log_prob) -> sums.append(sums[parent] + log_prob)\n    log_probs[:] = sums
# %% choose: the paper's own rule
# sum(margins[-3:]) -> margins[-1]
# %% choose: upside down
# < 0 -> > 0
# %% choose: always the first head
# sum(margins[-3:]) < 0 -> False
# %% choose: all margins
# margins[-3:] -> margins
# %% choose: the margin before the last
# sum(margins[-3:]) -> margins[-2:][0]
# %% choose: the largest margin decides
# sum(margins[-3:]) -> max(margins, key=abs)
# %% choose: one of the last two is enough
# sum(margins[-3:]) -> min(margins[-2:])
