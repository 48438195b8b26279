"""The loop on models from a table: how many passes an iteration takes, and where a text ends."""

import pytest
from support.records import assert_consistent, ran
from support.table_runner import mixed_probs, random_probs, table_pair
from support.variants import PATHS

import speclab

VOCAB = 8
PROMPT = [1, 2, 3]
TABLE = random_probs(VOCAB, 5, low=0.5, high=2.5)
TABLE_DRAFT = mixed_probs(TABLE, random_probs(VOCAB, 6), 0.2)
every_path = pytest.mark.parametrize("strategy", PATHS.values(), ids=PATHS)


def agreeing(eos=None):
    """The draft is the target, so every path is accepted: wherever the text ends, it ends inside one."""
    return table_pair(TABLE, TABLE, VOCAB, eos=eos)


@every_path
def test_a_text_ends_at_eos_or_at_its_length_inside_an_accepted_path(strategy):
    whole = speclab.generate(agreeing(), strategy, PROMPT, max_new_tokens=16).token_ids
    for eos in sorted(set(whole))[:3]:
        session = ran(agreeing(eos), strategy, PROMPT, max_new_tokens=16)
        assert session.token_ids == whole[: whole.index(eos) + 1]
        assert (session.done, session.trace.finished) == (True, "end of text")
        for step in session.steps:
            assert_consistent(step)
        on = speclab.generate(agreeing(eos), strategy, PROMPT, max_new_tokens=16, stop_at_eos=False)
        assert on.token_ids == whole
    for count in range(1, 16):
        result = speclab.generate(agreeing(), strategy, PROMPT, max_new_tokens=count)
        assert result.token_ids == whole[:count]
        assert result.metrics.acceptance_rate <= 1.0
