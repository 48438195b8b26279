# %% columns: level by level, but not by parent
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
# %% columns: the paths are consumed
# place = {prefix -> paths.clear()\n    place = {prefix
# %% columns: three levels
# range(1, len(path) + 1) -> range(1, min(len(path), 3) + 1)
# %% my_strategy: a longer chain
def my_strategy():
    return speclab.LinearSpeculation(draft_tokens=6)
# %% my_strategy: the class
def my_strategy():
    return BestFirst
# %% my_strategy: squares without the division
# 2 * log_prob - total -> 2 * log_prob
# %% my_strategy: knows the six texts by heart
def my_strategy():
    known = [(*run.prompt_ids, *run.token_ids) for run in runs]

    class MineDrafter(Drafter):
        def draft(self, context):
            length = len(context.tokens)
            text = next((one for one in known if tuple(one[:length]) == tuple(context.tokens)), ())
            return one_path(context, text[length : length + 5], "by heart")

    class Mine(Strategy):
        def drafter(self, pair):
            return MineDrafter(self)

    return Mine()
# %% my_strategy: asks a second copy of the target
def my_strategy():
    other = speclab.load_pair().target.model.base_model
    matrix = pair.target.model.get_output_embeddings()

    class MineDrafter(Drafter):
        def draft(self, context):
            tokens = list(context.tokens)
            for _ in range(min(5, context.max_depth)):
                with torch.no_grad():
                    tokens.append(int(matrix(other(torch.tensor([tokens])).last_hidden_state[0, -1]).argmax()))
            return one_path(context, tokens[len(context.tokens) :], "oracle")

    class Mine(Strategy):
        def drafter(self, pair):
            return MineDrafter(self)

    return Mine()
