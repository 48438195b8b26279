"""Lesson 5: what reads runs of Goose, and the tests of its exercises."""

from random import Random

import speclab
from speclab import views
from speclab.course import check


def saved_tokens(step):
    """Accepted guesses after accepted copies, if the target rejected a copy; otherwise 0."""
    path = [step.tree.source[node] for node in step.accepted]
    copied = [node.verdict for node in step.nodes if step.tree.source[node.index] == "context"]
    if "context" in path and "rejected" in copied:
        return path.count("transition")
    return 0


def spine(step):
    """The tree as it was drafted, with its copies drawn as a broad line."""
    figure = views.tree(step, phase="flatten")
    (nodes,) = [trace for trace in figure.data if trace.name == "nodes"]
    line = {"x": [nodes.x[0]], "y": [nodes.y[0]]}
    for node, source in enumerate(step.tree.source):
        if source == "context":
            line["x"].append(nodes.x[node])
            line["y"].append(nodes.y[node])
    look = {"width": 16, "color": "#E69F00"}
    figure.add_scatter(**line, mode="lines", line=look, opacity=0.35, name="copied: the spine")
    figure.update_traces(showlegend=False)
    return figure.update_traces(showlegend=True, selector={"name": "copied: the spine"})


def branches(runs):
    """The trees with copies that have branches and those that have none, and the share of accepted tokens that are
    guesses after copies.
    """
    steps = []
    for run in runs:
        steps += run.steps
    copied = [step.tree for step in steps if "context" in step.tree.source]
    branching = [tree for tree in copied if "transition" in tree.source]
    chains = [tree for tree in copied if "transition" not in tree.source]
    parts = speclab.attribution.attribution(steps)
    return branching, chains, parts.spine_continuation / parts.accepted


def interval(own, other, draws=2000):
    """The 95% bootstrap interval of mean(own) / mean(other), over prompts, drawn in pairs."""
    random = Random(0)
    pairs = list(zip(own, other))
    ratios = []
    for _ in range(draws):
        drawn = random.choices(pairs, k=len(pairs))
        ratios.append(sum(first for first, _ in drawn) / sum(second for _, second in drawn))
    ratios.sort()
    return ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1]


def A(answer, seed=0):
    """Copies of letters and of random tokens."""

    def world(random):
        """A text of few words; every earlier end of its last words is looked up from the front."""
        tokens = random.choices((1, 2, 3), k=random.randint(1, 40))
        length = random.randint(1, 5)
        limit = random.randint(1, 12)
        found = []
        for end in range(length, len(tokens)):
            if tokens[end - length : end] == tokens[-length:]:
                found = tokens[end : end + limit]
        return tokens, length, limit, found

    letters = [("12391238123", 3, 2, "81"), ("1234", 2, 5, ""), ("123412", 2, 1, "3"), ("121212", 2, 5, "12")]
    letters += [("555", 1, 4, "5"), ("12", 3, 2, ""), ("2712", 2, 3, ""), ("1231241251", 1, 9, "251")]
    cases = [(list(text), length, limit, list(expected)) for text, length, limit, expected in letters]
    check("A", answer, cases, worlds=world, seed=seed)


def B(answer, seed=0):
    """Judgements, by hand and of random intervals."""

    def world(random):
        """Ratios that often are an end, or only just beside it; the answer is looked up in the order of the text."""
        low, high = sorted(random.choice((1, random.randint(200, 1600) / 1000)) for _ in range(2))
        beside = random.choice((0, 0, 0.001, -0.001, 0.004, -0.004))
        paper = random.choice((low + beside, high + beside, 1 + beside, random.randint(200, 1600) / 1000))
        expected = "other"
        if (low > 1 and paper > 1) or (high < 1 and paper < 1):
            expected = "direction"
        if low <= 1 <= high:
            expected = "open"
        if low <= paper <= high:
            expected = "size"
        return paper, low, high, expected

    cases = [
        (1.25, 1.1, 1.4, "size"),
        (1.25, 1.05, 1.2, "direction"),
        (1.25, 1.3, 1.5, "direction"),
        (1.25, 0.6, 0.7, "other"),
        (1.25, 0.9, 1.1, "open"),
        (0.8, 0.85, 0.95, "direction"),
        (0.8, 1.1, 1.2, "other"),
        (0.8, 0.9, 1.0, "open"),
        (1.25, 1.25, 1.4, "size"),
        (1.25, 1.1, 1.25, "size"),
        (1.0, 0.8, 0.9, "other"),
        (1.0, 1.1, 1.2, "other"),
        (1.0, 0.9, 1.1, "size"),
        (1.02, 0.9, 1.1, "size"),
        (0.8, 1.0, 1.2, "open"),
        (0.5, 0.6, 0.9, "direction"),
    ]
    check("B", answer, cases, worlds=world, seed=seed)


def C(answer, seed=0):
    """Whole widths that give as much as the best ones."""

    def second_sum(answer, p_s, p_t, length, budget):
        """The second sum of Proposition 1 without the factor (1 + E), for whole branches."""
        widths = list(answer(p_s, p_t, length, budget))
        fits = [len(widths), sum(widths)] == [length, budget]
        assert fits, f"expected {length} numbers with the sum {budget}, got {widths}"
        assert all(width == int(width) >= 0 for width in widths), f"expected whole numbers from 0, got {widths}"
        value = sum(p_s**i * (1 - p_s) * (1 - (1 - p_t) ** width) for i, width in enumerate(widths))
        return {"the second sum of Proposition 1, without 1 + E": value}

    def case(p_s, p_t, length, budget):
        """Each branch adds less than the one before it at the same node: the best choice is the largest additions."""
        added = [p_s**i * (1 - p_s) * p_t * (1 - p_t) ** k for i in range(length) for k in range(budget)]
        best = sum(sorted(added, reverse=True)[:budget])
        return p_s, p_t, length, budget, {"the second sum of Proposition 1, without 1 + E": best}

    def world(random):
        p_s = random.choice((0.3, 0.55, 0.7, 0.85, 0.95))
        p_t = random.choice((0.05, 0.15, 0.35, 0.6))
        return case(p_s, p_t, random.randint(1, 4), random.randint(0, 6))  # small enough to try every choice

    cases = [case(0.7, 0.2, 3, 6), case(0.3, 0.1, 3, 5), case(0.95, 0.35, 3, 5)]
    cases += [case(0.95, 0.5, 4, 6), case(0.8, 0.3, 2, 0)]
    check("C", answer, cases, through=second_sum, worlds=world, seed=seed)
