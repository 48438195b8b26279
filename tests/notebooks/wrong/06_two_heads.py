# %% the root counts as a node
mean_confidence = solution.replace("sums[1:]", "sums")

# %% each node's own probability, not its path's
def mean_confidence(parents, log_probs):
    return float(np.mean(np.exp(log_probs[1:]))) if len(log_probs) > 1 else 0.0


# %% the exponential of the mean
mean_confidence = solution.replace(
    "return float(np.mean(np.exp(sums[1:]))) if len(sums) > 1 else 0.0",
    "return float(np.exp(np.mean(sums[1:]))) if len(sums) > 1 else 0.0",
)

# %% the sum, not the mean
mean_confidence = solution.replace(
    "return float(np.mean(np.exp(sums[1:]))) if len(sums) > 1 else 0.0", "return float(np.sum(np.exp(sums[1:])))"
)

# %% the parent's own log-probability in place of its path's
def mean_confidence(parents, log_probs):
    paths = [log_probs[parent] + own for parent, own in zip(parents[1:], log_probs[1:], strict=True)]
    return float(np.mean(np.exp(paths))) if paths else 0.0


# %% leaves alone
mean_confidence = solution.replace(
    "return float(np.mean(np.exp(sums[1:]))) if len(sums) > 1",
    "leaves = [sums[node] for node in range(1, len(sums)) if node not in parents]\n    return float(np.mean(np.exp(leaves))) if leaves",
)

# %% every node hangs from the one before it
def mean_confidence(parents, log_probs):
    return float(np.mean(np.exp(np.cumsum(log_probs[1:])))) if len(log_probs) > 1 else 0.0


# %% a root alone has the mean 1
mean_confidence = solution.replace("else 0", "else 1")

# %% divided by all nodes
mean_confidence = solution.replace(
    "return float(np.mean(np.exp(sums[1:]))) if len(sums) > 1 else 0.0",
    "return float(np.sum(np.exp(sums[1:]))) / len(sums)",
)

# %% nodes with the same path stay apart
def merged(one, two):
    tokens, parents = one.token.tolist(), one.parent.tolist()
    at = [0]
    for node in range(1, len(two)):
        at.append(len(tokens))
        tokens.append(int(two.token[node]))
        parents.append(at[two.parent[node]])
    return speclab.DraftTree.grown(tokens, parents, [0.0] * len(tokens), ["both"] * len(tokens))[0]


# %% one node for each token
def merged(one, two):
    tokens, parents, place = [int(one.token[0])], [-1], {}
    for tree in (one, two):
        at = [0]
        for node in range(1, len(tree)):
            key = int(tree.token[node])
            if key not in place:
                place[key] = len(tokens)
                tokens.append(key)
                parents.append(at[tree.parent[node]])
            at.append(place[key])
    return speclab.DraftTree.grown(tokens, parents, [0.0] * len(tokens), ["both"] * len(tokens))[0]


# %% one node for each token of a depth
def merged(one, two):
    tokens, parents, place = [int(one.token[0])], [-1], {}
    for tree in (one, two):
        at = [0]
        for node in range(1, len(tree)):
            key = int(tree.depth[node]), int(tree.token[node])
            if key not in place:
                place[key] = len(tokens)
                tokens.append(key[1])
                parents.append(at[tree.parent[node]])
            at.append(place[key])
    return speclab.DraftTree.grown(tokens, parents, [0.0] * len(tokens), ["both"] * len(tokens))[0]


# %% the parent's place in its own tree, not in the merged one
def merged(one, two):
    tokens, parents, place = [int(one.token[0])], [-1], {}
    for tree in (one, two):
        for node in range(1, len(tree)):
            key = int(tree.parent[node]), int(tree.token[node])
            if key not in place and key[0] < len(tokens):
                place[key] = len(tokens)
                tokens.append(key[1])
                parents.append(key[0])
    return speclab.DraftTree.grown(tokens, parents, [0.0] * len(tokens), ["both"] * len(tokens))[0]


# %% what both trees have
def merged(one, two):
    def paths(tree):
        return {tuple(tree.token[list(tree.path(node))].tolist()) for node in range(len(tree))}

    both = sorted(paths(one) & paths(two), key=len)
    parents = [both.index(path[:-1]) if len(path) > 1 else -1 for path in both]
    tokens = [path[-1] for path in both]
    return speclab.DraftTree.grown(tokens, parents, [0.0] * len(tokens), ["both"] * len(tokens))[0]


# %% the larger tree
def merged(one, two):
    return max(one, two, key=len)


# %% merged at the root's children alone
merged = solution.replace("at = [0]  # for each node of this tree, its place in the merged one", "at = [0]").replace(
    "if key", "if key[0] != 0 or key"
)

# %% the paper's own rule
choose = solution.replace("sum(margins[-3:])", "margins[-1]")

# %% the paper's rule upside down
choose = solution.replace("<", ">")

# %% always the first head
choose = solution.replace("int(sum(margins[-3:]) < 0)", "0")

# %% always the second head
choose = solution.replace("int(sum(margins[-3:]) < 0)", "1")

# %% all margins: never notices a change in time
choose = solution.replace("margins[-3:]", "margins")

# %% stays with the first choice for ever
choose = solution.replace("sum(margins[-3:])", "margins[0]")

# %% the margin before the last
choose = solution.replace("sum(margins[-3:])", "margins[-2:][0]")

# %% the last two: one odd margin may be enough
choose = solution.replace("return int(sum(margins[-3:]) < 0)", "return int(min(margins[-2:]) < 0)")

# %% the largest margin decides
choose = solution.replace("return int(sum(margins[-3:]) < 0)", "return int(max(margins, key=abs) < 0)")

# %% a vote of all margins
choose = solution.replace("sum(margins[-3:]) < 0", "2 * sum(margin < 0 for margin in margins) > len(margins)")
