"""Passes bit for bit: rows by own path, the probe that admits them, texts beside the library's own."""

import re
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pairs import PROMPT, library_text
from support.records import ran
from support.refusals import refused
from support.runners import run_tree
from support.strategies import draft_trees
from support.tiny import FAMILIES, make_uneven, tiny
from support.variants import VARIANTS
from torch.nn import functional as F
from transformers import DynamicCache

import speclab
from speclab import pair as pair_module
from speclab.errors import SettingsError
from speclab.models import bits
from speclab.models.own_paths import OwnPaths
from speclab.models.runner import Runner
from speclab.models.source import Bits

HALF = (torch.bfloat16, torch.float16)
EVERY = (*FAMILIES, "glm4_moe", "mellum")
VOCAB = 640
DIM = 16


@cache
def exact_pair(family, dtype):
    """A pair of random models, and "" or why it is not bit for bit on this machine."""
    models = {
        "target": tiny(family, 3, VOCAB).to(dtype),
        "draft": tiny(family, 4, VOCAB).to(dtype),
    }
    try:
        return speclab.load_pair(**models, exact="bits"), ""
    except SettingsError as error:
        return speclab.load_pair(**models), str(error)


def library_row(model, prefix, path):
    """Logits after a path, token by token with the library's own cache and attention."""
    cache = DynamicCache(config=model.config)
    texts = [prefix, *[[token] for token in path]]
    with torch.inference_mode():
        for text in texts:
            places = torch.arange(cache.get_seq_length(), cache.get_seq_length() + len(text))
            out = model(torch.tensor([text]), position_ids=places[None], past_key_values=cache)
    return out.logits[0, -1]


def differs(model, reason):
    """Whether the operator that a reason names gives a row other bits beside so many others."""
    name, rows = re.match(r"(\S+) changes a row's bits at (\d+) rows", reason).groups()
    part = model.get_submodule(name.replace(".N.", ".0."))
    size = getattr(part, "in_features", None) or getattr(part, "nx", 48)
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        for _ in range(2000):
            # wide, as an activation's ends differ where it bends
            inputs = 3 * torch.randn(1, int(rows), size, generator=generator).to(model.dtype)
            alone = torch.cat([part(row) for row in inputs.split(1, 1)], 1)
            if not torch.equal(part(inputs), alone):
                return True
    return False


# One attention


@given(tree=draft_trees(max_nodes=14), prefix=st.integers(0, 20), dtype=st.sampled_from(HALF))
@settings(max_examples=40)
def test_a_row_reads_its_own_path_as_a_text_would_have_it(tree, prefix, dtype):
    """Bit for bit what the same call gives on a copy of the path's keys; the cache stays as it was."""
    total = prefix + len(tree)
    generator = torch.Generator().manual_seed(len(tree))
    keys, values = torch.randn(2, 1, 2, total, DIM, generator=generator).to(dtype)
    query = torch.randn(1, 4, len(tree), DIM, generator=generator).to(dtype)
    before = keys.clone(), values.clone()
    paths = OwnPaths(tree.ancestor_mask(), total)

    def read(query, keys, values):
        return F.scaled_dot_product_attention(query, keys, values, enable_gqa=True)

    for window in (None, 3):
        answers = paths.attend(query, keys, values, read, window)
        for node, answer in enumerate(answers):
            slots = [*range(prefix), *[prefix + each for each in tree.path(node)]]
            slots = slots[-(window or total) :]
            want = read(query[:, :, [node]], keys[:, :, slots], values[:, :, slots])
            assert torch.equal(answer, want)
    assert torch.equal(keys, before[0])
    assert torch.equal(values, before[1])
    seen = paths.seen()
    assert seen[:, :prefix].all()
    assert (seen[:, prefix:] == tree.ancestor_mask()).all()


def test_a_chain_moves_nothing():
    assert not OwnPaths(np.tri(9, dtype=bool), 40).moves
    assert OwnPaths(np.eye(9, dtype=bool), 40).moves


# Whole passes


