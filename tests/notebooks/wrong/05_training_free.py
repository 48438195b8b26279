# %% copied_tokens: the oldest occurrence
# len(tokens) - 1, length - 1, -1 -> length, len(tokens)
# %% copied_tokens: the text's end counts
# len(tokens) - 1, length -> len(tokens), length
# %% copied_tokens: no limit
# end : end + limit -> end:
# %% copied_tokens: one token late
# end : end + limit -> end + 1 : end + 1 + limit
# %% copied_tokens: the occurrence may not overlap the end
# len(tokens) - 1, length -> len(tokens) - length, length
# %% copied_tokens: the last token alone is compared
# tokens[end - length : end] == tokens[-length:] -> tokens[end - 1] == tokens[-1]
# %% copied_tokens: the text is shortened
# for end in range(len(tokens) - 1, length - 1, -1): -> last = tokens[-length:]\n    tokens.pop()\n    for end in range(len(tokens), length - 1, -1):
# == tokens[-length:] -> == last
# %% copied_tokens: falls back to shorter n-grams
def copied_tokens(tokens, length, limit):
    for size in range(min(length, len(tokens)), 0, -1):
        for end in range(len(tokens) - 1, size - 1, -1):
            if tokens[end - size : end] == tokens[-size:]:
                return tokens[end : end + limit]
    return []
# %% whole_widths: given out evenly
def whole_widths(p_s, p_t, length, budget):
    return [budget // length + (i < budget % length) for i in range(length)]
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
# %% whole_widths: harmonic
def whole_widths(p_s, p_t, length, budget):
    total = sum(1 / place for place in range(1, length + 1))
    widths = [int(budget / place / total) for place in range(1, length + 1)]
    widths[0] += budget - sum(widths)
    return widths
# %% judged: the middle of the interval
def judged(paper, low, high):
    if low <= paper <= high:
        return "size"
    return "direction" if (paper > 1) == (low + high > 2) else "other"
# %% judged: above 1 is always a direction
# paper != 1 and (paper > 1) == (low > 1) -> low > 1
# %% judged: open is asked first
def judged(paper, low, high):
    if low <= 1 <= high:
        return "open"
    if low <= paper <= high:
        return "size"
    return "direction" if paper != 1 and (paper > 1) == (low > 1) else "other"
# %% judged: ends left out
# low <= paper <= high -> low < paper < high
# %% judged: a paper's 1 above the interval counts as a loss
# paper != 1 and  -> 
# %% judged: a paper's ratio of at least 1 is a gain
# paper != 1 and (paper > 1) == -> (paper >= 1) ==
# %% judged: never open
# "open" -> "direction" if paper > 1 else "other"
