"""Folders and files of heads that do not fit or are not run: one sentence that names what is wrong."""

from __future__ import annotations

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.head_folders import SOME, rewrite, weights, write
from support.heads import random_block, random_head
from support.refusals import refused
from support.tiny import tiny

import speclab
from speclab.errors import HeadMismatchError, ModelNotFoundError, UnsupportedModelError
from speclab.heads.eagle import EagleRunner
from speclab.models.runner import Runner
from training.blocks import save_block
from training.head_export import save_head


def target():
    return tiny("llama", num_hidden_layers=5)


def edited(file, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def eagle3(folder, **changes: object):
    edited(write(folder, target()) / "config.json", **changes)


def ours(folder, **changes: object):
    save_head(random_head(target(), 1, "head", SOME), folder)
    edited(folder / "head.json", **changes)


def block(folder, **changes: object):
    save_block(random_block(target(), 1, ids=SOME).half().float(), folder)
    edited(folder / "config.json", **changes)


def shards(folder, make, index, shard):
    make(folder)
    (folder / index).write_text(json.dumps({"weight_map": {"fc.weight": shard}}))


def dflash(**own: object):
    return {"dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 1]} | own}


def ids(*layers: int):
    return {"eagle_aux_hidden_state_layer_ids": layers}


MISMATCH = HeadMismatchError
UNSUPPORTED = UnsupportedModelError
SHARDS = [
    {"make": eagle3, "index": "pytorch_model.bin.index.json", "shard": "2-of-2.bin"},
    {"make": block, "index": "model.safetensors.index.json", "shard": "2-of-2.safetensors"},
]
CONFIGS = [
    (ours, {"hidden_size": 64}, MISMATCH, "64"),
    (ours, {"target": "llama-70b"}, MISMATCH, "llama-70b"),
    (ours, {"layers": [7]}, MISMATCH, "7"),
    (ours, {"gains_tokens": True}, UNSUPPORTED, "gains_tokens"),
    (ours, {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, UNSUPPORTED, "head.json"),
    (eagle3, ids(1, 2, 9), MISMATCH, "9"),
    (eagle3, ids(1, 2), MISMATCH, "[32, 64]"),
    (eagle3, {"architectures": ["DFlash2DraftModel"]}, UNSUPPORTED, "DFlash2"),
    (eagle3, {"ptd_token_id": 3}, UNSUPPORTED, "ptd_token_id"),
    (eagle3, {"eagle_config": ids(3, 4, 5)}, UNSUPPORTED, "final norm"),
    (eagle3, {"hidden_act": "gelu"}, UNSUPPORTED, "hidden_act"),
    (eagle3, {"rope_theta": -1}, UNSUPPORTED, "rope_theta"),
    (block, dflash(target_layer_ids=[1, 5]), MISMATCH, "layers (2, 6)"),
    (block, dflash(target_layer_ids=[0, 1, 2]), MISMATCH, "fc.weight"),
    (block, dflash(mask_token_id=64), MISMATCH, "mask"),
    (block, {"is_causal": True}, UNSUPPORTED, "is_causal"),
    (block, {"layer_types": ["sliding_attention"] * 2}, UNSUPPORTED, "layer_types"),
    (block, {"markov_rank": 3}, MISMATCH, "markov_head"),
    (shards, SHARDS[0], ModelNotFoundError, "2-of-2.bin"),
    (shards, SHARDS[1], ModelNotFoundError, "2-of-2.safetensors"),
]


@pytest.mark.parametrize(("make", "changes", "error", "named"), CONFIGS)
def test_a_config_of_another_target_or_of_what_is_not_run(tmp_path, make, changes, error, named):
    make(tmp_path / "head", **changes)
    with refused(error, "head", named):
        speclab.load_pair(target=target(), heads=tmp_path / "head")


WEIGHTS = [
    (ours, {"d2t": torch.full((8,), 60)}, "d2t"),
    (ours, {"d2t": torch.arange(8).neg()}, "d2t"),
    (ours, {"fc.bias": None}, "fc.bias"),
    (eagle3, {"mask_hidden": torch.ones(2)}, "mask_hidden"),
    (block, {"layers.1.self_attn.k_norm.weight": None}, "k_norm"),
]


@pytest.mark.parametrize(("make", "change", "named"), WEIGHTS)
def test_a_tensor_that_is_missing_or_that_no_part_of_the_head_takes(tmp_path, make, change, named):
    """It was trained, and a head without it would draft something else."""
    make(tmp_path / "head")
    file = tmp_path / "head" / ("head.safetensors" if make is ours else "model.safetensors")
    tensors = (load_file(file) if file.is_file() else weights(file.parent)) | change
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    if file.is_file():
        save_file(tensors, file)
    else:
        rewrite(file.parent, tensors)
    with refused(HeadMismatchError, "head", named):
        speclab.load_pair(target=target(), heads=file.parent)


@pytest.mark.parametrize("name", ["head.safetensors", "head.json"])
def test_a_file_that_is_cut(tmp_path, name):
    ours(tmp_path / "head")
    file = tmp_path / "head" / name
    file.write_bytes(file.read_bytes()[:40])
    with refused(speclab.SpeclabError, name):
        speclab.load_pair(target=target(), heads=file.parent)


class _Trap:
    """A pickle of this makes a folder when it is opened."""

    def __init__(self, path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_that_would_run_code_does_not(tmp_path):
    write(tmp_path / "eagle", target(), "SafeAILab, EAGLE of LLaMA 2")
    tensors = {"fc.weight": torch.zeros(1), "trap": _Trap(tmp_path / "sprung")}
    torch.save(tensors, tmp_path / "eagle/pytorch_model.bin")
    with refused(ModelNotFoundError, "pytorch_model.bin", "run code", "safetensors"):
        speclab.load_pair(target=target(), heads=tmp_path / "eagle")
    assert not (tmp_path / "sprung").exists()


def test_a_head_whose_weights_are_no_numbers_is_named_and_its_cache_stays():
    on = Runner(tiny("llama"))
    head = random_head(on.model, name="broken")
    torch.nn.init.constant_(head.fc.weight, float("nan"))
    runner = EagleRunner(head, on)
    with refused(speclab.LogitsError, "broken", "NaN"):
        runner.extend([9, 2], torch.ones(2, 32))
    assert (runner.length, runner.cache.length, runner.calls) == (0, 0, 0)
