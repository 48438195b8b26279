from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from speclab import SpeclabError
from training.__main__ import PHASES, main
from training.draft import DISTILL_DATA, DistilConfig, distil
from training.evaluate import EvaluateConfig, evaluate
from training.heads import HeadsConfig
from training.loop import Schedule, State
from training.model import Shape, build, continue_all, logits
from training.target import (
    PretrainConfig,
    UnlikelihoodConfig,
    pretrain,
    unlikelihood,
    unlikelihood_loss,
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


def test_the_lean_forward_equals_the_module(target) -> None:
    tokens = torch.randint(0, TINY.vocab_size, (3, TINY.context))
    assert torch.allclose(logits(target, tokens), target(tokens).logits, atol=2e-5)


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


def test_a_checkpoint_is_never_half_written(tmp_path: Path, monkeypatch) -> None:
    state = State(build(TINY, 0), 0.0, tmp_path / "checkpoint.pt")
    state.save({"at": 1})

    def broken(_: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError):
        state.save({"at": 2})
    assert state.restore() == {"at": 1}


def test_the_schedule_rises_stays_and_falls() -> None:
    schedule = Schedule(steps=100, peak_lr=1.0, warm_up=0.1, flat_until=0.5, final=0.2)
    rates = [
        schedule.learning_rate(schedule.progress(step, 0.0)) for step in (0, 5, 10, 50, 75, 100)
    ]
    assert rates == pytest.approx([0.02, 0.5, 1.0, 1.0, 0.6, 0.2])
    assert Schedule(minutes=2).progress(7, 60.0) == 0.5


def test_continuations_equal_one_by_one_decoding_and_a_prompt_too_long_loses_its_beginning(
    target,
) -> None:
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(1, 320, (n,), generator=generator).tolist() for n in (3, 11, 7)]
    made = continue_all(target, prompts, 12)
    for prompt, row in zip(prompts, made, strict=True):
        tokens = list(prompt)
        for token in row:
            assert token == int(target(torch.tensor([tokens])).logits[0, -1].argmax())
            tokens.append(token)
    long = torch.randint(1, 320, (100,), generator=generator).tolist()
    assert continue_all(target, [long], 8) == continue_all(target, [long[-56:]], 8)


def test_unlikelihood_is_about_repeated_tokens_alone(target) -> None:
    prefix = [5, 6]
    fresh = list(range(10, 26))
    loop = [1, 2, 3, 4] * 4
    assert unlikelihood_loss(target, [(prefix, fresh)]).item() == 0.0
    tokens = torch.tensor([prefix + loop])
    with torch.autocast("cpu", torch.bfloat16):
        probs = logits(target, tokens[:, :-1]).float().softmax(-1)[0]
    third_time = range(2 + 4 + 7, 18)  # a 4-gram may come twice
    wanted = -sum(torch.log(1 - probs[i - 1, tokens[0, i]]) for i in third_time)
    assert unlikelihood_loss(target, [(prefix, loop)]).item() == pytest.approx(
        wanted.item(), rel=1e-3
    )


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


def test_the_command_line_takes_a_recipes_fields(tmp_path: Path, monkeypatch) -> None:
    ran = []
    monkeypatch.setitem(PHASES, "heads", (HeadsConfig, ran.append))
    main(
        [
            "heads",
            "code",
            "--out",
            str(tmp_path),
            "--generated-share",
            "0.25",
            "--steps",
            "7",
            "--heads",
            "3",
        ]
    )
    (config,) = ran
    assert (config.subject, config.out, config.generated_share, config.heads) == (
        "code",
        tmp_path,
        0.25,
        3,
    )
    assert (config.schedule.steps, config.schedule.peak_lr) == (7, 3e-3)
    with pytest.raises(SystemExit, match="does not exist"):
        main(["tokenizer", "--corpus", str(tmp_path / "none")])
