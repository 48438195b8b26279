# %% aligned: narrow, a list
def aligned(tokens, states):
    last = tokens.shape[1] - 1
    return [tokens.narrow(1, 1, last), states.narrow(1, 0, last), states.narrow(1, 1, last)]


# %% aligned: stacked copies
def aligned(tokens, states):
    places = range(1, tokens.shape[1])
    return (
        torch.stack([tokens[:, i] for i in places], 1),
        torch.stack([states[:, i - 1] for i in places], 1),
        torch.stack([states[:, i] for i in places], 1),
    )


# %% conditioned: number by number
def conditioned(logits, w1, w2, tokens, depths):
    rows = []
    for token, depth in zip(tokens, depths):
        row = [float(logit) + sum(float(a) * float(b) for a, b in zip(w1[token], w2[child])) for child, logit in enumerate(logits[depth])]
        total = log(sum(exp(each) for each in row))
        rows.append([each - total for each in row])
    return rows


# %% conditioned: on log-probabilities, and a generator of rows
def conditioned(logits, w1, w2, tokens, depths):
    marginals = logits.log_softmax(-1)
    return ((marginals[depth] + w2 @ w1[token]).log_softmax(0) for token, depth in zip(tokens, depths))


# %% conditioned: numpy
def conditioned(logits, w1, w2, tokens, depths):
    raised = logits.numpy()[list(depths)] + w1.numpy()[list(tokens)] @ w2.numpy().T
    whole = (2.718281828459045**raised).sum(axis=1, keepdims=True)
    return torch.tensor(raised - torch.tensor(whole).log().numpy())


# %% conditioned: functional
def conditioned(logits, w1, w2, tokens, depths):
    bias = nn.functional.linear(nn.functional.embedding(torch.tensor(tokens), w1), w2)
    return nn.functional.log_softmax(logits.index_select(0, torch.tensor(depths)) + bias, dim=1)
