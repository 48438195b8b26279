# %% the prompt's last token is read again for the first new one
def greedy(model, prompt, count):
    cache, written = DynamicCache(), []
    read(model, prompt, cache)
    token = prompt[-1]
    while len(written) < count:
        token = int(read(model, [token], cache)[-1].argmax())
        written.append(token)
    return written


# %% the whole text is read in every pass
def greedy(model, prompt, count):
    text = list(prompt)
    while len(text) < len(prompt) + count:
        text.append(int(read(model, text, DynamicCache())[-1].argmax()))
    return text[len(prompt) :]


# %% the prompt is returned too
def greedy(model, prompt, count):
    cache, text, unread = DynamicCache(), list(prompt), list(prompt)
    while len(text) < len(prompt) + count:
        unread = [int(read(model, unread, cache)[-1].argmax())]
        text += unread
    return text


# %% the first row of logits
greedy = solution.replace("-1", "0")

# %% one pass too many
greedy = solution.replace("while len(written) < count", "for _ in range(count + 1)").replace(
    "return written", "return written[:count]"
)

# %% a new cache for each pass, of one token
greedy = solution.replace("cache, written, unread = DynamicCache(),", "written, unread =").replace(
    "cache", "DynamicCache()"
)

# %% the least probable token
greedy = solution.replace("argmax", "argmin")

# %% without the bonus
accepted_chain = solution.replace("return choice[: right + 1]", "return choice[:right]")

# %% the bonus is always the last row's
accepted_chain = solution.replace("return choice[: right + 1]", "return [*drafted[:right], choice[-1]]")

# %% goes on after the first difference
def accepted_chain(drafted, choice):
    right = [token for token, chosen in zip(drafted, choice) if token == chosen]
    return [*right, choice[len(right)]]


# %% every agreement counts
def accepted_chain(drafted, choice):
    return choice[: 1 + sum(token == chosen for token, chosen in zip(drafted, choice))]


# %% rows are taken one too late
accepted_chain = solution.replace(
    "while right < len(drafted) and drafted[right] == choice[right]:",
    "while right < len(drafted) and drafted[right] == choice[right + 1]:",
).replace("return choice[: right + 1]", "return [*drafted[:right], choice[right]]")

# %% the rejected token is committed
accepted_chain = solution.replace("return choice", "return [*drafted, choice[-1]]")

# %% no bonus after a chain that is accepted whole
def accepted_chain(drafted, choice):
    for i, token in enumerate(drafted):
        if token != choice[i]:
            return choice[: i + 1]
    return drafted


# %% all or nothing
def accepted_chain(drafted, choice):
    return choice if drafted == choice[:-1] else choice[:1]


# %% membership in place of order
accepted_chain = solution.replace("== choice[right]", "in choice")

# %% the draft's cache is not cut
chain_iteration = solution.replace(
    "for cache in (target_cache, draft_cache):\n        cut(cache, len(text) + len(committed) - 1)",
    "cut(target_cache, len(text) + len(committed) - 1)",
)

# %% the target's cache is not cut
chain_iteration = solution.replace(
    "for cache in (target_cache, draft_cache):\n        cut(cache, len(text) + len(committed) - 1)",
    "cut(draft_cache, len(text) + len(committed) - 1)",
)

# %% one row too many stays
chain_iteration = solution.replace(
    "cut(cache, len(text) + len(committed) - 1)", "cut(cache, len(text) + len(committed))"
)

# %% one row too few stays
chain_iteration = solution.replace(
    "cut(cache, len(text) + len(committed) - 1)", "cut(cache, len(text) + len(committed) - 2)"
)

# %% the newest token is left out of verification
chain_iteration = solution.replace("[text[-1], *drafted]", "drafted")

# %% the draft reads the newest token alone, and lacks those before it
chain_iteration = solution.replace(
    "drafted, unread = [], text[draft_cache.get_seq_length() :]",
    "drafted, unread = [], text[-1:] if draft_cache.get_seq_length() else text",
)

# %% one pass of the target for each token
chain_iteration = solution.replace(
    "read(target, [text[-1], *drafted], target_cache).argmax(-1).tolist()",
    "[int(read(target, [token], target_cache)[-1].argmax()) for token in (text[-1], *drafted)]",
)

# %% the caches go back to before the iteration
chain_iteration = solution.replace("cut(cache, len(text) + len(committed) - 1)", "cut(cache, len(text) - 1)")

