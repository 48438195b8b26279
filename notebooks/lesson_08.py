"""Lesson 8: what measures a strategy, and the tests of its exercises."""

import torch
from torch import nn

import speclab
from speclab import Context, Draft, Drafter, DraftTree, Strategy
from speclab.course import check


def one_path(context, tokens, source):
    """A draft of one path. The log-probability 0 means unknown."""
    tokens = list(tokens)[: context.max_depth]
    size = len(tokens) + 1
    return Draft(DraftTree.of([context.tokens[-1], *tokens], range(-1, size - 1), [0.0] * size, source))


def refusals(pair):
    """What the engine says of four bad drafts: another root, no such token, no draft, another order."""

    def another_root(context):
        return Draft(DraftTree.root(42))

    def no_such_token(context):
        return one_path(context, [5000], "bad")

    def no_draft(context):
        return DraftTree.root(context.tokens[-1])

    def order(context):
        return Draft(DraftTree.of([context.tokens[-1], 7, 8, 9], [-1, 0, 1, 0], [0.0] * 4, "bad"))

    class Bad(Strategy):
        """Drafts what no pass can verify."""

        def drafter(self, pair):
            return BadDrafter(self)

    class BadDrafter(Drafter):
        def draft(self, context):
            return bad(context)

    said = {}
    for bad in (another_root, no_such_token, no_draft, order):
        try:
            speclab.Session(pair, Bad(), "Once", max_new_tokens=4).step()
        except speclab.SpeclabError as error:
            said[bad.__name__] = str(error)
    return said


def compared(replayers, strategies):
    """For each name: mean tokens per iteration, nodes per iteration, draft passes per iteration."""
    print(f"{'':18} stories ...... programs ..... mean nodes draft passes")
    means = {}
    for name, strategy in strategies.items():
        replays = [text.replay(strategy) for text in replayers]
        tokens = [one.tokens_per_iteration for one in replays]
        nodes = [sum(each.nodes for each in one.passes) / one.iterations for one in replays]
        calls = [one.draft_calls / one.iterations for one in replays]
        means[name] = tuple(sum(column) / len(replays) for column in (tokens, nodes, calls))
        print(f"{name!s:18}", *(f"{value:.2f}" for value in (*tokens, *means[name])))
    return means


def _layer(model):
    """The first decoder layer of a model."""
    return next(module for name, module in model.named_modules() if name.endswith("layers.0"))


def _target_passes(pair, strategy, prompt):
    """Iterations and the prompt's pass; and how often a layer with the target's weights ran, in any model."""
    original = _layer(pair.target.model)
    weights = next(original.parameters())
    passes = []

    def seen(module, *_):
        if type(module) is type(original) and torch.equal(next(module.parameters()).float(), weights):
            passes.append(module)

    hook = nn.modules.module.register_module_forward_pre_hook(seen)
    try:
        run = speclab.generate(pair, strategy, prompt, max_new_tokens=16)
    finally:
        hook.remove()
    return run.metrics.iterations + 1, len(passes)


def A(answer, seed=0):
    """Trees of paths, as two columns."""

    def both(answer, root, paths):
        tokens, parents = answer(root, paths)
        return {"tokens": tokens, "parents": parents}

    def case(root, paths, tokens, parents):
        return root, paths, {"tokens": tokens, "parents": parents}

    def world(random):
        """Random paths; each level is sorted by its parents, siblings in the order of the paths."""
        paths = []
        for _ in range(random.randint(0, 6)):
            paths.append(random.choices((4, 5, 6, 1001), k=random.randint(0, 5)))
        nodes = [()]
        level = [()]
        while level:
            size = len(level[0]) + 1
            longer = [tuple(path[:size]) for path in paths if len(path) >= size]
            level = sorted(dict.fromkeys(longer), key=lambda node: nodes.index(node[:-1]))
            nodes += level
        root = random.choice((1, 4))
        tokens = [root, *(node[-1] for node in nodes[1:])]
        return case(root, paths, tokens, [-1, *(nodes.index(node[:-1]) for node in nodes[1:])])

    cases = [
        case(1, [], [1], [-1]),
        case(1, [[4, 5, 6]], [1, 4, 5, 6], [-1, 0, 1, 2]),
        case(1, [[4, 5], [4, 6]], [1, 4, 5, 6], [-1, 0, 1, 1]),
        case(1, [[4, 7, 8], [5, 7]], [1, 4, 5, 7, 7, 8], [-1, 0, 0, 1, 2, 3]),
        case(1, [[9], [4, 9], [9, 9]], [1, 9, 4, 9, 9], [-1, 0, 0, 1, 2]),
        case(1, [[4, 5], [6], [4], [4, 5]], [1, 4, 6, 5], [-1, 0, 0, 1]),
        case(1, [[8, 2], [3, 2, 1], [3, 4]], [1, 8, 3, 2, 2, 4, 1], [-1, 0, 0, 1, 2, 2, 4]),
        case(
            1,
            [[8, 2, 2, 2, 6], [3, 5], [8, 2, 2, 7]],
            [1, 8, 3, 2, 5, 2, 2, 7, 6],
            [-1, 0, 0, 1, 2, 3, 5, 5, 6],
        ),
    ]
    check("A", answer, cases, through=both, worlds=world, seed=seed)


def B(answer, pair, replayers, prompts, seed=0):
    """A strategy that beats the chain, and drafts no deeper than it may; prints the line of its score."""
    chain = speclab.LinearSpeculation(draft_tokens=5)

    def beats_chain(answer, prompt=None, max_depth=None):
        """With a prompt, only how deep it drafts there."""
        mine = answer()
        assert isinstance(mine, Strategy), f"expected an instance of a strategy, got {mine!r}"
        if prompt is not None:
            drawn = mine.drafter(pair.fresh()).draft(Context(prompt, max_depth, lambda: None)).tree
            return int(drawn.depth.max()) <= max_depth
        expected, got = _target_passes(pair, mine, prompts[0])
        assert got == expected, (
            f"expected {expected} passes of the target, one per iteration and the prompt's, got {got}"
        )
        means = compared(replayers, {"yours": mine, "chain": chain})
        tokens, nodes, calls = means["yours"]
        bar = means["chain"][0]
        assert max(nodes - 6, calls - 5) <= 0, (
            f"expected at most 6 nodes and 5 draft passes, got {nodes:.2f}, {calls:.2f}"
        )
        assert tokens > bar, f"expected more than {bar:.3f} tokens per iteration, got {tokens:.3f}"
        sums = {mine: 0.0, chain: 0.0}
        for kind in ("prose", "code"):
            other = speclab.prompts.examples(kind)[3].text
            for way in sums:
                run = speclab.Session(pair, way, other, max_new_tokens=32, check=way is mine)
                run.run()
                sums[way] += run.metrics.tokens_per_iteration
        assert sums[mine] >= sums[chain], f"two other texts: expected at least {sums[chain]:.2f}, got {sums[mine]:.2f}"
        return True

    def world(random):
        """The beginning of a text, and how deep a tree after it may be."""
        tokens = pair.tokenizer.encode(random.choice(prompts))
        return tokens[: random.randint(2, 12)], random.randint(1, 5), True

    check("B", answer, [(None, None, True)], through=beats_chain, worlds=world, seed=seed, limit=60)
