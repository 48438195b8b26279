# %% measure: two lists of names
def measure(methods, prompts, rounds, clock=perf_counter):
    for name in methods:
        methods[name](prompts[0])
    forward, records = list(methods), []
    for turn in range(rounds):
        for index in range(len(prompts)):
            for name in reversed(forward) if turn % 2 else forward:
                start = clock()
                tokens = methods[name](prompts[index])
                end = clock()
                records.append(
                    dict(
                        seconds=end - start,
                        method=name,
                        prompt=index,
                        round=turn,
                        tokens=tokens,
                        extra=0,
                    )
                )
    return records


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


# %% interval: one choice after the other
def interval(pairs, draws=2000, seed=0):
    rng, ratios = Random(seed), []
    for _ in range(draws):
        drawn = [rng.choice(pairs) for _ in pairs]
        ratios.append(sum(a for a, b in drawn) / sum(b for a, b in drawn))
    ratios = sorted(ratios)
    return [ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1]]


# %% interval: numpy, all draws at once
def interval(pairs, draws=2000, seed=0):
    import numpy as np

    rng, figures = np.random.default_rng(seed), np.array(pairs)
    drawn = figures[rng.integers(len(pairs), size=(draws, len(pairs)))].sum(1)
    ratios = np.sort(drawn[:, 0] / drawn[:, 1])
    return ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1]


