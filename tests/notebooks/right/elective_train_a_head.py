# %% aligned: narrow, a list
def aligned(tokens, states):
    last = tokens.shape[1] - 1
    return [tokens.narrow(1, 1, last), states.narrow(1, 0, last), states.narrow(1, 1, last)]


# %% conditioned: on log-probabilities, and a generator of rows
def conditioned(logits, w1, w2, tokens, depths):
    marginals = logits.log_softmax(-1)
    return ((marginals[depth] + w2 @ w1[token]).log_softmax(0) for token, depth in zip(tokens, depths))


# %% conditioned: numpy
def conditioned(logits, w1, w2, tokens, depths):
    raised = logits.numpy()[list(depths)] + w1.numpy()[list(tokens)] @ w2.numpy().T
    whole = (2.718281828459045**raised).sum(axis=1, keepdims=True)
    return torch.tensor(raised - torch.tensor(whole).log().numpy())
