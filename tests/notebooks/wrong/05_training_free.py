# %% copied_tokens: the oldest occurrence
# len(tokens) - 1, length - 1, -1 -> length, len(tokens)
# %% copied_tokens: the text's end counts
# len(tokens) - 1, length -> len(tokens), length
# %% copied_tokens: no limit
# end : end + limit -> end:
# %% whole_widths: all at the root
def whole_widths(p_s, p_t, length, budget):
    return [budget] + [0] * (length - 1)
# %% whole_widths: the straight line, cut down, and the rest at the root
def whole_widths(p_s, p_t, length, budget):
    widths = [int(width) for width in optimal_widths(p_s, p_t, length, budget)]
    return [widths[0] + budget - sum(widths), *widths[1:]]
# %% whole_widths: how often a branch succeeds is left out
# (1 - p_t) ** k -> 1 / (k + 1)
# %% whole_widths: the rates exchanged
# p_s**i * (1 - p_t) ** k -> p_t**i * (1 - p_s) ** k
# %% judged: the middle of the interval
def judged(paper, low, high):
    if low <= paper <= high:
        return "size"
    return "direction" if (paper > 1) == (low + high > 2) else "other"
# %% judged: open is asked first
def judged(paper, low, high):
    if low <= 1 <= high:
        return "open"
    if low <= paper <= high:
        return "size"
    return "direction" if paper != 1 and (paper > 1) == (low > 1) else "other"
# %% judged: a paper's 1 above the interval counts as a loss
# paper != 1 and  -> 
# %% judged: a paper's ratio of at least 1 is a gain
# paper != 1 and (paper > 1) == -> (paper >= 1) ==
# %% judged: a tolerance of one per cent
# low <= paper <= high -> 0.99 * low <= paper <= 1.01 * high
# %% judged: ends excluded
# low <= 1 <= high -> low < 1 < high
