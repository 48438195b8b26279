# %% stops at the first node that does not pay
def best_size(gains, seconds, drafting):
    def rate(size):
        return (1 + sum(gains[:size])) / (seconds[size] + (drafting if size else 0))

    size = 0
    while size < len(gains) and rate(size + 1) > rate(size):
        size += 1
    return size


# %% drafting is free
def best_size(gains, seconds, drafting):
    return max(range(len(gains) + 1), key=lambda size: (1 + sum(gains[:size])) / seconds[size])


# %% drafting costs also where nothing is drafted
def best_size(gains, seconds, drafting):
    return max(range(len(gains) + 1), key=lambda size: (1 + sum(gains[:size])) / (seconds[size] + drafting))


# %% the target's own token is forgotten
def best_size(gains, seconds, drafting):
    return max(
        range(len(gains) + 1), key=lambda size: sum(gains[:size]) / (seconds[size] + (drafting if size else 0))
    )


# %% the price of a pass with one node less
def best_size(gains, seconds, drafting):
    return max(
        range(len(gains) + 1),
        key=lambda size: (1 + sum(gains[:size])) / (seconds[max(size - 1, 0)] + (drafting if size else 0)),
    )


# %% never nothing
def best_size(gains, seconds, drafting):
    return max(
        range(1, len(gains) + 1), key=lambda size: (1 + sum(gains[:size])) / (seconds[size] + drafting), default=0
    )


# %% the most of equals
best_size = solution.replace(
    "return max(range(len(gains) + 1), key=rate)", "return max(range(len(gains), -1, -1), key=rate)"
)

# %% the most tokens, whatever they cost
def best_size(gains, seconds, drafting):
    return len(gains)


# %% a node is taken where its probability is above the mean price of a node
def best_size(gains, seconds, drafting):
    price = (seconds[-1] - seconds[0] + drafting) / max(len(gains), 1)
    return sum(gain > price for gain in gains)


# %% the mean of the ratios
speedup = solution.replace("median", "mean")

# %% the ratio of the medians
def speedup(own, base):
    return median(result.throughput for result in own) / median(result.throughput for result in base)


# %% paired by place in the list, not by round
def speedup(own, base):
    return median(a.throughput / b.throughput for a, b in zip(own, base, strict=False))


# %% upside down
def speedup(own, base):
    rates = {result.repeat: result.throughput for result in own}
    return median(result.throughput / rates[result.repeat] for result in base if result.repeat in rates)


# %% the ratio of the sums
def speedup(own, base):
    rates = {result.repeat: result.throughput for result in base}
    both = [result for result in own if result.repeat in rates]
    return sum(result.throughput for result in both) / sum(rates[result.repeat] for result in both)


# %% a round without a partner is an error
speedup = solution.replace("own if result.repeat in rates", "own")

# %% the best call of each
def speedup(own, base):
    return max(result.throughput for result in own) / max(result.throughput for result in base)


# %% the first round alone
speedup = solution.replace("median", "next")
