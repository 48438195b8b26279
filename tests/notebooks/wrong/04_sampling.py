# %% residual: not scaled
# lacking / lacking.sum() -> lacking
# %% residual: the absolute difference
# np.maximum(p - q, 0) -> abs(p - q)
# %% residual: what the draft has too much of
# p - q -> q - p
# %% residual: nothing where p and q are equal
# else p -> else lacking
# %% residual: floats
# np.maximum(p - q, 0) -> np.maximum((p - q).astype(float), 0)
# %% residual: only the token that lacks most
def residual(p, q):
    out = 0 * p
    out[(p - q).argmax()] = Fraction(1)
    return out if (p != q).any() else p
# %% residual: changes p
def residual(p, q):
    if (p == q).all():
        return p
    p -= np.minimum(p, q)
    return p / p.sum()
# %% residual: three tokens at most
def residual(p, q):
    lacking = np.array([max(a - b, 0) if i < 3 else 0 * a for i, (a, b) in enumerate(zip(p, q))])
    return lacking / lacking.sum() if lacking.sum() > 0 else p
# %% accept_one: p stays as it is
# p = residual(p, q) -> pass
# %% accept_one: the last sample is from p
# return rng.draws(p), False -> return rng.draws(first), False
#     for token in candidates: ->     first = p\n    for token in candidates:
# %% accept_one: sample and match
def accept_one(p, q, candidates, rng):
    token = rng.draws(p)
    return token, token in candidates
# %% accept_one: the candidates are ignored
def accept_one(p, q, candidates, rng):
    return rng.draws(p), False
# %% accept_one: three candidates at most
# in candidates: -> in candidates[:3]:
# %% accept_one: without the rejected token
# residual(p, q) -> without(p, token)
# %% accept_one: q loses the rejected token
# p = residual(p, q) -> p, q = residual(p, q), without(q, token)
# if rng -> if q[token] and rng
# %% accept_one: accepted where p is at least q
# rng.accepts(min(1, p[token] / q[token])) -> p[token] >= q[token]
# %% bias_of_most_probable: the whole sum
#  / 2 -> 
# %% bias_of_most_probable: accepted with p(x)
# min(1, p[x] / q[x]) -> p[x]
# %% bias_of_most_probable: after a rejection from p
# residual(p, q) -> p
# %% bias_of_most_probable: after a rejection without x
# residual(p, q) -> without(p, x)
# %% bias_of_most_probable: the largest difference
# .sum() -> .max()
# %% bias_of_most_probable: the target's most probable token
def bias_of_most_probable(p, q):
    x = p.argmax()
    accepted = min(1, p[x] / q[x]) if q[x] else 1
    out = (1 - accepted) * residual(p, q)
    out[x] += accepted
    return abs(out - p).sum() / 2
# %% bias_of_most_probable: p is changed
# return abs(out - p).sum() / 2 -> error = abs(out - p).sum() / 2\n    p[x] = 0 * p[x]\n    return error