# %% the target drafts for itself
chain_iteration = solution.replace(
    "unread = [int(read(draft, unread, draft_cache)[-1].argmax())]",
    "unread = [int(read(target, unread, draft_cache)[-1].argmax())]",
)

# %% the residual is left as p
def verified_token(p, q, token, u, v):
    if u < min(1, p[token] / q[token]):
        return token
    return int((p.cumsum(0) > v).nonzero()[0])


# %% the residual is what q has more than p
verified_token = solution.replace("p - q", "q - p")

# %% the residual is |p − q|
verified_token = solution.replace("left = (p - q).clamp(min=0)", "left = (p - q).abs()")

# %% p without the rejected token
verified_token = solution.replace("(p - q).clamp(min=0)", "p.clone()\n    left[token] = 0")

# %% the ratio upside down
verified_token = solution.replace(
    "if u < min(1, p[token] / q[token]):", "if p[token] > 0 and u < min(1, q[token] / p[token]):"
)

# %% kept with probability p
verified_token = solution.replace("min(1, p[token] / q[token])", "p[token]").replace(
    "return int(((left / left.sum()).cumsum(0) > v).nonzero()[0])",
    "return int(((left / left.sum()).cumsum(0) > v).nonzero()[0]) if left.sum() > 0 else token",
)

# %% the residual's most probable token
def verified_token(p, q, token, u, v):
    if u < min(1, p[token] / q[token]):
        return token
    return int((p - q).argmax())


# %% the residual does not add up to 1
verified_token = solution.replace(
    "return int(((left / left.sum()).cumsum(0) > v).nonzero()[0])",
    "over = (left.cumsum(0) > v).nonzero()\n    return int(over[0]) if len(over) else 2",
)

# %% kept where p is at least q, else replaced
verified_token = solution.replace("u < min(1, p[token] / q[token])", "p[token] >= q[token]")

# %% one random number for both
verified_token = solution.replace(
    "return int(((left / left.sum()).cumsum(0) > v).nonzero()[0])",
    "return int(((left / left.sum()).cumsum(0) > u).nonzero()[0])",
)

# %% siblings are seen
def tree_inputs(parents, prefix):
    sees = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            sees[node] |= sees[parent]
    places = prefix + sees.sum(1) - 1
    for node, parent in enumerate(parents):
        sees[node, [other for other in range(node) if parents[other] == parent]] = True
    return places, torch.cat([torch.ones(len(parents), prefix, dtype=torch.bool), sees], 1)


# %% a triangle, as for a text
tree_inputs = solution.replace(
    "before = torch.ones(len(parents), prefix, dtype=torch.bool)\n    return prefix + sees.sum(1) - 1, torch.cat([before, sees], 1)",
    "triangle = torch.ones(len(parents), prefix + len(parents), dtype=torch.bool).tril(prefix)\n    return prefix + sees.sum(1) - 1, triangle",
)

# %% positions counted on
tree_inputs = solution.replace("sees.sum(1) - 1", "torch.arange(len(parents))")

# %% positions one too far
tree_inputs = solution.replace(
    "before = torch.ones(len(parents), prefix, dtype=torch.bool)\n    return prefix + sees.sum(1) - 1, torch.cat([before, sees], 1)",
    "return prefix + sees.sum(1), torch.cat([torch.ones(len(parents), prefix, dtype=torch.bool), sees], 1)",
)

# %% positions without the prefix
tree_inputs = solution.replace(
    "before = torch.ones(len(parents), prefix, dtype=torch.bool)\n    return prefix + sees.sum(1) - 1, torch.cat([before, sees], 1)",
    "return sees.sum(1) - 1, torch.cat([torch.ones(len(parents), prefix, dtype=torch.bool), sees], 1)",
)

# %% the parent alone, not all ancestors
def tree_inputs(parents, prefix):
    sees, depth = torch.eye(len(parents), dtype=torch.bool), [0] * len(parents)
    for node, parent in enumerate(parents):
        if parent >= 0:
            sees[node, parent] = True
            depth[node] = depth[parent] + 1
    before = torch.ones(len(parents), prefix, dtype=torch.bool)
    return prefix + torch.tensor(depth), torch.cat([before, sees], 1)


