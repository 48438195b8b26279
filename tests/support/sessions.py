"""Sessions over a table pair, their text by hand, and what their caches must hold."""

import numpy as np
import pytest
from support.table_runner import mixed_probs, random_probs, table_pair

import speclab

VOCAB = 8
PROMPT = [1, 2, 3]
TARGET = random_probs(VOCAB, 11, low=0.5, high=2.5)
DRAFT = mixed_probs(TARGET, random_probs(VOCAB, 12), 0.15)
NEW = 30

STRATEGIES = {
    "plain": speclab.Autoregressive(),
    "chain": speclab.LinearSpeculation(draft_tokens=4, confidence_stop=0.2),
    "tree": speclab.FixedTree(depth=3, branching=2),
    "dynatree": speclab.DynaTree(prune_probability=0.1, base_depth=3, history="iteration"),
    "best first": speclab.DraftHead(node_budget=12, depth=3, children=4),
    "paper": speclab.DynaTree.paper().changed(base_depth=3),
    "drafted, gathered": speclab.DynaTree(root="drafted", base_depth=3),
}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def pair_of(target=TARGET, draft=DRAFT, eos=None):
    return table_pair(target, draft, VOCAB, eos=eos)


def session_of(strategy=STRATEGIES["dynatree"], pair=None, **settings):
    return speclab.Session(
        pair or pair_of(), strategy, PROMPT, **({"max_new_tokens": NEW} | settings)
    )


def finished(strategy=STRATEGIES["dynatree"], **settings):
    session = session_of(strategy, **settings)
    session.run()
    return session


def own_text(count=NEW):
    text = list(PROMPT)
    for _ in range(count):
        text.append(int(np.argmax(TARGET(tuple(text)))))
    return text[len(PROMPT) :]


def calls(session):
    return [runner.calls for runner in session.pair.runners.values()]


def assert_caches_follow(session):
    """Both caches hold a prefix of the whole decoded text, the target's all but at most the newest token."""
    whole = [*session.trace.prompt_ids, *session.trace.token_ids]
    for runner in session.pair.runners.values():
        assert runner.tokens == whole[: runner.length]
    assert len(whole) - 1 <= session.pair.target.length <= len(whole)
