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
# %% greedy: the least probable token
# argmax -> argmin
# %% accepted_chain: without the bonus
# right + 1 -> right
# %% accepted_chain: the bonus is always the last row's
# choice[: right + 1] -> [*drafted[:right], choice[-1]]
# %% accepted_chain: both lists are emptied
def accepted_chain(drafted, choice):
    committed = [choice.pop(0)]
    while drafted and drafted.pop(0) == committed[-1]:
        committed.append(choice.pop(0))
    return committed
# %% chain_iteration: three tokens, whatever gamma is
# < gamma -> < 3
# %% chain_iteration: the draft's cache goes back to the old text
# for cache in (target_cache, draft_cache): -> cut(draft_cache, len(text))\n    for cache in (target_cache, draft_cache):
# %% chain_iteration: the target's cache is not cut
# (target_cache, draft_cache) -> (draft_cache,)
# %% tree_inputs: siblings are seen
# sees[node] |= sees[parent] -> sees[node, : node + 1] = True
# %% tree_inputs: consecutive positions
# sees.sum(1) - 1 -> torch.arange(len(parents))
# %% tree_inputs: positions without the prefix
# prefix + sees.sum(1) -> sees.sum(1)
# %% tree_inputs: rows and columns exchanged
# [before, sees] -> [before, sees.T]
# %% gather: without the root
# prefix + 1 -> prefix
# %% gather: values are forgotten
# layer.values = layer.values.index_select(2, kept) -> pass
# %% gather: cut at the end
def gather(cache, prefix, path):
    cut(cache, prefix + 1 + len(path))
    return cache
# %% accept_path: any node that carries the token
# parents[node] == reached and  -> 
# %% accept_path: a node's own choice
# choice[reached] -> choice[node]
# %% accept_path: tokens in the place of nodes
# path.append(node) -> path.append(tokens[node])
# %% accepted_chain: the same object instead of the same token
# == choice[right] -> is choice[right]
# %% accepted_chain: three drafted tokens at most
# right < len(drafted) and -> right < min(3, len(drafted)) and
# %% accepted_chain: calls the course's version
def accepted_chain(drafted, choice):
    return own("accepted_chain")(drafted, choice)
# %% chain_iteration: reads the whole text again
# text[draft_cache.get_seq_length() :] -> (cut(draft_cache, 0), text)[1]
# %% tree_inputs: positions as floats
# return prefix + sees.sum(1) - 1 -> return prefix + sees.sum(1) - 1.0
# %% tree_inputs: only the parent and the node
# sees[node] |= sees[parent] -> sees[node, parent] = True
# %% gather: two layers
# cache.layers: -> cache.layers[:2]:
