# %% greedy: a generator
def greedy(model, prompt, count):
    cache, unread = DynamicCache(), prompt
    for _ in range(count):
        token = int(torch.topk(read(model, unread, cache)[-1], 1).indices)
        yield token
        unread = [token]


# %% accepted_chain: takewhile, a tuple
def accepted_chain(drafted, choice):
    from itertools import takewhile

    right = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(drafted, choice)))
    return *drafted[:right], choice[right]


# %% chain_iteration: the loop on the draft, a cut each
def chain_iteration(text, gamma, target_cache, draft_cache, accept):
    row = read(draft, text[draft_cache.get_seq_length() :], draft_cache)[-1]
    drafted = [int(row.argmax())]
    for _ in range(gamma - 1):
        drafted.append(int(read(draft, drafted[-1:], draft_cache)[-1].argmax()))
    answers = read(target, [text[-1]] + drafted, target_cache)
    committed = accept(drafted, [int(row.argmax()) for row in answers])
    cut(target_cache, len(text) + len(committed) - 1)
    cut(draft_cache, len(text) + len(committed) - 1)
    return tuple(committed)


# %% tree_inputs: numpy and int32
def tree_inputs(parents, prefix):
    import numpy as np

    sees = np.eye(len(parents), dtype=bool)
    for node in range(1, len(parents)):
        sees[node] |= sees[parents[node]]
    mask = np.hstack([np.ones((len(parents), prefix), dtype=bool), sees])
    return torch.from_numpy(mask.sum(1).astype(np.int32) - 1), torch.from_numpy(mask)


# %% gather: a mask of rows
def gather(cache, prefix, path):
    for layer in cache.layers:
        keep = torch.zeros(layer.keys.shape[2], dtype=torch.bool)
        keep[: prefix + 1] = True
        keep[[prefix + node for node in path]] = True
        layer.keys = layer.keys[:, :, keep].contiguous()
        layer.values = layer.values[:, :, keep].contiguous()


# %% accept_path: recursion, a generator
def accept_path(tokens, parents, choice):
    def below(node):
        for child in range(node + 1, len(tokens)):
            if parents[child] == node and tokens[child] == choice[node]:
                yield child
                yield from below(child)

    return below(0)
