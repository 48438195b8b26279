# %% the oldest occurrence in place of the latest
copied_tokens = solution.replace("len(tokens) - 1, length - 1, -1", "length, len(tokens)")

# %% the end of the text counts as an occurrence
copied_tokens = solution.replace(
    "for end in range(len(tokens) - 1, length - 1, -1):", "for end in range(len(tokens), length - 1, -1):"
)

# %% no limit
copied_tokens = solution.replace("end : end + limit", "end:")

# %% copies the occurrence itself
copied_tokens = solution.replace("end : end", "end - length : end - length")

# %% one token late
copied_tokens = solution.replace("end : end", "end + 1 : end + 1")

# %% falls back to shorter n-grams
def copied_tokens(tokens, length, limit):
    for size in range(min(length, len(tokens)), 0, -1):
        for end in range(len(tokens) - 1, size - 1, -1):
            if tokens[end - size : end] == tokens[-size:]:
                return tokens[end : end + limit]
    return []


# %% the occurrence may not overlap the end
copied_tokens = solution.replace("- 1, length", "- length, length")

# %% the last token alone is compared
copied_tokens = solution.replace("length : end] == tokens[-length:", "1] == tokens[-1")

# %% given out evenly
def whole_widths(p_s, p_t, length, budget):
    return [budget // length + (i < budget % length) for i in range(length)]


# %% all at the root
def whole_widths(p_s, p_t, length, budget):
    return [budget] + [0] * (length - 1)


# %% the straight line, rounded: they do not add up
def whole_widths(p_s, p_t, length, budget):
    from speclab.theory import optimal_widths

    return [round(width) for width in optimal_widths(p_s, p_t, length, budget)]


# %% how often a branch succeeds is left out
whole_widths = solution.replace("* (1 - p_t) ** k", "/ (k + 1)")

# %% the rates exchanged
whole_widths = solution.replace(
    "gain = [p_s**i * (1 - p_t) ** k for i, k in enumerate(widths)]",
    "gain = [p_t**i * (1 - p_s) ** k for i, k in enumerate(widths)]",
)

# %% to the node where breaking is most probable after all: the end
whole_widths = solution.replace("p_s**i", "(1 - p_s**i)")

# %% harmonic, as speclab's default
def whole_widths(p_s, p_t, length, budget):
    total = sum(1 / place for place in range(1, length + 1))
    widths = [int(budget / place / total) for place in range(1, length + 1)]
    widths[0] += budget - sum(widths)
    return widths


# %% every accepted guess
def saved_tokens(step):
    return sum(step.tree.source[node] == "transition" for node in step.accepted)


# %% refused or not
def saved_tokens(step):
    path = [step.tree.source[node] for node in step.accepted]
    return path.count("transition") if "context" in path else 0


# %% what was not reached counts as refused
def saved_tokens(step):
    source, path = step.tree.source, [step.tree.source[node] for node in step.accepted]
    refused = any(node.verdict != "accepted" and source[node.index] == "context" for node in step.nodes)
    return path.count("transition") if refused and "context" in path else 0


# %% a spine that was refused at once counts
def saved_tokens(step):
    source, path = step.tree.source, [step.tree.source[node] for node in step.accepted]
    refused = any(node.verdict == "rejected" and source[node.index] == "context" for node in step.nodes)
    return path.count("transition") if refused else 0


# %% the whole path
def saved_tokens(step):
    source, path = step.tree.source, [step.tree.source[node] for node in step.accepted]
    refused = any(node.verdict == "rejected" and source[node.index] == "context" for node in step.nodes)
    return len(path) if refused and {"context", "transition"} <= set(path) else 0


# %% any refused token
def saved_tokens(step):
    path = [step.tree.source[node] for node in step.accepted]
    refused = any(node.verdict == "rejected" for node in step.nodes)
    return path.count("transition") if refused and "context" in path else 0


# %% iterations, not tokens
def saved_tokens(step):
    source, path = step.tree.source, [step.tree.source[node] for node in step.accepted]
    refused = any(node.verdict == "rejected" and source[node.index] == "context" for node in step.nodes)
    return int(refused and {"context", "transition"} <= set(path))
