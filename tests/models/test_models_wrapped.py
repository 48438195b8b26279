"""Modules that something else has wrapped or placed: compiled ones, adapters, device maps, tensor-parallel plans."""

from __future__ import annotations

import pytest
import torch
from support.pairs import library_text
from support.tiny import tiny
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_module
from transformers import AutoModelForCausalLM

from speclab import (
    DynaTree,
    LinearSpeculation,
    Session,
    SettingsError,
    UnsupportedModelError,
    generate,
    load_pair,
)
from speclab.models.lean import lean_forward

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
NEW = 10


class Adapter(nn.Module):
    """A low-rank adapter around a linear layer, as peft places it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.base_layer(rows) + 3 * self.up(self.down(rows))


def adapted(seed=0):
    """A model with adapters in its layers, as peft's `get_base_model` returns it."""
    model = tiny("llama", seed=seed)
    torch.manual_seed(4)
    for layer in model.base_model.layers:
        layer.mlp.up_proj = Adapter(layer.mlp.up_proj)
    return model


def own_text(model) -> list[int]:
    return library_text(model, PROMPT, NEW)


def test_models_with_adapters_and_compiled_ones_decode():
    bare = tiny("llama")
    for target, model, forward in (
        (adapted(), None, "module"),
        (torch.compile(bare, backend="eager"), bare, "lean"),
    ):
        pair = load_pair(target=target, draft=adapted(1), heads=adapted(2))
        assert pair.target.model is (model or target)
        # whether products are packed is a matter of this machine
        assert pair.describe()["target_forward"].partition(",")[0] == forward
        text = generate(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW, check=True).token_ids
        assert text == own_text(pair.target.model)
    assert own_text(adapted()) != own_text(bare)


@pytest.mark.parametrize("role", ["target", "draft", "heads"])
def test_what_is_no_model_is_one_sentence(role):
    for source in (nn.Linear(2, 2), 7, lambda: None):
        with pytest.raises(SettingsError, match=r"Expected a model, got .*: pass a hub id"):
            load_pair(**{"target": tiny("llama")} | {role: source})


# Placed by a device_map or by a tensor-parallel plan: what of that can be seen on one CPU

ROOMS = {"llama": "model", "gpt2": "transformer"}


def spread(family, folder, *offloaded):
    """A tiny model, and the same loaded again with these parts on disk; each part is run where its hook puts it."""
    whole = tiny(family)
    whole.save_pretrained(folder / family)
    parts = [
        f"{name}.{part}"
        for name in [ROOMS[family]]
        for part, _ in whole.get_submodule(name).named_children()
    ]
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
    pair = load_pair(target=parted, draft=whole)
    assert pair.target.device.type == "cpu", "where its inputs go"
    alone = load_pair(target=whole, draft=whole)
    got, want = (
        Session(own, DynaTree(max_depth=6), PROMPT, max_new_tokens=12, check=True)
        for own in (pair, alone)
    )
    got.run()
    want.run()
    assert got.token_ids == want.token_ids
    assert got.steps[-1].caches == want.steps[-1].caches


def test_a_model_that_is_placed_is_not_moved_and_its_embedding_is_on_a_device(tmp_path):
    _, parted = spread("llama", tmp_path)
    for asked in ({"device": "cpu"}, {"dtype": "float32"}):
        with pytest.raises(SettingsError, match="device_map"):
            load_pair(target=parted, **asked)
    _, parted = spread("llama", tmp_path, "model.embed_tokens")
    with pytest.raises(UnsupportedModelError, match="keeps the embedding on a device"):
        load_pair(target=parted)
    assert (
        load_pair(target=tiny("llama"), device="cpu", dtype="float64").target.dtype == torch.float64
    )


def test_weights_that_several_processes_share_go_through_the_module(tmp_path):
    """With one process of a mesh: the weights are those of a tensor-parallel plan, whose module alone knows how."""
    model = tiny("llama")
    assert lean_forward(model) is not None
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    try:
        distribute_module(model, init_device_mesh("cpu", (1,)))
        assert lean_forward(model) is None
        with pytest.raises(SettingsError, match="tensor-parallel"):
            load_pair(target=model, dtype="float16")
    finally:
        distributed.destroy_process_group()
