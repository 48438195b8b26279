"""Lesson 7: the tests of its exercises."""

import random as global_random
from itertools import product
from math import comb
from statistics import median

import numpy as np

from speclab.course import check, plain


def A(answer, seed=0):
    """The order of all calls, and the records, with a clock that costs time."""
    keys = ("method", "prompt", "round", "tokens", "seconds")

    def logged(answer, names, prompts, rounds):
        """Invented methods take as many seconds as their prompt is long."""
        time = [0.0]
        calls = []
        readings = []

        def method(name):
            def call(prompt):
                calls.append((name, prompt))
                time[0] += len(prompt)
                return [len(calls)]

            return call

        def clock():
            time[0] += 0.25  # reading the clock too often, or recording in between, adds time
            readings.append(time[0])
            return time[0]

        records = plain(list(answer({name: method(name) for name in names}, prompts, rounds, clock)))
        enough = len(readings) >= 2 * len(records)
        assert enough, f"expected the clock to be read before and after each call, got {len(readings)} readings"
        return {"calls": calls, "records": [[record[key] for key in keys] for record in records]}

    def case(names, prompts, rounds):
        calls = [(name, prompts[0]) for name in names]
        records = []
        for turn in range(rounds):
            for place, prompt in enumerate(prompts):
                for name in names if turn % 2 == 0 else reversed(names):
                    calls.append((name, prompt))
                    records.append([name, place, turn, [len(calls)], len(prompt) + 0.25])
        return names, prompts, rounds, {"calls": calls, "records": records}

    def world(random):
        names = random.sample("ABCDE", random.randint(1, 4))
        prompts = random.choices(("x", "yy", "zzzz"), k=random.randint(1, 4))
        return case(names, prompts, random.randint(0, 5))

    cases = [case("AB", ["xxxx", "y"], 4), case("CAB", ["x"], 3), case("A", ["xx", "y", "zzz"], 1)]
    cases.append(case("AB", ["x"], 0))
    check("A", answer, cases, through=logged, worlds=world, seed=seed)


def B(answer, seed=0):
    """Speedups of invented records, each given as a round and its seconds."""

    def of_rounds(answer, own, base):
        records = []
        for rounds in (own, base):
            records.append([{"round": turn, "seconds": spent} for turn, spent in rounds])
        return answer(*records)

    def world(random):
        """Rounds in any order, some of which only one method has."""
        own = {}
        base = {}
        for turn in random.sample(range(9), random.randint(1, 6)):
            own[turn] = random.randint(1, 40) / 8
            base[turn] = random.randint(1, 40) / 8
        ratios = [base[turn] / own[turn] for turn in own]
        for turn in range(9, 13):
            alone = random.choice((own, base, {}))
            alone[turn] = random.randint(1, 40) / 8
        rounds = [list(own.items()), list(base.items())]
        for each in rounds:
            random.shuffle(each)
        return *rounds, median(ratios)

    cases = [
        ([(0, 2.0)], [(0, 3.0)], 1.5),
        ([(0, 10.0), (1, 20.0), (2, 30.0)], [(2, 30.0), (1, 20.0), (0, 10.0)], 1.0),  # rounds belong together
        ([(0, 1.0), (1, 1.0), (2, 9.0)], [(0, 2.0), (1, 2.0), (2, 2.0)], 2.0),  # one call may be off
        ([(0, 1.0), (1, 2.0), (2, 8.0)], [(0, 4.0), (1, 3.0), (2, 4.0)], 1.5),  # the median of 4, 1.5 and 0.5
        ([(0, 1.0), (1, 2.0)], [(0, 3.0), (1, 2.0)], 2.0),  # between the middle two
        ([(1, 4.0), (2, 2.0)], [(0, 1.0), (1, 6.0), (2, 7.0)], 2.5),  # round 0 has no partner
        ([(0, 5.0), (1, 2.0), (3, 1.0)], [(1, 6.0), (2, 1.0)], 3.0),
    ]
    check("B", answer, cases, through=of_rounds, worlds=world, seed=seed)


def _intervals(answer, pairs, draws, seeds):
    """The interval of each seed; the same seed gives the same, and the global random numbers are left alone."""
    state = (global_random.getstate(), repr(np.random.get_state()))
    found = [[float(end) for end in answer(pairs, draws, seed)] for seed in range(seeds)]
    again = [[float(end) for end in answer(pairs, draws, seed)] for seed in (0, seeds - 1)]
    assert again == [found[0], found[-1]], "expected the same interval for the same seed"
    unchanged = (global_random.getstate(), repr(np.random.get_state())) == state
    assert unchanged, "expected a generator of your own; the global random numbers changed"
    return np.array(found)


def _ratios(pairs):
    """The ratios of all ways to draw these pairs, sorted; they are equally likely."""
    ratios = []
    for drawn in product(pairs, repeat=len(pairs)):
        ratios.append(sum(first for first, _ in drawn) / sum(second for _, second in drawn))
    return np.sort(ratios)


def C(answer, seed=0):
    """Whether the intervals of many seeds come from the exact distribution: possible ends, and their mean."""

    def agrees(answer, pairs, draws, seeds):
        found = _intervals(answer, pairs, draws, seeds)
        every = _ratios(pairs)
        strange = [end for end in found[:100].ravel() if abs(every - end).min() > 1e-6]
        assert not strange, f"expected ratios of {len(pairs)} pairs drawn with replacement, got {strange[0]}"
        below = np.arange(1, len(every) + 1) / len(every)
        for end, place in ((0, int(0.025 * draws)), (1, int(0.975 * draws) - 1)):  # -1 is the last of one
            fewer = sum(comb(draws, k) * below**k * (1 - below) ** (draws - k) for k in range(place % draws + 1))
            chances = np.diff(1 - fewer, prepend=0)  # of each ratio to be this end
            got = found[:, end].mean()
            expected = every @ chances
            error = 6 * (max(every**2 @ chances - expected**2, 0) / seeds) ** 0.5 + np.ptp(every) / seeds
            assert abs(got - expected) <= error + 1e-6, (
                f"{draws} draws: expected the mean {expected:.3f} of an end over {seeds} seeds, got {got:.3f}"
            )
        equal = len({*every.round(6)}) == 1
        return draws > 1 or equal or len({*found[:, 0].round(6)}) > 1

    def world(random):
        """A few prompts; with one draw, both ends are its ratio."""
        pairs = [(random.randint(10, 60) / 10, random.randint(10, 60) / 10) for _ in range(random.randint(1, 4))]
        return pairs, random.choice((1, 1, 40)), 60, True

    spread = [(3.3, 2.8), (4.1, 3.0), (2.2, 2.4), (5.6, 3.7), (2.9, 2.9)]
    equal = [(1.2 * x, x) for x in (1.0, 1.5, 2.0, 4.0, 8.0)]
    cases = [(equal, 40, 2, True), ([(3.6, 3.0)], 40, 2, True), (spread, 1, 200, True), (spread, 40, 1200, True)]
    check("C", answer, cases, through=agrees, worlds=world, seed=seed, limit=30)
