# %% aligned: the state of the token itself
# states[:, :-1] -> states[:, 1:]
# %% aligned: the state before, wanted again
# states[:, :-1], states[:, 1:] -> states[:, :-1], states[:, :-1]
# %% aligned: texts and places exchanged
# tokens[:, 1:], states[:, :-1], states[:, 1:] -> tokens[1:], states[:-1], states[1:]
# %% aligned: the states are changed
# return tokens -> states[:, -1] = 0\n    return tokens
# %% conditioned: the two matrices swapped
# w1[tokens] @ w2.T -> w2[tokens] @ w1.T
# %% conditioned: the row below
# logits[depths] -> logits[[min(depth + 1, len(logits) - 1) for depth in depths]]
# %% conditioned: the row of the node itself
# logits[depths] -> logits[[max(depth - 1, 0) for depth in depths]]
# %% conditioned: the first row for all
# logits[depths] -> logits[0]
# %% conditioned: no distribution
# .log_softmax(-1) -> .float()
# %% conditioned: a distribution first, then the bias
# (logits[depths] + w1[tokens] @ w2.T).log_softmax(-1) -> logits[depths].log_softmax(-1) + w1[tokens] @ w2.T
# %% conditioned: probabilities
# .log_softmax(-1) -> .softmax(-1)
# %% conditioned: over the nodes instead of the children
# .log_softmax(-1) -> .log_softmax(0)
# %% conditioned: the first node's bias for all
# w1[tokens] -> w1[tokens[:1]]
# %% conditioned: the bias is subtracted
# logits[depths] + -> logits[depths] -
# %% conditioned: without the bias
# w1[tokens] @ w2.T -> 0
# %% conditioned: a probability is added to a probability
# (logits[depths] + w1[tokens] @ w2.T).log_softmax(-1) -> (logits[depths].softmax(-1) + (w1[tokens] @ w2.T).softmax(-1)).log()
# %% conditioned: the first number of each row of the matrices
# w1[tokens] @ w2.T -> w1[tokens][:, :1] @ w2[:, :1].T
# %% conditioned: the logits are changed
# return (logits -> logits.clamp_(-2, 2)\n    return (logits
# %% aligned: three channels
# states[:, :-1], states[:, 1:] -> states[:, :-1, :3], states[:, 1:, :3]
# %% aligned: the last channel is lost
# states[:, 1:] -> torch.cat([states[:, 1:, :-1], 0 * states[:, 1:, -1:]], -1)
