# %% mean_confidence: the root counts as a node
# sums[1:] -> sums
# %% mean_confidence: the sum
# np.mean -> np.sum
# %% mean_confidence: the parent's own log-probability
# sums[parent] + log_prob -> log_probs[parent] + log_prob
# %% mean_confidence: the list is changed
# sums.append(sums[parent] + log_prob) -> sums.append(sums[parent] + log_prob)\n    log_probs[:] = sums
# %% choose: the paper's own rule
# sum(margins[-3:]) -> margins[-1]
# %% choose: upside down
# < 0 -> > 0
# %% choose: all margins
# margins[-3:] -> margins
