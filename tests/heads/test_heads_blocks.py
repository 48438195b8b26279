"""Block heads: against the library's own generator, on disk, and what does not fit."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.heads import random_block
from support.pairs import PROMPT
from support.records import ran
from support.tiny import tiny
from transformers import GenerationConfig, MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel
from transformers.generation.candidate_generator import DFlashTokenCandidateGenerator

import speclab
from speclab.heads.block_head import BlockHead, BlockRunner
from speclab.models.runner import Runner
from training.blocks import save_block

SOME = [0, 1, 2, 4, 5, 7, 8, 9, 11, 13, 20, 33, 40, 51, 60]


def target():
    return tiny("llama", num_hidden_layers=5)


def folder_of(head: BlockHead, path):
    save_block(head.half().float(), path / "block")
    return path / "block"


def drafted(runner: BlockRunner, on: Runner, text: list[int]) -> torch.Tensor:
    """The block after a text, of which the cache holds a part; what the draft put into the cache is dropped."""
    last = len(text) - 1
    on.logits(text[on.length : last])
    answer = runner.draft(text[-1], on.hidden.rows(runner.length, last, runner.config.layers))
    runner.crop(last)
    return answer.rows


def as_the_library_has_it(head: BlockHead) -> MuseGlimmerAssistantModel:
    shape = head.config
    positions = {"rope_type": "default", "rope_theta": shape.rope_theta} | (
        shape.rope_scaling or {}
    )
    config = MuseGlimmerAssistantConfig(
        hidden_size=shape.hidden_size, intermediate_size=shape.feed_forward, num_hidden_layers=shape.depth,
        num_attention_heads=shape.heads, num_key_value_heads=shape.key_value_heads, head_dim=shape.head_dim,
        rms_norm_eps=shape.norm_epsilon, rope_parameters=positions,
        max_position_embeddings=256, layer_types=["full_attention"] * shape.depth, block_size=shape.block_size,
        mask_token_id=shape.mask_token_id, target_layer_ids=[layer - 1 for layer in shape.layers],
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = MuseGlimmerAssistantModel(config).eval()
    names = {"hidden_norm": "encoder.output_norm_enc", "fc": "encoder.fc"}
    weights = {}
    for name, tensor in head.state_dict().items():
        part = name.rpartition(".")[0]
        weights[name.replace(part, names.get(part, part))] = tensor
    model.load_state_dict(weights)
    return model


@pytest.mark.parametrize(
    "shape",
    [
        {"layers": (1, 3, 4)},
        {"depth": 3, "layers": (5, 2), "key_value_heads": 1},
        {"layers": (4, 2, 5), "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    ],
)
def test_blocks_and_text_equal_those_of_transformers(shape, monkeypatch):
    model = tiny("llama", num_hidden_layers=5, vocab=8)
    head = random_block(model, 6, block_size=6, **shape)
    seen = {}
    theirs = DFlashTokenCandidateGenerator.get_candidates

    def noted(self, input_ids, *others, **more):
        ids, logits = theirs(self, input_ids, *others, **more)
        if logits is not None:
            seen[tuple(input_ids[0].tolist())] = ids[0, input_ids.shape[1] :].tolist(), logits[0]
        return ids, logits

    monkeypatch.setattr(DFlashTokenCandidateGenerator, "get_candidates", noted)
    prompt = [token % 8 for token in PROMPT]
    settings = GenerationConfig(
        max_new_tokens=40, do_sample=False, speculation_type="dflash", pad_token_id=0
    )
    ids = torch.tensor([prompt])
    text = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        assistant_model=as_the_library_has_it(head),
        generation_config=settings,
    )[0].tolist()
    pair = speclab.load_pair(target=model, heads=head)
    session = ran(pair, speclab.LinearSpeculation(draft_tokens=5), prompt, max_new_tokens=40)
    assert session.prompt_ids + session.token_ids == text
    assert len(seen) > 20
    assert session.metrics.counts.accepted > 0
    on = pair.target.fork()
    runner = pair.heads[0].fork()
    on.watch(head.config.layers)
    for before, (chain, logits) in seen.items():
        rows = drafted(runner, on, list(before))
        assert (rows - logits).abs().max() < 1e-4
        assert rows.argmax(-1).tolist() == chain


@pytest.mark.parametrize("anchor", [False, True])
def test_after_a_token_the_logits_are_those_of_its_depth_plus_its_bias(anchor):
    """The base is the head without its bias; the bias by the formula, token by token."""
    model = target()
    on = Runner(model)
    head = random_block(model, 3, ids=SOME, markov_rank=5, sample_from_anchor=anchor)
    bare = BlockHead(head.config.model_copy(update={"markov_rank": 0}))
    bare.load_state_dict(head.state_dict(), strict=False)
    text = [token % 64 for token in PROMPT]
    runners = [BlockRunner(head.eval(), on), BlockRunner(bare.eval(), on)]
    on.watch(head.config.layers)
    on.logits(text[:-1])
    first = runners[0].after_text(text).rows[:, SOME]
    base = runners[1].after_text(text).rows[:, SOME]
    before = head.markov_head.get_parameter("markov_w1.weight")
    after = head.markov_head.get_parameter("markov_w2.weight")

    def bias(token: int) -> torch.Tensor:
        return torch.stack([sum(before[token] * row) for row in after]).detach()

    assert (first - base - bias(text[-1])).abs().max() < 1e-5
    depths = []
    tokens = []
    for depth in range(1, head.config.drafted):
        depths += [depth] * 3
        tokens += [0, 3, 51]
    biased = runners[0].at_depths(depths, tokens, 0).rows[:, SOME]
    plain = runners[1].at_depths(depths, tokens, 0).rows[:, SOME]
    wanted = plain + torch.stack([bias(token) for token in tokens])
    assert (biased - wanted).abs().max() < 1e-5


# On disk


def changed(path, **changes: object):
    """A folder of a head of `target()`; an entry of its config with a value of None is left out."""
    folder = folder_of(random_block(target(), 1, ids=SOME), path)
    config = json.loads((folder / "config.json").read_text()) | changes
    present = {name: value for name, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(present))
    return folder


def load(heads):
    return speclab.load_pair(target=target(), heads=heads)


def test_what_was_saved_is_read_again_where_its_settings_stand_beside_those_of_qwen3(tmp_path):
    dspark = random_block(target(), 1, ids=SOME, markov_rank=4)
    (read,) = load(folder_of(dspark, tmp_path)).heads
    assert (read.config.kind, read.config.markov_rank) == ("DSpark", 4)
    for name, weight in dspark.state_dict().items():
        assert torch.equal(read.model.state_dict()[name], weight)
    (head,) = load(changed(tmp_path)).heads
    assert (head.name, head.config.kind, head.config.layers) == ("block", "DFlash", (1, 2))
    assert head.model.token_ids.tolist() == SOME
    plain = {"layer_types": ["full_attention"] * 2, "is_causal": False, "output_multiplier": 1}
    flat = changed(tmp_path, dflash_config=None, mask_token_id=3, target_layer_ids=[0, 1], **plain)
    assert load(flat).heads[0].config == head.config


def test_a_folder_of_speculators_counts_layers_by_input_and_brings_matrices_of_the_target(tmp_path):
    head = random_block(target(), 1, ids=SOME, markov_rank=4)
    folder = folder_of(head, tmp_path)
    shape = json.loads((folder / "config.json").read_text())
    own = ("draft_vocab_size", "block_size", "mask_token_id", "markov_rank", "markov_head_type")
    config = {
        "architectures": ["DSparkDraftModel"],
        "speculators_model_type": "dspark",
        "aux_hidden_state_layer_ids": [*head.config.layers],
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "transformer_layer_config": {
            name: value
            for name, value in shape.items()
            if name not in (*own, "architectures", "target_layer_ids")
        },
    } | {name: shape[name] for name in own}
    (folder / "config.json").write_text(json.dumps(config))
    embeddings = target().get_input_embeddings().weight.detach()
    rows = target().get_output_embeddings().weight.detach()[SOME].contiguous()
    left = {"embed_tokens.weight": embeddings, "lm_head.weight": rows}
    left |= {"verifier_norm.weight": torch.ones(3), "t2d": torch.ones(64, dtype=torch.bool)}
    left["confidence_head.proj.weight"] = torch.ones(1, 36)
    save_file(load_file(folder / "model.safetensors") | left, folder / "model.safetensors")
    (read,) = load(folder).heads
    assert read.config.layers == head.config.layers
    assert not read.config.sample_from_anchor
    assert torch.equal(read.model.embed_tokens.weight, embeddings)
    assert torch.equal(read.model.lm_head.weight, rows)
