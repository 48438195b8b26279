# %% residual: a mask
def residual(p, q):
    rest = np.where(p > q, p - q, 0 * p)
    return p.copy() if not rest.any() else rest / sum(rest)


# %% accept_one: recursion, floats
def accept_one(p, q, candidates, rng):
    if len(candidates) == 0:
        return rng.draws(p), False
    first, *others = candidates
    if rng.accepts(min(1.0, float(p[first] / q[first]))):
        return first, True
    lacking = np.maximum(p - q, 0)
    return accept_one(lacking / lacking.sum() if lacking.sum() > 0 else p, q, others, rng)


# %% bias_of_most_probable: torch
def bias_of_most_probable(p, q):
    p, q = (torch.tensor([float(each) for each in one], dtype=torch.float64) for one in (p, q))
    x = q.argmax()
    yes = torch.clamp(p[x] / q[x], max=1)
    rest = torch.clamp(p - q, min=0)
    out = (1 - yes) * (rest / rest.sum() if rest.sum() > 0 else p)
    out[x] += yes
    return (out - p).abs().sum() / 2
