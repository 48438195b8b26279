# %% greedy: the prompt's last token is read twice
def greedy(model, prompt, count):
    cache, written, token = DynamicCache(), [], prompt[-1]
    read(model, prompt, cache)
    while len(written) < count:
        token = int(read(model, [token], cache)[-1].argmax())
        written.append(token)
    return written
# %% greedy: the whole text is read in every pass
def greedy(model, prompt, count):
    text = list(prompt)
    while len(text) < len(prompt) + count:
        text.append(int(read(model, text, DynamicCache())[-1].argmax()))
    return text[len(prompt) :]
# %% greedy: the prompt grows
def greedy(model, prompt, count):
    cache, length = DynamicCache(), len(prompt)
    while len(prompt) < length + count:
        prompt.append(int(read(model, prompt[cache.get_seq_length() :], cache)[-1].argmax()))
    return prompt[length:]
# %% greedy: one token where none is asked for
def greedy(model, prompt, count):
    cache = DynamicCache()
    written = [int(read(model, prompt, cache)[-1].argmax())]
    while len(written) < count:
        written.append(int(read(model, written[-1:], cache)[-1].argmax()))
    return written
# %% greedy: the first row of logits
# -1 -> 0
# %% greedy: the least probable token
# argmax -> argmin
# %% accepted_chain: without the bonus
# right + 1 -> right
# %% accepted_chain: the bonus is always the last row's
# choice[: right + 1] -> [*drafted[:right], choice[-1]]
# %% accepted_chain: every agreement counts
def accepted_chain(drafted, choice):
    return choice[: 1 + sum(token == chosen for token, chosen in zip(drafted, choice))]
# %% accepted_chain: no bonus after a chain that is accepted whole
def accepted_chain(drafted, choice):
    for i, token in enumerate(drafted):
        if token != choice[i]:
            return choice[: i + 1]
    return drafted
# %% accepted_chain: all or nothing
def accepted_chain(drafted, choice):
    return choice if drafted == choice[:-1] else choice[:1]
# %% accepted_chain: both lists are emptied
def accepted_chain(drafted, choice):
    committed = [choice.pop(0)]
    while drafted and drafted.pop(0) == committed[-1]:
        committed.append(choice.pop(0))
    return committed
# %% chain_iteration: three tokens, whatever gamma is
# < gamma -> < 3
# %% chain_iteration: the draft's cache is not used
def chain_iteration(text, gamma, target_cache, draft_cache, accept):
    drafted = generated(draft, text, gamma)
    committed = accept(drafted, read(target, [text[-1], *drafted], target_cache).argmax(-1).tolist())
    cut(target_cache, len(text) + len(committed) - 1)
    return committed
# %% chain_iteration: the draft's cache is emptied each time
# for cache in (target_cache, draft_cache): -> cut(draft_cache, 0)\n    for cache in (target_cache, draft_cache):
# %% chain_iteration: the draft's cache goes back to the old text
# for cache in (target_cache, draft_cache): -> cut(draft_cache, len(text))\n    for cache in (target_cache, draft_cache):
# %% chain_iteration: the target's cache is not cut
# (target_cache, draft_cache) -> (draft_cache,)
# %% chain_iteration: one row too many stays
# len(committed) - 1 -> len(committed)
# %% chain_iteration: the newest token is not verified
# [text[-1], *drafted] -> drafted
# %% chain_iteration: the target drafts for itself
# read(draft, -> read(target,
# %% tree_inputs: siblings are seen
# sees[node] |= sees[parent] -> sees[node, : node + 1] = True
# %% tree_inputs: consecutive positions
# sees.sum(1) - 1 -> torch.arange(len(parents))
# %% tree_inputs: positions without the prefix
# prefix + sees.sum(1) -> sees.sum(1)
# %% tree_inputs: the parent alone
# sees[node] |= sees[parent] -> sees[node, parent] = True
# %% tree_inputs: itself, parent, grandparent and root alone
def tree_inputs(parents, prefix):
    sees, depth = torch.eye(len(parents), dtype=torch.bool), [0] * len(parents)
    for node, parent in list(enumerate(parents))[1:]:
        depth[node] = depth[parent] + 1
        sees[node, [0, parent, max(parents[parent], 0)]] = True
    before = torch.ones(len(parents), prefix, dtype=torch.bool)
    return prefix + torch.tensor(depth), torch.cat([before, sees], 1)
# %% tree_inputs: rows and columns exchanged
# [before, sees] -> [before, sees.T]
# %% tree_inputs: without the prefix's columns
# torch.cat([before, sees], 1) -> sees
# %% gather: without the root
# (0, *path) -> path
# %% gather: values are forgotten
# layer.values = layer.values.index_select(2, kept) -> pass
# %% gather: cut at the end
def gather(cache, prefix, path):
    cut(cache, prefix + 1 + len(path))
    return cache
# %% gather: the first layer alone
# in cache.layers -> in cache.layers[:1]
# %% gather: a new cache, and the given one is left as it was
def gather(cache, prefix, path):
    kept, new = torch.tensor([*range(prefix + 1), *(prefix + node for node in path)]), DynamicCache()
    for number, layer in enumerate(cache.layers):
        new.update(layer.keys.index_select(2, kept), layer.values.index_select(2, kept), number)
    return new
# %% accept_path: any node that carries the token
# parents[node] == reached and  -> 
# %% accept_path: with the root
# path, reached = [], 0 -> path, reached = [0], 0
# %% accept_path: a node's own choice
# choice[reached] -> choice[node]
# %% accept_path: tokens in the place of nodes
# path.append(node) -> path.append(tokens[node])
# %% accept_path: every node that agrees with its parent's row
def accept_path(tokens, parents, choice):
    return [node for node in range(1, len(tokens)) if tokens[node] == choice[parents[node]]]
# %% accept_path: three levels at most
# return path -> return path[:3]
