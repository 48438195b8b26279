import json

import pytest
import torch

import speclab
from speclab.heads.files import read_head
from speclab.models.runner import Runner
from training import heads as recipes
from training.blocks import MiniBlockConfig, train_mini_block
from training.head_export import write_head
from training.heads import HeadsConfig, train_head
from training.loop import Schedule


@pytest.fixture
def config(target, corpus, tokenizer_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(recipes.MIXTURES, "prose", {"tales": 0.75, "sums": 0.25})
    target.save_pretrained(tmp_path / "target")

    def make(out, steps, peak_lr=0.02, **changes):
        return HeadsConfig(
            subject="prose", corpus=corpus, tokenizer=tokenizer_folder, target=tmp_path / "target", out=tmp_path / out,
            heads=2, feed_forward=24, schedule=Schedule(steps=steps, peak_lr=peak_lr), lengths=((0.0, 16),), depth=3,
            batch_tokens=128, micro_tokens=64, generated_prefix=8, generated_length=24, generated_tokens=500,
            compile=False, **changes,
        )  # fmt: skip

    return make


def test_training_learns_and_saves_a_head_that_drafts(config, target, tmp_path):
    trained = train_head(config("heads", 10, kind="EAGLE-3.1", draft_vocab_size=200))
    assert_learned(tmp_path / "heads/prose")
    again = read_head(tmp_path / "heads/prose/head", Runner(target, trained.config.target))
    assert_same(trained, again)
    for layout in ("EAGLE", "speculators"):
        write_head(again, tmp_path / layout, layout)
        assert_same(read_head(tmp_path / layout, Runner(target)), again, 0)
    pair = speclab.load_pair(target=target, heads=[tmp_path / "EAGLE", tmp_path / "speculators"])
    speclab.generate(pair, speclab.DualDraft(), [1, 2, 3], max_new_tokens=16, check=True)


def assert_learned(folder, share=0.6):
    lines = (folder / "log.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert sum(losses[-3:]) < share * sum(losses[:3])


def assert_same(head, other, within=2e-3):
    for name, weight in head.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], weight, rtol=within, atol=within)


def test_a_block_head_learns_and_then_its_bias_alone(config, target, tmp_path, resumed):
    def recipe(out, steps, peak_lr=0.02, **changes):
        shared = config(out, steps, peak_lr, draft_vocab_size=200).model_dump(
            include=set(MiniBlockConfig.model_fields) - {"mixture", "eta"}
        )
        shape = {"layers": (1, 2), "block_size": 4, "anchors": 3}
        return MiniBlockConfig(**shared, mixture=recipes.MIXTURES["prose"], **shape, **changes)

    def saved(out):
        return read_head(tmp_path / out / "head", Runner(target, "mini/target"))

    trained = train_mini_block(recipe("block", 10))
    assert_learned(tmp_path / "block")
    assert_same(trained, saved("block"))

    bias = {"start": tmp_path / "block/head", "markov_rank": 8, "eta": 3.0, "smoothing": 0.5}
    biased = train_mini_block(recipe("bias", 10, 0.1, **bias))
    assert_learned(tmp_path / "bias", 0.85)
    loaded = saved("bias")
    assert_same(biased, loaded)
    for name, weight in saved("block").state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)
    assert resumed(lambda out: train_mini_block(recipe(out, 6, **bias)))

    fitted = train_mini_block(
        recipe("fit", 1, start=tmp_path / "bias/head", fit_temperature=True)
    ).config
    assert 0.5 < fitted.temperature < 2
    kept = saved("fit").config
    assert kept.temperature == pytest.approx(fitted.temperature, abs=1e-3)
    assert loaded.config.markov_rank == kept.markov_rank == 8
