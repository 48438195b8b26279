"""Lesson 6: what reads a broken run, and the tests of its exercises."""

import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch

import broken_decoder
import speclab
from speclab import clinic
from speclab.course import check


def corrupted(pair, session, step, nodes):
    """Those nodes whose recorded entropy differs from that of a plain pass over their path."""
    text = [*session.prompt_ids, *session.token_ids][: step.prefix_length]
    wrong = []
    for node in nodes:
        path = [int(step.tree.token[i]) for i in step.tree.path(node)]
        logits = pair.target.model(torch.tensor([text + path])).logits[0, -1]
        entropy = torch.distributions.Categorical(logits=logits).entropy().item()
        if abs(entropy - step.nodes[node].entropy) > 1e-3:
            wrong.append(node)
    return wrong


def recorded(decode, pair, prompt):
    """A run of a decoder that records its steps, from the file that it writes."""
    file = Path(tempfile.mkdtemp()) / "run.jsonl"
    decode(pair.target.model, pair.draft.model, list(pair.encode(prompt)), file)
    return speclab.load_steps(file, pair)


def A(answer, pair, session, step, seed=0):
    """Corrupted nodes: by hand, of a recorded step, and of random trees."""

    def world(random):
        """A random tree and random rows; a node is corrupted if it or an ancestor is among them."""
        parents = [-1]
        for node in range(1, random.randint(1, 14)):
            parents.append(random.randrange(node))
        rows = random.sample(range(len(parents)), random.randint(0, min(4, len(parents))))
        found = []
        for node in range(len(parents)):
            above = node
            while above >= 0 and above not in rows:
                above = parents[above]
            if above >= 0:
                found.append(node)
        return rows, parents, found

    cases = [
        ([0], [-1], [0]),
        ([], [-1, 0, 0], []),
        ([2], [-1, 0, 0, 1, 2, 4], [2, 4, 5]),
        ([3], [-1, 0, 0, 1, 2, 2], [3]),
        ([4, 1], [-1, 0, 0, 1, 2, 2, 3, 6], [1, 3, 4, 6, 7]),
        ([1, 3], [-1, 0, 1, 2, 3, 4], [1, 2, 3, 4, 5]),
        ([0], [-1, 0, 1, 1], [0, 1, 2, 3]),
    ]
    wrong = (step.mask != step.tree.ancestor_mask()).any(axis=1)
    rows = wrong.nonzero()[0].tolist()
    cases.append((rows, step.tree.parent.tolist(), corrupted(pair, session, step, range(len(step.tree)))))
    check("A", answer, cases, worlds=world, seed=seed)


def B(answer, pair, prompt, text, seed=0):
    """Positions of trees; and what the decoder writes with them, and whether its record is in order."""

    def world(random):
        """A random tree; the depth of a node is counted by walking up."""
        parents = [-1]
        depths = [0]
        for node in range(1, random.randint(1, 14)):
            parents.append(random.randrange(node))
            depths.append(depths[parents[node]] + 1)
        length = random.randint(0, 99)
        return length, parents, [length + depth for depth in depths]

    def mended(answer, decoder):
        """What a decoder does that uses the answer."""
        broken = broken_decoder.positions
        broken_decoder.positions = answer
        try:
            run = recorded(broken_decoder.decode, pair, prompt)
        finally:
            broken_decoder.positions = broken
        right = list(run.token_ids)[:48] == list(text)[:48]
        return {"findings": [str(finding) for finding in clinic.check(run, pair)[:1]], "text is the target's": right}

    cases = [
        (0, [-1], [0]),
        (7, [-1, 0, 0], [7, 8, 8]),
        (5, [-1, 0, 1, 2], [5, 6, 7, 8]),
        (4, [-1, 0, 1, 0], [4, 5, 6, 5]),
        (60, [-1, 0, 0, 1, 1, 2, 5], [60, 61, 61, 62, 62, 62, 63]),
    ]

    def either(answer, length, parents):
        return answer(length, parents) if parents else mended(answer, length)

    fine = {"findings": [], "text is the target's": True}
    cases.append(("the decoder", [], fine))
    check("B", answer, cases, through=either, worlds=world, seed=seed)


def C(answer, pair, runs, seed=0):
    """Invented steps, and two runs of section 6."""

    def fires(answer, steps):
        """A step is the token of node 1, the target's own choice, and the accepted nodes; or steps name a run."""
        if steps in runs:
            run = runs[steps]
            ids = torch.tensor([[*run.prompt_ids, *run.token_ids]])
            choices = pair.target.model(ids).logits[0].argmax(-1)
            return bool(answer(run.steps, [int(choices[step.prefix_length]) for step in run.steps]))
        invented = []
        for first, _, accepted in steps:
            invented.append(SimpleNamespace(tree=SimpleNamespace(token=[7, first, 9, 4]), accepted=accepted))
        return bool(answer(invented, [choice for _, choice, _ in steps]))

    def world(random):
        """One to six iterations, of every kind."""
        kinds = random.choice(((0, 1), (0, 0, 0, 1), (0, 2), (0, 1, 2, 3)))
        steps = []
        always = True
        differs = False
        for kind in random.choices(kinds, k=random.randint(1, 6)):
            first = random.choice((1005, 1006))
            choice = first if kind == 0 else first + 1
            steps.append((first, choice, [(1, 3), (1,), (2,), ()][kind]))
            always = always and kind < 2
            differs = differs or kind > 0
        return tuple(steps), always and differs

    good = (5, 5, (1, 3))
    bad = (5, 6, (1,))
    other = (5, 9, (2,))
    none = (5, 6, ())
    cases = [
        ((good, good), False),
        ((bad, bad), True),
        ((good, bad), True),
        ((bad, good, good), True),
        ((good,), False),
        ((good, bad, other), False),
        ((other, good), False),
        ((bad, none), False),
        ((good, good, bad, good), True),
        ("healthy", False),
        ("unverified first token", True),
    ]
    check("C", answer, cases, through=fires, worlds=world, seed=seed)
