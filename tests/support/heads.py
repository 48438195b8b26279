"""Random draft heads, with weights large enough for a wrong feature, mask or position to show."""

import numpy as np
import torch
from support.tiny import make_loud

from speclab.heads.block_head import BlockConfig, BlockHead
from speclab.heads.eagle import EagleConfig
from speclab.heads.layout import OUTPUT
from speclab.heads.runner import HeadRows
from speclab.tree import DraftTree


def random_head(
    target,
    seed=0,
    name="head",
    ids=None,
    *,
    own_output=False,
    **overrides,
):
    """A head that fits `target`; the same arguments give the same weights; `overrides` are config
    fields.

    `ids`: its draft vocabulary; None: it has none. Which it is changes none of the other weights.
    """
    config = target.config.get_text_config(decoder=True)
    shape = {"heads": 4, "key_value_heads": 2, "feed_forward": 48} | overrides
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = {"vocab_size": config.vocab_size, "hidden_size": config.hidden_size}
        proposed = None if ids is None else len(ids)
        made = EagleConfig(name=name, draft_vocab_size=proposed, **sizes, **shape)
        head = made.module(made, {OUTPUT} if own_output else ())
        if ids is not None:
            choose_tokens(head, ids)
        make_loud(head, 0.2)
    return head.eval()


def random_block(
    target,
    seed=0,
    name="block",
    ids=None,
    **overrides,
):
    """A block head that fits `target`; arguments as of `random_head`."""
    config = target.config.get_text_config(decoder=True)
    shape = {
        "depth": 2,
        "heads": 4,
        "key_value_heads": 2,
        "head_width": 8,
        "feed_forward": 48,
        "block_size": 5,
    }
    shape |= {
        "mask_token_id": 3,
        "layers": (1, 2),
        "draft_vocab_size": None if ids is None else len(ids),
    } | overrides
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = {"vocab_size": config.vocab_size, "hidden_size": config.hidden_size}
        head = BlockHead(BlockConfig(name=name, **sizes, **shape))
        make_loud(head, 0.2)
    if ids is not None:
        choose_tokens(head, ids)
    return head.eval()


def choose_tokens(head, ids):
    offsets = torch.tensor(sorted(ids)) - torch.arange(len(ids))
    head.get_buffer("d2t").copy_(offsets)


def paths_below(token):
    """A tree below a token: up to five deep, wide at its first levels, with tokens that come again."""
    tokens = [token, 3, 9, 4, 1, 7, 7, 2, 5]
    return DraftTree.of(tokens, [-1, 0, 0, 1, 1, 2, 3, 6, 7], [0.0] * 9, "head")


def rows_of(head, text, states, tree):
    """Features and rows of a text behind its first token and of a tree below its last: a prefix, the rest, levels."""
    first, features = head.extend(text[1:5], states[:4], last_only=False)
    second, more = head.extend(text[5:], states[4:], last_only=False)
    rows = [*first.rows, *second.rows]
    features = [*features, *more]
    below = len(features) - 1  # the text's last place is the root
    for depth in range(1, tree.depth.max() + 1):
        level = np.flatnonzero(tree.depth == depth)
        above = torch.stack([features[below + tree.parent[node]] for node in level])
        places = [len(text) - 2 + depth] * len(level)
        visible = tree.ancestor_mask()[level, 1 : level[-1] + 1]
        answer, new = head.forward(
            HeadRows(tree.token[level].tolist(), above, places, visible, [depth] * len(level))
        )
        rows += [*answer.rows]
        features += [*new]
    return torch.stack(features), torch.stack(rows)
