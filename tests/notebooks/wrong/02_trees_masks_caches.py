# %% the parent is the first node that is seen
parents_of = solution.replace("max((other for other in range(node) if row[other]), default=-1)", "row.index(True) if node else -1")

# %% the parent is as many nodes up as are seen
parents_of = solution.replace("max((other for other in range(node) if row[other]), default=-1)", "sum(row) - 2")

# %% every mask is a tree's
parents_of = solution.replace("list(row) != expected or (parent < 0) != (node == 0)", "False")

# %% a node only has to see itself
parents_of = solution.replace("list(row) != expected or", "not row[node] or")

# %% what is seen of later nodes is not looked at
parents_of = solution.replace("list(row) != expected", "list(row)[: node + 1] != expected[: node + 1]")

# %% a second root is taken for one
parents_of = solution.replace(" or (parent < 0) != (node == 0)", "")

# %% a causal mask is no tree's
def parents_of(mask):
    parents = []
    for node, row in enumerate(mask):
        parent = max((other for other in range(node) if row[other]), default=-1)
        expected = list(mask[parent]) if parent >= 0 else [False] * len(mask)
        expected[node] = True
        if list(row) != expected or (parent < 0) != (node == 0) or node > 2 and all(row[: node + 1]):
            return None
        parents.append(parent)
    return parents


# %% the grandparent may be hidden
def parents_of(mask):
    parents = []
    for node, row in enumerate(mask):
        seen = [other for other in range(len(mask)) if row[other] and other != node]
        if not row[node] or max(seen, default=-1) > node or bool(seen) != bool(node):
            return None
        parents.append(max(seen, default=-1))
    return parents


# %% all that moves or stays is called moved
def commit_of(prefix_length, accepted):
    kept = [prefix_length + node for node in (0, *accepted)]
    return kept, list(zip(kept, range(prefix_length, prefix_length + len(kept)), strict=True))


# %% the root is dropped
def commit_of(prefix_length, accepted):
    kept = [prefix_length + node for node in accepted]
    goals = range(prefix_length, prefix_length + len(kept))
    return kept, [(slot, goal) for slot, goal in zip(kept, goals, strict=True) if slot != goal]


# %% the prefix is forgotten
def commit_of(prefix_length, accepted):
    kept = [0, *accepted]
    return kept, [(slot, goal) for goal, slot in enumerate(kept) if slot != goal]


# %% slots move one place too far
def commit_of(prefix_length, accepted):
    kept = [prefix_length + node for node in (0, *accepted)]
    goals = range(prefix_length + 1, prefix_length + 1 + len(kept))
    return kept, [(slot, goal) for slot, goal in zip(kept, goals, strict=True) if slot != goal]


# %% to and from exchanged
commit_of = solution.replace(
    "slot, goal) for slot, goal in zip(kept, goals", "goal, slot) for slot, goal in zip(kept, goals, strict=True"
)

# %% a wrong slot for the last node
def commit_of(prefix_length, accepted):
    kept = [prefix_length + node for node in (0, *accepted)]
    kept[-1] = prefix_length + len(accepted)
    goals = range(prefix_length, prefix_length + len(kept))
    return kept, [(slot, goal) for slot, goal in zip(kept, goals, strict=True) if slot != goal]


# %% the slots where they go, in place of those where they are
def commit_of(prefix_length, accepted):
    goals = list(range(prefix_length, prefix_length + 1 + len(accepted)))
    slots = [prefix_length + node for node in (0, *accepted)]
    return goals, [(slot, goal) for slot, goal in zip(slots, goals, strict=True) if slot != goal]


# %% the newest accepted token is taken for the bonus, which has no slot
def commit_of(prefix_length, accepted):
    kept = [prefix_length + node for node in (0, *accepted[:-1])]
    goals = range(prefix_length, prefix_length + len(kept))
    return kept, [(slot, goal) for slot, goal in zip(kept, goals, strict=True) if slot != goal]


# %% without max_depth
expandable = solution.replace('depth >= settings["max_depth"] or path_prob', "path_prob")

# %% without deep_probability
def expandable(depth, path_prob, settings):
    return depth < settings["max_depth"] and path_prob >= settings["stop_probability"]


# %% without stop_probability
def expandable(depth, path_prob, settings):
    if depth >= settings["max_depth"]:
        return False
    return depth < settings["base_depth"] or path_prob >= settings["deep_probability"]


# %% max_depth itself passes
expandable = solution.replace("depth >= settings", "depth > settings")

# %% base_depth itself is not deep
expandable = solution.replace("depth < settings", "depth <= settings")

# %% a probability equal to its threshold is stopped
expandable = solution.replace("path_prob < settings", "path_prob <= settings")

# %% deep_probability asked of every node
expandable = solution.replace('depth < settings["base_depth"] or path_prob', "path_prob")

# %% a probable path may pass max_depth
def expandable(depth, path_prob, settings):
    if path_prob >= settings["deep_probability"]:
        return True
    return depth < settings["base_depth"] and path_prob >= settings["stop_probability"]


# %% base_depth ends every path
def expandable(depth, path_prob, settings):
    return depth < settings["base_depth"] and path_prob >= settings["stop_probability"]


# %% the settings that the run began with, whatever is in force
expandable = solution.replace(
    'settings["max_depth"] or path_prob < settings["stop_probability"]', "5 or path_prob < 0.02"
).replace('settings["base_depth"] or path_prob >= settings["deep_probability"]', "3 or path_prob >= 0.05")

# %% the token's probability in place of its path's
pruned = solution.replace("        path[node] *= path[parents[node]]\n", "")

# %% parents keep their old numbers
pruned = solution.replace("kept.index(parents[node])", "parents[node]")

# %% a probability equal to the threshold is dropped
pruned = solution.replace("path[node] >= threshold", "path[node] > threshold")

# %% only the leaves of the whole tree are dropped
pruned = solution.replace("path[node] >= threshold", "path[node] >= threshold or node in parents")

# %% the root is dropped
pruned = solution.replace(
    "kept, [-1, *(kept.index(parents[node]) for node in kept[1:])]",
    "kept[1:], [kept.index(parents[node]) for node in kept[1:]]",
)

# %% the sum of probabilities in place of the product
pruned = solution.replace("path[node] *=", "path[node] +=")

# %% sorted by probability
pruned = solution.replace("    return kept,", "    kept.sort(key=lambda node: -path[node])\n    return kept,")

# %% what is dropped is given
pruned = solution.replace("path[node] >= threshold", "path[node] < threshold")
