"""The elective on heads: what saves and measures them, a strategy on a block, and the tests of its exercises."""

from math import exp, log
from pathlib import Path
from tempfile import gettempdir

import torch
from pydantic import Field
from safetensors.torch import save_file

import speclab
from best_first import BestFirst, BestFirstDrafter
from speclab.course import check

CHAIN = speclab.LinearSpeculation(draft_tokens=5)


def saved_head(head, config, pair, name):
    """A pair of the target and the head as it is now, written to a folder in EAGLE's format and loaded from there."""
    folder = Path(gettempdir()) / "speclab-course" / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in head.state_dict().items()}, folder / "model.safetensors")
    config.save_pretrained(folder)
    return speclab.load_pair(target=pair.target.model, heads=folder, tokenizer=pair.tokenizer)


def by_depth(with_head):
    """The share of iterations in which at least 1, 2, … 5 tokens were accepted, and the number of iterations."""
    accepted = []
    for one in speclab.prompts.examples("prose")[:4]:
        session = speclab.Session(with_head, CHAIN, one.text, max_new_tokens=48)
        session.run()
        accepted += [len(step.accepted) for step in session.steps[:-1]]  # the text's end cuts the last one off
    shares = []
    for depth in range(1, 6):
        shares.append(sum(count >= depth for count in accepted) / len(accepted))
    return shares, len(accepted)


def block_strategy(bias_of):
    """Best first over the rows of the pair's block head, with the bias that `bias_of` computes."""

    class Block(BestFirst):
        """Best first over the rows of a block."""

        node_budget: int = Field(16, ge=2, le=64, description="verified nodes, root included")
        biased: bool = Field(True, description="add the bias of the parent's token")
        needs_draft = property(lambda self: False)

        def drafter(self, pair):
            return BlockDrafter(self, pair, head=pair.head_names.index("block"))

    class BlockDrafter(BestFirstDrafter):
        children = 16

        def begin(self, context, width):
            passes = super().begin(context, 4096)
            block = self.runners[0].model
            logits = torch.full((7, 4096), -torch.inf)
            for depth, row in enumerate(passes.marginals()):
                tokens, log_probs = zip(*row)
                logits[depth, list(tokens)] = torch.tensor(log_probs)
            w1 = block.markov_head.markov_w1.weight
            w2 = torch.zeros(4096, 64)
            w2[block.token_ids] = block.markov_head.markov_w2.weight

            def after(tree, nodes):
                (node,) = nodes
                depth = 0
                above = tree.parent[node]
                while above >= 0:
                    depth += 1
                    above = tree.parent[above]
                if depth == len(logits):
                    return [()]
                row = logits[depth]  # the first one has read the root
                if depth and self.settings.biased:
                    (row,) = bias_of(logits, w1, w2, [tree.token[node]], [depth])
                best = row.topk(self.children)
                return [list(zip(best.indices.tolist(), best.values.tolist()))]

            return after

    return Block


def decoded(pair, strategy, prompts):
    """A session for each text."""
    sessions = []
    for prompt in prompts:
        session = speclab.Session(pair, strategy, prompt, max_new_tokens=48)
        session.run()
        sessions.append(session)
    return sessions


def summary(sessions):
    """Tokens per iteration; from depth 2 on, how often the most probable child is right, by its parent's fate."""
    frame = speclab.nodes(sessions)
    firsts = frame[(frame["rank"] == 1) & (frame.depth > 1)].groupby("parent_accepted").right
    means = firsts.mean()
    counts = firsts.count()
    parts = [f"{means[fate]:.2f} of {counts[fate]}" for fate in (True, False)]
    tokens = sum(session.metrics.tokens_per_iteration for session in sessions) / len(sessions)
    return f"{tokens:.2f} tokens per iteration; right: {parts[0]} below accepted nodes, {parts[1]} below rejected ones"


def A(answer, seed=0):
    """Slices of invented texts: each token and each channel of a state has a number of its own."""

    def slices(answer, batch, places):
        tokens = 10 * torch.arange(places).repeat(batch, 1) + 1000 * torch.arange(batch)[:, None]
        numbers = torch.arange(float(places)) + 1000 * torch.arange(batch)[:, None]
        states = numbers[:, :, None] + torch.arange(4) / 8
        before = (tokens.clone(), states.clone())
        parts = [torch.as_tensor(part) for part in answer(tokens, states)]
        assert torch.equal(tokens, before[0]), "aligned changed the tokens that it was given"
        assert torch.equal(states, before[1]), "aligned changed the states that it was given"
        ranks = [part.ndim for part in parts]
        assert ranks == [2, 3, 3], f"expected 2, 3 and 3 dimensions, got {ranks}"
        return {"tokens that the head reads": parts[0], "states that it reads": parts[1], "states wanted": parts[2]}

    def case(batch, places):
        tokens = []
        states = []
        for row in range(batch):
            tokens.append([10 * place + 1000 * row for place in range(1, places)])
            states.append([[place + 1000 * row + i / 8 for i in range(4)] for place in range(places)])
        expected = {"tokens that the head reads": tokens}
        expected["states that it reads"] = [row[:-1] for row in states]
        expected["states wanted"] = [row[1:] for row in states]
        return batch, places, expected

    def world(random):
        return case(random.randint(1, 5), random.randint(2, 12))

    check("A", answer, [case(1, 4), case(2, 3), case(3, 7)], through=slices, worlds=world, seed=seed)


def B(answer, seed=0):
    """Rows of children, every number by itself."""

    def case(logits, w1, w2, tokens, depths):
        """Logit plus the product of two rows, less the logarithm of the row's sum."""
        expected = []
        for token, depth in zip(tokens, depths):
            gains = [sum(a * b for a, b in zip(w1[token], row)) for row in w2]
            row = [logit + gain for logit, gain in zip(logits[depth], gains)]
            total = log(sum(exp(value) for value in row))
            expected.append([value - total for value in row])
        return torch.tensor(logits), torch.tensor(w1), torch.tensor(w2), tokens, depths, expected

    def numbers(random, rows, columns):
        return [[random.randint(-24, 24) / 8 for _ in range(columns)] for _ in range(rows)]

    def world(random):
        """A block of random logits, one token of which is sometimes outside its vocabulary."""
        deep = random.randint(1, 5)
        size = random.randint(2, 7)
        rank = random.randint(1, 3)
        logits = numbers(random, deep, size)
        if random.random() < 0.3:
            for row in logits:
                row[0] = float("-inf")
        nodes = range(random.randint(1, 6))
        tokens = [random.randrange(size) for _ in nodes]
        depths = [random.randrange(deep) for _ in nodes]
        return case(logits, numbers(random, size, rank), numbers(random, size, rank), tokens, depths)

    logits = [[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]
    w1 = [[1.0], [0.0], [-1.0]]
    w2 = [[2.0], [0.0], [1.0]]
    cases = []
    for tokens, depths in [([1], [0]), ([0, 2], [0, 0]), ([0, 0], [0, 1]), ([2, 1, 0], [1, 0, 1])]:
        cases.append(case(logits, w1, w2, tokens, depths))
    check("B", answer, cases, worlds=world, seed=seed)
