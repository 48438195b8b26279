from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from speclab import SpeclabError
from training.draft import DISTILL_DATA, DistilConfig, distil
from training.evaluate import EvaluateConfig, evaluate
from training.loop import Schedule
from training.model import Shape
from training.target import (
    PretrainConfig,
    UnlikelihoodConfig,
    pretrain,
    unlikelihood,
)

TINY = Shape(hidden=16, layers=2, heads=2, context=64, vocab_size=320)


@pytest.fixture
def recipe(corpus: Path, tokenizer_folder: Path, mixture: dict[str, float]):
    def make(out: Path, steps: int) -> PretrainConfig:
        return PretrainConfig(
            corpus=corpus, tokenizer=tokenizer_folder, out=out, shape=TINY, schedule=Schedule(steps=steps),
            lengths=((0.0, 16), (0.5, 32)), mixture=mixture, batch_tokens=128, micro_tokens=64, compile=False,
        )  # fmt: skip

    return make


def test_a_stopped_run_ends_with_the_weights_of_an_unbroken_one(
    recipe, resumed, tmp_path: Path
) -> None:
    assert resumed(lambda out: pretrain(recipe(tmp_path / out, 6)))


def test_pretraining_learns_and_saves_what_transformers_loads(recipe, tmp_path: Path) -> None:
    model = pretrain(recipe(tmp_path, 40))
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == list(range(1, 41))
    assert log[-1]["tokens"] == 40 * 128
    assert log[-1]["loss"] < log[0]["loss"] - 1
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    tokens = torch.randint(0, TINY.vocab_size, (2, 20))
    # saved as float16
    assert torch.allclose(loaded(tokens).logits, model(tokens).logits, atol=2e-2)


def test_a_phase_without_the_one_before_says_so(recipe, tmp_path: Path) -> None:
    config = recipe(tmp_path / "target", 1)
    with pytest.raises(SpeclabError, match="python -m training tokenizer"):
        pretrain(config.model_copy(update={"tokenizer": tmp_path}))
    with pytest.raises(SpeclabError, match="no model"):
        distil(
            DistilConfig(
                corpus=config.corpus,
                tokenizer=config.tokenizer,
                target=tmp_path,
                out=tmp_path / "out",
            )
        )


def test_every_phase_runs_from_the_one_before(recipe, tmp_path: Path) -> None:
    config = recipe(tmp_path / "target", 4)
    pretrain(config)
    shared = {"corpus": config.corpus, "tokenizer": config.tokenizer, "mixture": config.mixture}
    steps = Schedule(steps=2)
    unlikelihood(
        UnlikelihoodConfig(
            **shared, model=tmp_path / "target/model", out=tmp_path / "unlikelihood", schedule=steps, rows=4,
            prefix_lengths=[8], prefix_mixture=config.mixture, new_tokens=56, batch_tokens=32,
            lengths=((0.0, 16),), micro_tokens=32,
        )
    )  # fmt: skip
    distil(
        DistilConfig(
            **shared, target=tmp_path / "unlikelihood/model", out=tmp_path / "draft", shape=TINY, schedule=steps,
            generated_prefix=8, generated_length=24, generated_tokens=500, batch_tokens=64, micro_tokens=32,
            compile=False,
        )
    )  # fmt: skip
    assert (tmp_path / "draft" / f"{DISTILL_DATA}.bin").stat().st_size >= 1000
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    (prompts / "made.jsonl").write_text(
        json.dumps({"prompt": "The fox", "reference": " met the hen."}) + "\n"
    )
    figures = evaluate(
        EvaluateConfig(
            **shared, prompts=prompts, target=tmp_path / "unlikelihood/model", draft=tmp_path / "unlikelihood/model",
            out=tmp_path / "figures.json", new_tokens=32,
        )
    )  # fmt: skip
    assert json.loads((tmp_path / "figures.json").read_text()) == figures
    assert set(figures["held_out"]) == set(config.mixture)
    assert {"made", "shipped prose", "shipped unicode"} <= set(figures["prompts"])
    for entry in figures["prompts"].values():
        # a model agrees with itself
        assert entry["agreement_text"] == entry["agreement_own"] == 1.0