@pytest.mark.wide
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("family", EVERY)
def test_rows_and_texts_have_the_bits_of_the_library_or_the_reason_is_said(family, dtype):
    pair, refusal = exact_pair(family, dtype)
    model = pair.target.model
    if refusal:
        reason = (pair.target.bits or bits.measured(pair.target)).reason
        assert reason in refusal
        assert not pair.target.own_rows
        assert differs(model, reason)
        return
    draw = np.random.default_rng(1)
    for prefix in (5, 30):
        text = draw.integers(VOCAB, size=prefix).tolist()
        runner = pair.target.fork()
        assert torch.equal(runner.extend(text), library_row(model, text, []))
        parents = [-1, 0, 0, 1, 2, 2, 3, 6]
        tree = speclab.DraftTree.of(draw.integers(VOCAB, size=8), parents, [0.0] * 8, "drawn")
        rows = run_tree(runner, tree)
        seen, before = runner.mask_given()
        assert (seen == tree.ancestor_mask()).all()
        assert before == [prefix] * 8
        for node in range(8):
            path = tree.token[list(tree.path(node))].tolist()
            assert torch.equal(rows[node], library_row(model, text, path))
    own = library_text(model, PROMPT, 24)
    fit = [each for each in VARIANTS.values() if not each.missing(pair.offer)]
    for strategy in fit if family in ("llama", "mistral") else fit[::5]:
        session = ran(pair, strategy, PROMPT, max_new_tokens=24, check=True)
        assert session.token_ids == own
        assert session.ties == 0


def test_more_rows_than_hold_run_as_several_passes():
    runner = Runner(tiny("llama", 3, VOCAB))
    runner.state.bits = Bits(3, "", torch.get_num_threads())
    runner.extend([1, 2, 3])
    tree = speclab.DraftTree.of(range(8), [-1, 0, 0, 1, 2, 2, 3, 6], [0.0] * 8, "drawn")
    calls = runner.calls
    rows = run_tree(runner, tree)
    assert runner.calls == calls + 3
    assert runner.length == 3 + 8
    masked = Runner(tiny("llama", 3, VOCAB))
    masked.extend([1, 2, 3])
    torch.testing.assert_close(rows, run_tree(masked, tree), rtol=1e-4, atol=1e-4)
    seen, before = runner.mask_given()
    assert (seen == tree.ancestor_mask()).all()
    assert before == [3] * 8


# The probe


def test_the_operator_that_changes_bits_is_named_with_the_number_of_rows():
    model = tiny("qwen3", vocab=VOCAB)
    make_uneven(model)
    runner = Runner(model)
    found = {each.name: each.first for each in bits.products(runner, range(2, 9))}
    assert found["model.layers.N.mlp.act_fn"] == 5
    assert found["model.layers.N.input_layernorm"] is None
    assert bits.first_of_passes(runner, range(1, 9), own=True) in range(2, 6)
    assert bits.attention(runner, [2, 8]).first in (2, 8, None)
    assert not bits.measured(runner).rows


def test_other_threads_are_measured_again(monkeypatch):
    pair, _ = exact_pair("llama", torch.bfloat16)
    asked = []

    def measured(runner):
        asked.append(runner)
        return Bits(0, "it was asked", torch.get_num_threads())

    monkeypatch.setattr(pair_module, "measured", measured)
    state = pair.target.state
    before = state.bits
    state.bits = Bits(8, "", torch.get_num_threads())
    try:
        assert pair.fresh().target.own_rows == 8
        assert not asked
        state.bits = Bits(8, "", torch.get_num_threads() + 1)
        assert pair.fresh().target.own_rows == 0
        assert len(asked) == 1
    finally:
        state.bits = before


def test_a_pair_is_refused_or_left_alone_as_asked():
    model = tiny("llama", 3, VOCAB)
    with refused(SettingsError, "exact"):
        speclab.load_pair(target=model, exact="yes")
    assert speclab.load_pair(target=model).target.bits is None
    half = model.to(torch.bfloat16)
    assert speclab.load_pair(target=half, exact="rounding").target.bits is None
    pair = speclab.load_pair(target=half)
    assert pair.describe()["target_exact"] == str(pair.target.bits)
    with refused(SettingsError, "by paths"):
        speclab.load_pair(target=tiny("bloom").to(torch.bfloat16), exact="bits")
