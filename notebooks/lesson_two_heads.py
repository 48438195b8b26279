"""The elective on two heads: the tests of its exercises."""

import numpy as np

from speclab.course import check


def A(answer, seed=0):
    """Mean confidences; the answer gets the logarithms of the probabilities."""

    def of_probs(answer, parents, probs):
        log_probs = np.log(probs).tolist()
        before = (list(parents), list(log_probs))
        mean = answer(parents, log_probs)
        assert (parents, log_probs) == before, "mean_confidence changed what it was given"
        return {"mean confidence": float(mean)}

    def case(parents, probs, mean):
        return parents, probs, {"mean confidence": mean}

    def world(random):
        """A random tree; the confidence of each node is that of its parent times its probability."""
        parents = [-1]
        probs = [1.0]
        paths = [1.0]
        for node in range(1, random.randint(1, 15)):
            parents.append(random.randrange(node))
            probs.append(random.choice((0.05, 0.2, 0.5, 0.9, 1.0)))
            paths.append(paths[parents[node]] * probs[node])
        return case(parents, probs, sum(paths[1:]) / max(len(paths) - 1, 1))

    cases = [
        case([-1, 0, 0, 1, 1], [1, 0.6, 0.3, 0.5, 0.4], 0.36),
        case([-1, 0, 1, 1, 2], [1, 0.5, 0.8, 0.1, 0.9], 0.3275),
        case([-1, 0], [1, 0.25], 0.25),
        case([-1], [1], 0.0),
        case([-1, 0, 0], [1, 0.5, 0.3], 0.4),
        case([-1, 0, 1, 2], [1, 0.5, 0.5, 0.5], 0.2916667),
        case([-1, 0, 1, 2, 3], [1, 0.5, 0.5, 0.5, 0.5], 0.234375),
        case([-1, 0, 0, 2, 3], [1, 0.2, 0.8, 0.5, 0.5], 0.4),
    ]
    check("A", answer, cases, through=of_probs, worlds=world, seed=seed)


def B(answer, places, seed=0):
    """A rule's choices on invented margins; and whether it beats the paper's rule in decoded iterations."""

    def tokens_with(rule):
        return float(np.mean([gives[rule(margins)] for margins, gives in places]))

    def chosen(answer, margins):
        if margins:
            return int(answer(margins))
        paper = tokens_with(lambda margins: 1 if margins[-1] < 0 else 0)
        got = tokens_with(lambda margins: int(answer(margins)))
        assert got > paper, f"expected more than {paper:.2f} tokens per iteration, got {got:.2f}"
        return True

    def world(random):
        """Texts that change their kind, with odd margins of any size; asked where the text decides the answer."""
        sign = random.choice((1, -1))
        margins = []
        for _ in range(random.randint(1, 4)):
            sign = -sign
            margins += [sign * random.random() for _ in range(random.randint(3, 6))]
            if random.random() < 0.5:
                margins.append(-sign * 3 * random.random())
                margins += [sign * random.random() for _ in range(random.choice((0, 3, 4)))]
                if margins[-1] * sign < 0:
                    break
        return tuple(margins), int(sign < 0)

    cases = [((), True)]
    for size in (0.01, 0.3):
        for sign, same, other in ((1, 0, 1), (-1, 1, 0)):
            a = sign * size  # a margin for which the rule chooses `same`
            b = -a
            cases += [((a,), same), ((a, a, a), same), ((a, a, 0.4 * b), same), ((a, a, 5 * b), same)]
            cases += [((a, a, 5 * b, a), same), ((*[a] * 20, b, b, b), other), ((b, *[a] * 5, 5 * b), same)]
            cases += [((10 * a, b, b, b), other), ((*[a] * 5, *[b] * 5, *[a] * 5), same)]
    check("B", answer, cases, through=chosen, worlds=world, seed=seed)
