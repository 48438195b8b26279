# %% residual: not scaled
# return lacking / lacking.sum() -> return lacking
# %% residual: the absolute difference
# np.maximum(p - q, 0) -> abs(p - q)
# %% residual: what the draft has too much of
# p - q -> q - p
# %% residual: changes p
def residual(p, q):
    if (p == q).all():
        return p
    p -= np.minimum(p, q)
    return p / p.sum()
# %% accept_one: p stays as it is
# p = rest_of(p, q) -> pass
# %% accept_one: sample and match
def accept_one(p, q, candidates, rng):
    token = rng.draws(p)
    return token, token in candidates
# %% accept_one: three candidates at most
# in candidates: -> in candidates[:3]:
# %% accept_one: without the rejected token
# rest_of(p, q) -> without(p, token)
# %% bias_of_most_probable: the whole sum
#  / 2 -> 
# %% bias_of_most_probable: after a rejection from p
# rest_of(p, q) -> p
# %% bias_of_most_probable: the target's most probable token
def bias_of_most_probable(p, q):
    x = p.argmax()
    accepted = min(1, p[x] / q[x]) if q[x] else 1
    out = (1 - accepted) * rest_of(p, q)
    out[x] += accepted
    return abs(out - p).sum() / 2
# %% bias_of_most_probable: p is changed
# return abs(out - p).sum() / 2 -> error = abs(out - p).sum() / 2\n    p[x] = 0 * p[x]\n    return error
# %% accept_one: q loses the rejected token, too
# p = rest_of(p, q) -> p = rest_of(p, q)\n        q = without(q, token)
# %% accept_one: the candidates are used up
# for token in candidates: -> while candidates:\n        token = candidates.pop(0)
# %% residual: floats
# return lacking / -> lacking = lacking.astype(float)\n    return lacking /
# %% bias_of_most_probable: p / q without the minimum
# min(1, p[x] / q[x]) -> p[x] / q[x]
