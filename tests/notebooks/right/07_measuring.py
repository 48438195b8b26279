# %% measure: a generator
def measure(methods, prompts, rounds, clock=perf_counter):
    [call(prompts[0]) for call in methods.values()]
    for turn in range(rounds):
        for place, prompt in enumerate(prompts):
            for name, call in sorted(
                methods.items(), key=lambda one: [*methods].index(one[0]) * (-1) ** turn
            ):
                began = clock()
                tokens = call(prompt)
                yield {
                    "method": name,
                    "prompt": place,
                    "round": turn,
                    "tokens": tokens,
                    "seconds": clock() - began,
                }


# %% speedup: numpy
def speedup(own, base):
    import numpy as np

    return np.median(
        [b["seconds"] / a["seconds"] for a in own for b in base if a["round"] == b["round"]]
    )


# %% interval: numpy, all draws at once
def interval(pairs, draws=2000, seed=0):
    import numpy as np

    rng, figures = np.random.default_rng(seed), np.array(pairs)
    drawn = figures[rng.integers(len(pairs), size=(draws, len(pairs)))].sum(1)
    ratios = np.sort(drawn[:, 0] / drawn[:, 1])
    return ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1]
