from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from heads import random_head

import speclab
from speclab.drafters.draft_forward import HeadForward, Row
from speclab.models.head_files import read_head
from speclab.models.heads import HeadRunner
from speclab.models.runner import Runner
from training import heads as recipe
from training.heads import HeadsConfig, Lesson, train_head, unrolled_loss
from training.loop import Schedule
from training.model import hidden_states


@pytest.fixture
def config(target, corpus: Path, tokenizer_folder: Path, mixture: dict[str, float], tmp_path: Path, monkeypatch):
    monkeypatch.setitem(recipe.MIXTURES, "prose", mixture)
    target.save_pretrained(tmp_path / "target")

    def make(out: str, steps: int, **changes: object) -> HeadsConfig:
        return HeadsConfig(
            subject="prose", corpus=corpus, tokenizer=tokenizer_folder, target=tmp_path / "target", out=tmp_path / out,
            heads=2, feed_forward=24, schedule=Schedule(steps=steps), lengths=((0.0, 16),), depth=3, batch_tokens=128,
            micro_tokens=64, generated_prefix=8, generated_length=24, generated_tokens=500, compile=False, **changes,
        )  # fmt: skip

    return make


def test_the_loss_is_of_what_a_draft_computes_row_by_row(target) -> None:
    """Each row of the unrolled batch is what the head gives that deep in a drafted chain."""
    head = random_head(target, 1, heads=2, key_value_heads=2, feed_forward=24)
    tokens = torch.randint(0, 320, (9,), generator=torch.Generator().manual_seed(3))
    wanted = target(tokens[None]).logits[0].detach().log_softmax(-1)
    depth, decay, total = 3, 0.7, 0.0
    for row in range(depth):
        places = range(row, len(tokens) - 1)
        got = torch.stack([_drafted(head, target, tokens.tolist(), place + 1 - row, row) for place in places])
        log_probs = wanted[row + 1 : len(tokens)]
        total += decay**row * float((log_probs.exp() * (log_probs - got)).sum(-1).mean())
    output = target.get_output_embeddings().weight.detach()
    states = hidden_states(target, tokens[None]).detach()
    lesson = Lesson(output[tokens[None, 1:]], states[:, :-1], states[:, 1:])
    loss = unrolled_loss(head, lesson, output, depth, decay, 0.0).detach()
    assert float(loss) == pytest.approx(total / sum(decay**row for row in range(depth)), rel=1e-4)


def _drafted(head, target, tokens: list[int], root: int, rows: int) -> torch.Tensor:
    """The head's log-probs `[V]` after the root at place `root` of the text and `rows` drafted tokens."""
    runner = Runner(target)
    runner.watch((-1,))
    runner.extend(tokens[:root])
    forward = HeadForward(HeadRunner(head, runner), runner, "head", 320)
    top = forward.after_root(tokens[: root + 1])
    for node in range(1, rows + 1):
        top = forward.after([Row(node, node - 1, tokens[root + node])])[0]
    return torch.tensor([log_prob for _, log_prob in sorted(top)])


@pytest.mark.model
def test_a_stopped_run_ends_with_the_weights_of_an_unbroken_one(config, resumed) -> None:
    assert resumed(lambda out: train_head(config(out, 6)))


@pytest.mark.model
def test_training_learns_and_saves_a_head_that_drafts(config, target, tmp_path: Path) -> None:
    trained = train_head(config("heads", 60))
    log = [json.loads(line) for line in (tmp_path / "heads/prose/log.jsonl").read_text().splitlines()]
    losses = [entry["loss"] for entry in log]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    runner = Runner(target, trained.config.target)
    again = read_head(tmp_path / "heads/prose/head", runner)
    for name, weight in trained.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], weight, rtol=2e-3, atol=1e-3)
    pair = speclab.load_pair(target=target, heads=trained.__class__(trained.config.model_copy(update={"target": ""})))
    pair.heads[0].model.load_state_dict(again.state_dict())
    result = speclab.generate(pair, speclab.DraftHead(node_budget=8, depth=3, children=3), [1, 2, 3], max_new_tokens=16)
    assert result.token_ids == speclab.generate(pair, speclab.Autoregressive(), [1, 2, 3], max_new_tokens=16).token_ids
