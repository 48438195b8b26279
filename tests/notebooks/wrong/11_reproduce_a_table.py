# %% the prefill's token counted for speclab, too
averages = solution.replace("committed", "new_tokens")

# %% L as a mean of ratios
averages = solution.replace(
    '"L": sum(one.new_tokens for one in runs) / sum(one.iterations for one in runs),',
    '"L": mean([one.new_tokens / one.iterations for one in runs]),',
)

# %% everything total over total
def averages(runs):
    def total(name):
        return sum(getattr(one, name) for one in runs)

    its = total("iterations")
    return {
        "speclab": total("committed") / its,
        "L": total("new_tokens") / its,
        "l": total("new_tokens") / its,
        "path": total("accepted") / its,
    }


# %% the path with the bonus
averages = solution.replace("accepted", "committed")

# %% L without the prefill's token
averages = solution.replace("one.new_tokens for", "one.committed for")

# %% the path as tokens per iteration less one
averages = solution.replace("accepted / one.iterations", "new_tokens / one.iterations - 1")

# %% L and l exchanged
averages = solution.replace(
    'L": sum(one.new_tokens for one in runs) / sum(one.iterations for one in runs),\n        "l',
    'l": sum(one.new_tokens for one in runs) / sum(one.iterations for one in runs),\n        "L',
)

# %% the methods drawn apart
def interval(pairs, draws=2000, seed=0):
    from random import Random

    source, ratios = Random(seed), []
    for _ in range(draws):
        first = source.choices([a for a, _ in pairs], k=len(pairs))
        second = source.choices([b for _, b in pairs], k=len(pairs))
        ratios.append(sum(first) / sum(second))
    ratios.sort()
    return ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1]


# %% without replacement: the same prompts each time
interval = solution.replace(
    "drawn = source.choices(pairs, k=len(pairs))\n        ratios.append(sum(first for first, _ in drawn) / sum(second for _, second in drawn))",
    "drawn = source.sample(pairs, k=len(pairs))\n        ratios.append(sum(a for a, _ in drawn) / sum(b for _, b in drawn))",
)

# %% the least and the largest
def interval(pairs, draws=2000, seed=0):
    from random import Random

    source, ratios = Random(seed), []
    for _ in range(draws):
        drawn = source.choices(pairs, k=len(pairs))
        ratios.append(sum(a for a, _ in drawn) / sum(b for _, b in drawn))
    return min(ratios), max(ratios)


# %% 5% off at either end
interval = solution.replace(
    "first for first, _ in drawn) / sum(second for _, second", "a for a, _ in drawn) / sum(b for _, b"
).replace("025 * draws)], ratios[int(0.975", "05 * draws)], ratios[int(0.95")

# %% the mean of the prompts' ratios
interval = solution.replace(
    "first for first, _ in drawn) / sum(second for _, second in drawn", "a / b for a, b in drawn) / len(drawn"
)

# %% the quartile of prompts, no bootstrap
def interval(pairs, draws=2000, seed=0):
    ratios = sorted(a / b for a, b in pairs)
    return ratios[int(0.025 * len(ratios))], ratios[max(int(0.975 * len(ratios)) - 1, 0)]


# %% one prompt fewer in each draw
interval = solution.replace(
    "drawn = source.choices(pairs, k=len(pairs))\n        ratios.append(sum(first for first, _ in drawn) / sum(second for _, second in drawn))",
    "drawn = source.choices(pairs, k=max(len(pairs) // 2, 1))\n        ratios.append(sum(a for a, _ in drawn) / sum(b for _, b in drawn))",
)

# %% the middle of the interval is judged
def judged(paper, low, high):
    middle = (low + high) / 2
    if low <= paper <= high:
        return "size"
    return "direction" if (paper > 1) == (middle > 1) else "other"


# %% above 1 is always a direction
judged = solution.replace("paper != 1 and (paper > 1) == (low > 1)", "low > 1")

# %% open is asked before size
def judged(paper, low, high):
    if low <= 1 <= high:
        return "open"
    if low <= paper <= high:
        return "size"
    return "direction" if (paper > 1) == (low > 1) and paper != 1 else "other"


# %% ends left out
def judged(paper, low, high):
    if low < paper < high:
        return "size"
    if low < 1 < high:
        return "open"
    return "direction" if (paper > 1) == (low > 1) and paper != 1 else "other"


# %% a paper's 1 counts as a loss
judged = solution.replace(
    'return "direction" if paper != 1 and (paper > 1) == (low > 1) else "other"',
    'return "direction" if (paper > 1) == (low > 1) else "other"',
)

# %% never open
judged = solution.replace('return "size"\n    if low <= 1 <= high:\n        return "open"', 'return "size"')
