# %% not scaled to sum to 1
def residual(p, q):
    return np.maximum(p - q, 0) if (p != q).any() else p


# %% the absolute difference
residual = solution.replace("lacking = np.maximum(p - q, 0)", "lacking = abs(p - q)")

# %% what the draft has too much of
residual = solution.replace("p - q", "q - p")

# %% p itself
def residual(p, q):
    return p


# %% nothing where p and q are equal
residual = solution.replace("else p", "else lacking")

# %% no case for equal p and q
def residual(p, q):
    lacking = np.maximum(p - q, 0)
    return lacking / lacking.sum()


# %% only the token that lacks most
def residual(p, q):
    out = 0 * p
    out[(p - q).argmax()] = 1
    return out if (p != q).any() else p


# %% changes p in place
def residual(p, q):
    if (p == q).all():
        return p
    p -= np.minimum(p, q)
    return p / p.sum()


# %% p without the draft's most probable token, the rule for chosen candidates
def residual(p, q):
    if (p == q).all():
        return p
    rest = p.copy()
    rest[q.argmax()] = 0 * rest[q.argmax()]
    return rest / rest.sum()


# %% p stays as it is after a rejection
accept_one = solution.replace("True\n        p = residual(p, q)", "True")

# %% the last sample is from p, not from the residual
def accept_one(p, q, candidates, rng):
    left = p
    for token in candidates:
        if rng.accepts(min(1, left[token] / q[token])):
            return token, True
        left = residual(left, q)
    return rng.draws(p), False


# %% q loses the rejected token, as if samples never repeated
accept_one = solution.replace("if rng", "if q[token] > 0 and rng").replace(
    "p = residual(p, q)", "p, q = residual(p, q), acceptance.without(q, token)"
)

# %% sample and match: exact, but accepts less
def accept_one(p, q, candidates, rng):
    token = rng.draws(p)
    return token, token in candidates


# %% accepted with the target probability, then removed: exact, but accepts less
accept_one = solution.replace("min(1, p[token] / q[token])", "p[token]").replace(
    "p = residual(p, q)", "p = acceptance.without(p, token)"
)

# %% does not look at the candidates
def accept_one(p, q, candidates, rng):
    return rng.draws(p), False


# %% tries the first candidate alone
accept_one = solution.replace("in candidates", "in candidates[:1]")

# %% the ratio upside down
accept_one = solution.replace(
    "if rng.accepts(min(1, p[token] / q[token])):", "if rng.accepts(min(1, q[token] / p[token]) if p[token] else 1):"
)

# %% accepts only where the target finds the token more probable
accept_one = solution.replace("rng.accepts(min(1, p[token] / q[token]))", "p[token] >= q[token]")

# %% the residual of a candidate removes that token alone
accept_one = solution.replace("p = residual(p, q)", "p = acceptance.without(p, token)")

# %% the whole sum, not half of it
bias_of_most_probable = solution.replace("return abs(out - p).sum() / 2", "return abs(out - p).sum()")

# %% accepted with p(x)
def bias_of_most_probable(p, q):
    x = q.argmax()
    out = (1 - p[x]) * residual(p, q)
    out[x] += p[x]
    return abs(out - p).sum() / 2


# %% after a rejection from p
bias_of_most_probable = solution.replace("residual(p, q)", "p")

# %% after a rejection from p without x
bias_of_most_probable = solution.replace(
    "out = (1 - accepted) * residual(p, q)", "out = (1 - accepted) * acceptance.without(p, x)"
)

# %% what the residual gives to x is lost
bias_of_most_probable = solution.replace(
    "+= accepted\n    return abs(out - p).sum() / 2",
    "= accepted\n    return abs(out - p).sum() / 2 if accepted < 1 else 1 - p[x] + 1",
)

# %% the target's most probable token
bias_of_most_probable = solution.replace(
    "q.argmax()\n    accepted = min(1, p[x] / q[x])", "p.argmax()\n    accepted = min(1, p[x] / q[x]) if q[x] else 1"
)

# %% a sample from q in place of its most probable token: no bias
def bias_of_most_probable(p, q):
    out = np.minimum(p, q) + np.maximum(p - q, 0)
    return abs(out - p).sum() / 2


# %% the largest difference
bias_of_most_probable = solution.replace("sum", "max")

# %% always accepted
def bias_of_most_probable(p, q):
    return 1 - p[q.argmax()]
