"""A tree decoder on transformers alone, as written in an afternoon. It records its passes; one line is wrong."""

import torch
from transformers import DynamicCache

from speclab.recorder import Recorder


def grow(draft, text, depth=3, branches=2):
    """Tokens and parents of a tree: the best guesses of the draft after every row, level by level."""
    token, parent, level = [text[-1]], [-1], {0: []}
    for _ in range(depth):
        best = draft(torch.tensor([text + path for path in level.values()])).logits[:, -1].topk(branches).indices
        below = {}
        for (row, path), guesses in zip(level.items(), best.tolist()):
            for guess in guesses:
                below[len(token)] = [*path, guess]
                token.append(guess)
                parent.append(row)
        level = below
    return token, parent


def positions(length, parent):
    """The position of each row of the tree, behind a prefix of this length."""
    return [length + row for row in range(len(parent))]


def visible(parent):
    """Which rows each row sees: itself and its ancestors."""
    mask = torch.eye(len(parent), dtype=torch.bool)
    for row, above in enumerate(parent[1:], start=1):
        mask[row] |= mask[above]
    return mask


@torch.inference_mode()
def decode(target, draft, prompt, file, new_tokens=48):
    """Decode greedily, record every pass in the file, and return the ids of prompt and text."""
    cache = DynamicCache(config=target.config)
    text = [*prompt, int(target(torch.tensor([prompt]), past_key_values=cache).logits[0, -1].argmax())]
    with Recorder(file, prompt, engine="broken_decoder") as recorder:
        while len(text) < len(prompt) + new_tokens:
            length, (token, parent) = len(text) - 1, grow(draft, text)
            place, mask = positions(length, parent), visible(parent)
            seen = torch.cat([torch.ones(len(token), length, dtype=torch.bool), mask], dim=1)
            bias = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]
            given = {"position_ids": torch.tensor([place]), "attention_mask": bias, "past_key_values": cache}
            logits = target(torch.tensor([token]), **given).logits[0]
            top, choice, path = logits.log_softmax(-1).topk(8), logits.argmax(-1).tolist(), [0]
            while below := [r for r in range(len(token)) if parent[r] == path[-1] and token[r] == choice[path[-1]]]:
                path.append(below[0])
            for layer in cache.layers:  # the rows of the path stay, in its order
                kept = [*range(length), *(length + row for row in path)]
                layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
            committed = [*(token[row] for row in path[1:]), choice[path[-1]]]
            topk = [list(zip(ids, logs)) for ids, logs in zip(top.indices.tolist(), top.values.tolist())]
            row = {"prefix_length": length, "token": token, "parent": parent, "position": place, "mask": mask}
            recorder.step(**row, choice=choice, topk=topk, accepted=path[1:], committed=committed)
            text += committed
    return text
