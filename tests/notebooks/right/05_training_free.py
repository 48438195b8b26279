# %% copied_tokens: numpy
def copied_tokens(tokens, length, limit):
    import numpy as np

    text = np.array(tokens)
    for end in reversed(range(length, len(text))):
        if (text[end - length : end] == text[len(text) - length :]).all():
            return text[end : end + limit]
    return text[:0]


# %% whole_widths: a heap, the whole addition
def whole_widths(p_s, p_t, length, budget):
    from heapq import heapify, heapreplace

    heap = [(-(p_s**i) * (1 - p_s) * p_t, i, 0) for i in range(length)]
    heapify(heap)
    for _ in range(budget):
        gain, i, k = heap[0]
        heapreplace(heap, (gain * (1 - p_t), i, k + 1))
    return [k for _, k in sorted((i, k) for _, i, k in heap)]


# %% judged: a chain of conditions
def judged(paper, low, high):
    if paper >= low and paper <= high:
        return "size"
    elif not (low > 1 or high < 1):
        return "open"
    elif (low - 1) * (paper - 1) > 0:
        return "direction"
    return "other"
