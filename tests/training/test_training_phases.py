import json

from training.draft import DISTILL_DATA, DistilConfig, distil
from training.evaluate import EvaluateConfig, evaluate
from training.loop import Schedule
from training.model import Shape
from training.target import PretrainConfig, UnlikelihoodConfig, pretrain, unlikelihood

MIXTURE = {"tales": 0.75, "sums": 0.25}
TINY = Shape(hidden=16, layers=2, heads=2, context=64, vocab_size=320)


def test_every_phase_runs_from_the_one_before(corpus, tokenizer_folder, resumed, tmp_path):
    shared = {"corpus": corpus, "tokenizer": tokenizer_folder, "mixture": MIXTURE}

    def pretrained(out, steps=6):
        return pretrain(
            PretrainConfig(
                **shared, out=tmp_path / out, shape=TINY, schedule=Schedule(steps=steps, peak_lr=0.02),
                lengths=((0.0, 16), (0.5, 32)), batch_tokens=128, micro_tokens=64, compile=False,
            )
        )  # fmt: skip

    assert resumed(pretrained)
    pretrained("target", 10)
    log = [json.loads(line) for line in (tmp_path / "target/log.jsonl").read_text().splitlines()]
    assert (len(log), log[-1]["tokens"]) == (10, 10 * 128)
    assert log[-1]["loss"] < log[0]["loss"] - 1
    steps = Schedule(steps=2)
    unlikelihood(
        UnlikelihoodConfig(
            **shared, model=tmp_path / "target/model", out=tmp_path / "unlikelihood", schedule=steps, rows=4,
            prefix_lengths=[8], prefix_mixture=MIXTURE, new_tokens=56, batch_tokens=32,
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
    assert set(figures["held_out"]) == set(MIXTURE)
    assert {"made", "shipped prose", "shipped unicode"} <= set(figures["prompts"])
    for entry in figures["prompts"].values():
        # a model agrees with itself
        assert entry["agreement_text"] == entry["agreement_own"] == 1.0
