"""Modules placed by a device_map or by a tensor-parallel plan: what of that can be seen on one CPU."""

from __future__ import annotations

import pytest
import torch
from tiny import tiny
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_module
from transformers import AutoModelForCausalLM

import speclab
from speclab import DynaTree, Session, SettingsError, UnsupportedModelError
from speclab.models.changes import SharedForward

pytestmark = pytest.mark.model

ROOMS = {"llama": "model", "gpt_neox": "gpt_neox", "gpt2": "transformer"}
PROMPT = [1, 2, 3, 4]


def spread(family, folder, *offloaded):
    """A tiny model, and the same loaded again with these parts on disk; each part is run where its hook puts it."""
    whole = tiny(family)
    whole.save_pretrained(folder / family)
    parts = [f"{name}.{part}" for name in [ROOMS[family]] for part, _ in whole.get_submodule(name).named_children()]
    layers = next(part for part in parts if part.rsplit(".", 1)[1] in {"layers", "h"})
    parts.remove(layers)
    places = dict.fromkeys([*parts, f"{layers}.0", f"{layers}.1", "lm_head"], "cpu")
    places |= dict.fromkeys(offloaded or [f"{layers}.1"], "disk")
    again = AutoModelForCausalLM.from_pretrained(
        folder / family, device_map=places, offload_folder=folder / "offloaded", dtype=torch.float32
    )
    return whole, again


@pytest.mark.parametrize("family", ROOMS)
def test_a_model_partly_on_disk_decodes_the_same_text(tmp_path, family):
    whole, parted = spread(family, tmp_path)
    assert {weight.device.type for weight in parted.parameters()} == {"cpu", "meta"}
    pair = speclab.load_pair(target=parted, draft=whole)
    assert pair.target.device.type == "cpu", "where its inputs go"
    alone = speclab.load_pair(target=whole, draft=whole)
    got, want = (Session(own, DynaTree(max_depth=6), PROMPT, max_new_tokens=12, check=True) for own in (pair, alone))
    got.run()
    want.run()
    assert got.token_ids == want.token_ids
    assert got.steps[-1].caches == want.steps[-1].caches


@pytest.mark.parametrize("asked", [{"device": "cpu"}, {"dtype": "float32"}])
def test_a_model_that_is_placed_is_not_moved(tmp_path, asked):
    _, parted = spread("llama", tmp_path)
    with pytest.raises(SettingsError, match="leave out device= and dtype=, and give them to from_pretrained"):
        speclab.load_pair(target=parted, **asked)


def test_an_embedding_on_disk_is_refused_with_the_way_out(tmp_path):
    _, parted = spread("llama", tmp_path, "model.embed_tokens")
    with pytest.raises(UnsupportedModelError, match="keeps the embedding on a device"):
        speclab.load_pair(target=parted)


def test_a_model_on_one_device_may_move(tmp_path):
    model = tiny("llama")
    assert speclab.load_pair(target=model, device="cpu", dtype="float64").target.dtype == torch.float64


def test_weights_that_several_processes_share_go_through_the_module(tmp_path):
    """With one process of a mesh: the weights are those of a tensor-parallel plan, whose module alone knows how."""
    model = tiny("llama")
    assert SharedForward(model).forward.name == "lean"
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        distribute_module(model, init_device_mesh("cpu", (1,)))
        assert SharedForward(model).forward.name.startswith("module: its weights differ")
        with pytest.raises(SettingsError, match="tensor-parallel"):
            speclab.load_pair(target=model, dtype="float16")
    finally:
        distributed.destroy_process_group()
