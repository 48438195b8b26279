# %% one node per token of every path: nothing is shared
def columns(root, paths):
    tokens, parents, depth = [root], [-1], [0]
    for path in paths:
        above = 0
        for token in path:
            tokens.append(token)
            parents.append(above)
            depth.append(depth[above] + 1)
            above = len(tokens) - 1
    order = sorted(range(len(tokens)), key=lambda node: (depth[node], node))
    place = {node: at for at, node in enumerate(order)} | {-1: -1}
    return [tokens[node] for node in order], [place[parents[node]] for node in order]


# %% depth-first: one path after the other
def columns(root, paths):
    place, tokens, parents = {(): 0}, [root], [-1]
    for path in paths:
        for end in range(1, len(path) + 1):
            prefix = tuple(path[:end])
            if prefix not in place:
                place[prefix] = len(tokens)
                tokens.append(prefix[-1])
                parents.append(place[prefix[:-1]])
    return tokens, parents


# %% a token is one node, wherever it occurs
def columns(root, paths):
    tokens, parents = [root], [-1]
    for depth in range(max(map(len, paths), default=0)):
        for path in paths:
            if depth < len(path) and path[depth] not in tokens:
                tokens.append(path[depth])
                parents.append(tokens.index(path[depth - 1]) if depth else 0)
    return tokens, parents


# %% parents are counted without the root
def columns(root, paths):
    children = {(): []}
    for path in paths:
        for end in range(1, len(path) + 1):
            prefix = tuple(path[:end])
            if prefix not in children:
                children[prefix] = []
                children[prefix[:-1]].append(prefix)
    order = [()]
    for prefix in order:
        order += children[prefix]
    place = {prefix: node - 1 for node, prefix in enumerate(order)}
    return [root, *(prefix[-1] for prefix in order[1:])], [-1, *(place[prefix[:-1]] for prefix in order[1:])]


# %% level by level, but the children of a parent are not together
def columns(root, paths):
    place, tokens, parents = {(): 0}, [root], [-1]
    for end in range(1, max(map(len, paths), default=0) + 1):
        for path in paths:
            prefix = tuple(path[:end])
            if len(prefix) == end and prefix not in place:
                place[prefix] = len(tokens)
                tokens.append(prefix[-1])
                parents.append(place[prefix[:-1]])
    return tokens, parents


# %% siblings in the order of their ids
def columns(root, paths):
    found = sorted({tuple(path[:end]) for path in paths for end in range(len(path) + 1)} | {()})
    order = [()]
    for prefix in order:
        order += [one for one in found if one and one[:-1] == prefix]
    place = {prefix: node for node, prefix in enumerate(order)}
    return [root, *(prefix[-1] for prefix in order[1:])], [-1, *(place[prefix[:-1]] for prefix in order[1:])]


# %% only the first path and what leaves it
def columns(root, paths):
    tokens, parents = [root], [-1]
    for path in paths[:1]:
        tokens += path
        parents += range(len(path))
    return tokens, parents


# %% by the node's own probability
def best(parents, probs, n):
    return sorted(sorted(range(len(probs)), key=lambda node: (-probs[node], node))[:n])


# %% n nodes beside the root
best = solution.replace(":n", ": n + 1")

# %% the parent's own probability, not its path's
def best(parents, probs, n):
    path = [prob * (probs[parent] if parent >= 0 else 1) for prob, parent in zip(probs, parents)]
    return sorted(sorted(range(len(path)), key=lambda node: (-path[node], node))[:n])


# %% not sorted
best = solution.replace(
    "return sorted(sorted(range(len(path)), key=lambda node: (-path[node], node))[:n])",
    "return sorted(range(len(path)), key=lambda node: (-path[node], node))[:n]",
)

# %% of equal nodes the higher number
best = solution.replace(
    "return sorted(sorted(range(len(path)), key=lambda node: (-path[node], node))[:n])",
    "return sorted(sorted(range(len(path)), key=lambda node: (-path[node], -node))[:n])",
)

# %% the first n, breadth-first
def best(parents, probs, n):
    return list(range(len(parents)))[:n]


# %% changes the list that it was given
def best(parents, probs, n):
    for node, parent in enumerate(parents):
        if parent >= 0:
            probs[node] *= probs[parent]
    return sorted(sorted(range(len(probs)), key=lambda node: (-probs[node], node))[:n])


# %% a greedy descent: always the best child
def best(parents, probs, n):
    kept = [0]
    while len(kept) < n:
        children = [node for node, parent in enumerate(parents) if parent == kept[-1]]
        if not children:
            break
        kept.append(max(children, key=probs.__getitem__))
    return sorted(kept)


# %% the chain itself
def my_strategy():
    return speclab.LinearSpeculation(draft_tokens=5)


# %% a longer chain: more nodes
def my_strategy():
    return speclab.LinearSpeculation(draft_tokens=6)


# %% best first as it is
def my_strategy():
    return BestFirst()


# %% more nodes
def my_strategy():
    return BestFirst(node_budget=12)


# %% the class
def my_strategy():
    return BestFirst


# %% squares without the division, which leave the order as it is
def my_strategy():
    class Mine(BestFirst):
        def weigh(self, top):
            return [(token, 2 * log_prob) for token, log_prob in top]

    return Mine()


# %% roots in place of squares
def my_strategy():
    class Mine(BestFirst):
        def weigh(self, top):
            total = log(sum(exp(log_prob / 2) for _, log_prob in top))
            return [(token, log_prob / 2 - total) for token, log_prob in top]

    return Mine()


# %% knows the six texts by heart
def my_strategy():
    known = [(*run.prompt_ids, *run.token_ids) for run in runs]

    class Mine(Strategy):
        def drafter(self, pair):
            return MineDrafter(self)

    class MineDrafter(Drafter):
        def draft(self, context):
            at = len(context.tokens)
            text = next((one for one in known if tuple(one[:at]) == tuple(context.tokens)), ())
            return chain(context, text[at : at + 5], "by heart")

    return Mine()


# %% squares, but no end to the depth where the context ends
def my_strategy():
    class Mine(BestFirst):
        def weigh(self, top):
            total = log(sum(exp(2 * log_prob) for _, log_prob in top))
            return [(token, 2 * log_prob - total) for token, log_prob in top]

        def drafter(self, pair):
            return MineDrafter(self, pair)

    class MineDrafter(BestFirstDrafter):
        def draft(self, context):
            return super().draft(Context(context.tokens, 1 << 30, context.check))

    return Mine()


# %% squares, but the draft's cache keeps other nodes than were accepted
def my_strategy():
    class Mine(BestFirst):
        def weigh(self, top):
            total = log(sum(exp(2 * log_prob) for _, log_prob in top))
            return [(token, 2 * log_prob - total) for token, log_prob in top]

        def drafter(self, pair):
            return MineDrafter(self, pair)

    class MineDrafter(BestFirstDrafter):
        def commit(self, outcome):
            pass

    return Mine()
