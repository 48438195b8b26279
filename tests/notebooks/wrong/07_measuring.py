# %% measure: the order is never turned
# turn % 2 == 1 -> turn < 0
# %% measure: the clock runs on
# seconds = clock() - began -> clock()\n                seconds = clock() - began
# %% speedup: the mean of the ratios
# return median(ratios) -> return mean(ratios)
# %% speedup: paired by place in the list
def speedup(own, base):
    return median(b["seconds"] / a["seconds"] for a, b in zip(own, base))
# %% speedup: upside down
# seconds[record["round"]] / record["seconds"] -> record["seconds"] / seconds[record["round"]]
# %% interval: without replacement
# source.choices -> source.sample
# %% interval: the least and the largest
# ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1] -> ratios[0], ratios[-1]
# %% interval: the mean of the prompts' ratios
# sum(first for first, _ in drawn) / sum(second for _, second in drawn) -> sum(a / b for a, b in drawn) / len(drawn)
# %% interval: 90%
# ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1] -> ratios[int(0.05 * draws)], ratios[int(0.95 * draws) - 1]
# %% interval: 94%
# ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1] -> ratios[int(0.03 * draws)], ratios[int(0.97 * draws) - 1]
# %% interval: 96%
# ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1] -> ratios[int(0.02 * draws)], ratios[int(0.98 * draws) - 1]
# %% interval: the upper index is one too high
# ratios[int(0.975 * draws) - 1] -> ratios[min(int(0.975 * draws), draws - 1)]
# %% interval: 200 draws, whatever draws says
# source = Random(seed) -> source = Random(seed)\n    draws = 200
# %% interval: the global random numbers
# source = Random(seed) -> import random as source\n    source.seed(seed)
# %% measure: the clock is read once a call, so that the bookkeeping is timed
def measure(methods, prompts, rounds, clock=perf_counter):
    for method in methods.values():
        method(prompts[0])
    records, last = [], clock()
    for turn in range(rounds):
        for place, prompt in enumerate(prompts):
            for name in list(methods)[:: -1 if turn % 2 else 1]:
                tokens, now = methods[name](prompt), clock()
                record = {"method": name, "prompt": place, "round": turn}
                records.append({**record, "tokens": tokens, "seconds": now - last})
                last = now
    return records
