"""How often an iteration makes the host wait for a GPU."""

from functools import cache

import pytest
from support.heads import random_head
from support.tiny import tiny

import speclab
from double import device
from speclab.engine.decode import iterate, start
from speclab.engine.stopwatch import Stopwatch
from speclab.settings import SessionSettings

PROMPT = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5]
LAYERS = 4
"""Many enough that a wait a layer breaks the bounds."""
SIXTY = speclab.DynaTree(
    node_budget=60, base_depth=5, max_depth=5, min_branches=2, max_branches=2,
    low_confidence=0.0, high_confidence=1.0, stop_probability=0.0, prune_probability=0.0, history="off",
)  # fmt: skip


@cache
def pair(family):
    """A draft that is right as often as a model can be about itself, so that accepted rows have to be moved."""
    models = [tiny(family, num_hidden_layers=LAYERS) for _ in range(2)]
    return speclab.load_pair(target=models[0], draft=models[1], device="cuda")


def decoded(gpu, own, strategy, rounds=2, **settings):
    """Iterations after the sizes of all passes were met, each with what was counted of it."""
    settings = SessionSettings(max_new_tokens=200, stop_at_eos=False, **settings)
    decoding = start(own.fresh(), strategy, PROMPT, settings)
    for _ in range(3):
        iterate(decoding)
    for _ in range(rounds):
        gpu.reset()
        yield iterate(decoding)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_an_iteration_waits_once_a_pass(family):
    with device() as gpu:
        for iteration in decoded(gpu, pair(family), SIXTY):
            assert len(iteration.draft.tree) == 60
            assert iteration.counts.draft_calls == 5
            assert len(iteration.outcome.accepted) == 5, "rows are moved in both caches"
            assert gpu.waited() <= 8
            assert gpu.copies["upload"] <= 20, "three a pass, and the rows that are kept"
            assert gpu.waited("upload", "device", "stream", "event") == 0


WAITS = {
    # the draws of all rows come down at once
    "sampled": (SIXTY, {"temperature": 0.8, "top_p": 0.9}, 7),
    # two passes more, and the root's choice
    "drafted root": (SIXTY.changed(root="drafted", commit="rebuild"), {}, 9),
    "prompt lookup": (speclab.PromptLookup(), {}, 1),
    "token recycling": (speclab.TokenRecycling(), {}, 2),  # the harvest of the table
    "goose": (speclab.Goose(), {}, 2),
    "lookahead": (speclab.Lookahead(), {}, 2),
}


def test_every_way_waits_once_a_pass_and_once_for_what_else_it_reads():
    with device() as gpu:
        for name, (strategy, settings, most) in WAITS.items():
            for _ in decoded(gpu, pair("llama"), strategy, **settings):
                assert gpu.waited() <= most, name
                assert gpu.waited("upload", "device", "stream", "event") == 0, name


def test_a_draft_head_waits_once_a_level():
    with device() as gpu:
        own = speclab.load_pair(
            target=tiny("llama"), heads=[random_head(tiny("llama"))], device="cuda"
        )
        for iteration in decoded(gpu, own, speclab.DraftHead(depth=4)):
            assert gpu.waited() == iteration.counts.draft_calls + 1


def test_a_record_costs_few_waits_more():
    with device() as gpu:
        for temperature, most in ((0.0, 8), (0.8, 11)):
            settings = {"max_new_tokens": 200, "temperature": temperature, "stop_at_eos": False}
            session = speclab.Session(pair("llama"), SIXTY, PROMPT, **settings)
            for _ in range(3):
                session.step()
            gpu.reset()
            step = session.step()
            assert gpu.waited() <= most
            assert (step.mask == step.tree.ancestor_mask()).all()
            assert set(step.prefix_seen) == {step.prefix_length}


def test_phases_are_timed_without_a_wait_and_read_when_all_is_done():
    with device() as gpu:
        own = pair("gpt_neox")
        gpu.reset()
        watch = Stopwatch(own.target.device)
        watch.mark("one")
        watch.mark("two")
        watch.mark("one")
        assert gpu.waited("device", "stream", "event") == 0
        assert list(watch.phase_seconds) == ["one", "two"]
        assert min(*watch.phase_seconds.values(), watch.seconds) > 0
