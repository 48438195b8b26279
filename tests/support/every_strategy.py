"""A pair of tables with a head and a tokenizer, and every strategy in small, for tests of all of them."""

from dataclasses import replace

import numpy as np
from support.table_runner import mixed_probs, random_probs, table_pair
from support.words import word_tokenizer

import speclab

ALONE = {
    "prompt lookup": speclab.PromptLookup(),
    "isotropic": speclab.IsotropicTree(node_budget=13),
    "token recycling": speclab.TokenRecycling(node_budget=13),
    "goose": speclab.Goose(node_budget=16),
    "goose, paper's bypass": speclab.Goose(node_budget=16, bypass_acceptance=0),
    "goose, spine of transitions": speclab.Goose(
        node_budget=16, bypass="off", spine="transitions", bigrams=False
    ),
    "lookahead": speclab.Lookahead(window=4, ngram=4, guesses=4),
    "sequoia": speclab.SequoiaTree(node_budget=13, depth=3),
    "retrieval": speclab.Retrieval(node_budget=9),
    "suffix decoding": speclab.SuffixDecoding(node_budget=9, factor=2.5),
}
"""They ask no draft."""
SMALL = {"node_budget": 12, "depth": 3, "children": 4, "first": None, "second": 0}
DRAFTED = {
    "chain": speclab.LinearSpeculation(draft_tokens=4),
    "dynatree": speclab.DynaTree(node_budget=16),
    "dynatree that adapts": speclab.DynaTree(base_depth=3, history="iteration"),
    "drafted root": speclab.DynaTree.paper().changed(base_depth=3),
    "best first": speclab.DraftHead(node_budget=12, depth=3),
    "sequoia of a draft": speclab.SequoiaTree(source="draft", node_budget=13, depth=3),
    "graft": speclab.Graft(node_budget=14, stop_probability=0.3),
    "two trees": speclab.DualDraft(**SMALL),
    "two trees as one": speclab.DualDraft(mode="merge", **SMALL),
}
VOCAB = 12
NEW = 40
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-2:]), 0.8)
"""What comes next depends mostly on the last two tokens, so that copies and tables are often right."""
DRAFT = mixed_probs(PROBS, random_probs(VOCAB, 5), 0.2)
PROMPT = [5, 9, 2, 4, 3, 7, 7, 1, 5, 9, 2, 4, 3]


def pair_of(context=None, eos=None):
    """A target, a draft model and a head, with a tokenizer of twelve words."""
    head = table_pair(mixed_probs(PROBS, random_probs(VOCAB, 6), 0.3), None, VOCAB, context).target
    pair = table_pair(PROBS, DRAFT, VOCAB, context, eos)
    return replace(pair, heads=(head,), tokenizer=word_tokenizer(VOCAB))


def session_of(strategy=DRAFTED["dynatree that adapts"], pair=None, **settings):
    chosen = {"max_new_tokens": NEW} | settings
    return speclab.Session(pair or pair_of(), strategy, PROMPT, **chosen)


def finished(*given, **settings):
    session = session_of(*given, **settings)
    session.run()
    return session


def own_text(count=NEW):
    """The target's, by hand."""
    text = [*PROMPT]
    for _ in range(count):
        text.append(int(np.argmax(PROBS(tuple(text)))))
    return text[len(PROMPT) :]