# %% a node does not see itself
def tree_inputs(parents, prefix):
    sees = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            sees[node] |= sees[parent]
    places = prefix + sees.sum(1) - 1
    sees &= ~torch.eye(len(parents), dtype=torch.bool)
    return places, torch.cat([torch.ones(len(parents), prefix, dtype=torch.bool), sees], 1)


# %% rows and columns exchanged
tree_inputs = solution.replace(
    "return prefix + sees.sum(1) - 1, torch.cat([before, sees], 1)",
    "return prefix + sees.sum(1) - 1, torch.cat([before, sees.T], 1)",
)

# %% without the prefix's columns
tree_inputs = solution.replace(
    "before = torch.ones(len(parents), prefix, dtype=torch.bool)\n    return prefix + sees.sum(1) - 1, torch.cat([before, sees], 1)",
    "return prefix + sees.sum(1) - 1, sees",
)

# %% the first node above is taken for the parent of its level
tree_inputs = solution.replace(
    "sees[node] |= sees[parent]", "sees[node] |= sees[parents.index(parent)] if parent else sees[0]"
)

# %% without the root
def gather(cache, prefix, path):
    kept = torch.tensor([*range(prefix), *(prefix + node for node in path)])
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys.index_select(2, kept), layer.values.index_select(2, kept)
    return cache


# %% values are forgotten
gather = solution.replace(
    "layer.keys = layer.keys.index_select(2, kept)\n        layer.values = layer.values.index_select(2, kept)",
    "layer.keys = layer.keys.index_select(2, kept)",
)

# %% cut at the end
def gather(cache, prefix, path):
    cut(cache, prefix + 1 + len(path))
    return cache


# %% without the prefix's length
def gather(cache, prefix, path):
    kept = torch.tensor([*range(prefix), *(0, *path)])
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys.index_select(2, kept), layer.values.index_select(2, kept)
    return cache


# %% the first layer alone
def gather(cache, prefix, path):
    kept = torch.tensor([*range(prefix), *(prefix + node for node in (0, *path))])
    layer = cache.layers[0]
    layer.keys, layer.values = layer.keys.index_select(2, kept), layer.values.index_select(2, kept)
    return cache


# %% nodes counted without the root
def gather(cache, prefix, path):
    kept = torch.tensor([*range(prefix), *(prefix + max(node - 1, 0) for node in (0, *path))])
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys.index_select(2, kept), layer.values.index_select(2, kept)
    return cache


# %% the path alone, without the prefix
def gather(cache, prefix, path):
    kept = torch.tensor([prefix + node for node in (0, *path)])
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys.index_select(2, kept), layer.values.index_select(2, kept)
    return cache


# %% values take the keys' place
gather = solution.replace("values.index_select(2, kept)", "keys")

# %% any node that carries the token
accept_path = solution.replace("parents[node] == at and tokens", "tokens")

# %% the first child alone is tried
def accept_path(tokens, parents, choice):
    path, at = [], 0
    while at in parents and tokens[parents.index(at)] == choice[at]:
        at = parents.index(at)
        path.append(at)
    return path


# %% with the root
def accept_path(tokens, parents, choice):
    path = [0]
    for node in range(1, len(tokens)):
        if parents[node] == path[-1] and tokens[node] == choice[path[-1]]:
            path.append(node)
    return path


# %% a node's own choice in place of its parent's
accept_path = solution.replace(
    "if parents[node] == at and tokens[node] == choice[at]:", "if parents[node] == at and tokens[node] == choice[node]:"
)

# %% tokens in place of nodes
accept_path = solution.replace("path.append(node)", "path.append(tokens[node])")

# %% every node that its parent's row agrees with, on the path or not
def accept_path(tokens, parents, choice):
    return [node for node in range(1, len(tokens)) if tokens[node] == choice[parents[node]]]


# %% one level alone
def accept_path(tokens, parents, choice):
    return [node for node in range(1, len(tokens)) if parents[node] == 0 and tokens[node] == choice[0]]


# %% the root's choice for every level
accept_path = solution.replace(
    "if parents[node] == at and tokens[node] == choice[at]:", "if parents[node] == at and tokens[node] == choice[0]:"
)

# %% the deepest node that is right, whatever is above it
def accept_path(tokens, parents, choice):
    right = [node for node in range(1, len(tokens)) if tokens[node] == choice[parents[node]]]
    path, node = [], right[-1] if right else 0
    while node:
        path.insert(0, node)
        node = parents[node]
    return path
