from __future__ import annotations

import json
from math import exp
from pathlib import Path

import pytest
import torch
from support.heads import random_block, random_head

import speclab
from speclab.heads.block_head import BlockRunner
from speclab.heads.files import read_head
from speclab.models.runner import Runner
from training import heads as recipe
from training.blocks import (
    BlockRecipe,
    MiniBlockConfig,
    Teacher,
    block_loss,
    train_mini_block,
)
from training.blocks import Lesson as BlockLesson
from training.head_export import write_head
from training.heads import HeadsConfig, Lesson, train_head, unrolled_loss
from training.loop import Schedule
from training.model import hidden_states


@pytest.fixture
def config(
    target,
    corpus: Path,
    tokenizer_folder: Path,
    mixture: dict[str, float],
    tmp_path: Path,
    monkeypatch,
):
    monkeypatch.setitem(recipe.MIXTURES, "prose", mixture)
    target.save_pretrained(tmp_path / "target")

    def make(out: str, steps: int, **changes: object) -> HeadsConfig:
        return HeadsConfig(
            subject="prose", corpus=corpus, tokenizer=tokenizer_folder, target=tmp_path / "target", out=tmp_path / out,
            heads=2, feed_forward=24, schedule=Schedule(steps=steps), lengths=((0.0, 16),), depth=3, batch_tokens=128,
            micro_tokens=64, generated_prefix=8, generated_length=24, generated_tokens=500, compile=False, **changes,
        )  # fmt: skip

    return make


EAGLE3 = {"eagle3": True, "layers": (2, 1, 0), "own_output": True}


@pytest.mark.parametrize("kind", [{}, EAGLE3], ids=["1", "3"])
def test_the_loss_is_of_what_a_draft_computes_row_by_row(target, ranked_tokens, kind) -> None:
    """Each row of the unrolled batch is what the head gives that deep in a drafted chain."""
    head = random_head(target, 1, heads=2, key_value_heads=2, feed_forward=24, **kind)
    tokens = torch.randint(0, 320, (9,), generator=torch.Generator().manual_seed(3))
    text = tokens.tolist()
    wanted = target(tokens[None]).logits[0].detach().log_softmax(-1)
    depth = 3
    decay = 0.7
    total = 0.0
    for row in range(depth):
        places = range(row, len(tokens) - 1)
        cuts = [(place - row + 2, place + 2) for place in places]
        ranked = [
            ranked_tokens(head, target, text[:root], text[root:end], 320) for root, end in cuts
        ]
        got = torch.tensor([[log_prob for _, log_prob in sorted(top)] for top in ranked])
        log_probs = wanted[row + 1 : len(tokens)]
        total += decay**row * float((log_probs.exp() * (log_probs - got)).sum(-1).mean())
    output = target.get_output_embeddings().weight.detach()
    states, last = (
        hidden_states(target, tokens[None], layers).detach()
        for layers in (head.config.layers, (-1,))
    )
    lesson = Lesson(output[tokens[None, 1:]], states[:, :-1], last[:, 1:])
    loss = unrolled_loss(head, lesson, output, depth, decay, 0.0).detach()
    assert float(loss) == pytest.approx(total / sum(decay**row for row in range(depth)), rel=1e-4)


def test_training_learns_and_saves_a_head_that_drafts(config, target, tmp_path: Path) -> None:
    trained = train_head(config("heads", 60, kind="EAGLE-3.1", draft_vocab_size=200))
    log = [
        json.loads(line) for line in (tmp_path / "heads/prose/log.jsonl").read_text().splitlines()
    ]
    losses = [entry["loss"] for entry in log]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    again = read_head(tmp_path / "heads/prose/head", Runner(target, trained.config.target))
    for name, weight in trained.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], weight, rtol=2e-3, atol=1e-3)
    for layout in ("EAGLE", "speculators"):
        write_head(again, tmp_path / layout, layout)
        theirs = read_head(tmp_path / layout, Runner(target))
        assert all(
            torch.equal(tensor, theirs.state_dict()[name])
            for name, tensor in again.state_dict().items()
        )
        pair = speclab.load_pair(target=target, heads=tmp_path / layout)
        tree = speclab.DraftHead(node_budget=8, depth=3, children=3)
        plain = speclab.Autoregressive()
        outputs = [
            speclab.generate(pair, strategy, [1, 2, 3], max_new_tokens=16)
            for strategy in (tree, plain)
        ]
        assert outputs[0].token_ids == outputs[1].token_ids


@torch.no_grad()
@pytest.mark.parametrize("kind", [{}, {"markov_rank": 6}, {"causal": True}], ids=str)
def test_the_loss_is_of_what_a_block_drafts_and_no_text_sees_another(target, kind) -> None:
    """Two texts side by side; the weighted mean of KL(target || head) over the places of each block."""
    head = random_block(
        target, 1, ids=list(range(0, 320, 2)), layers=(1, 2), heads=2, key_value_heads=2, **kind
    )
    texts = [torch.randint(0, 320, (n,)).tolist() for n in (12, 10)]
    anchors = [[3, 9], [2, 5]]
    runner = Runner(target)
    gamma = 3.0
    total = 0.0
    counted = 0.0
    for text, places in zip(texts, anchors, strict=True):
        for anchor in places:
            on = runner.fork()
            drafts = BlockRunner(head, runner)
            on.watch((1, 2))
            on.logits(text[:anchor])
            rows = drafts.draft(text[anchor], on.hidden.rows(0, anchor, (1, 2))).rows[
                :, head.token_ids
            ]
            for depth in range(1, min(5, len(text) - anchor)):
                said = (
                    target(torch.tensor([text[: anchor + depth]]))
                    .logits[0, -1, head.token_ids]
                    .log_softmax(-1)
                )
                weight = exp(-(depth - 1) / gamma)
                row = rows[depth - 1]
                if head.markov_head is not None and depth > 1:  # the first row has its bias
                    row = row + head.markov_head(torch.tensor(text[anchor + depth - 1]))
                total += weight * float((said.exp() * (said - row.log_softmax(-1))).sum())
                counted += weight
    parts = [
        hidden_states(target, torch.tensor([text]), (0, 1, 2, -1)).split(16, dim=-1)
        for text in texts
    ]
    embeddings, first, second, last = (torch.cat(each, dim=1) for each in zip(*parts, strict=True))
    owner = torch.tensor([[0] * 12 + [1] * 10])
    lesson = BlockLesson(
        torch.tensor([[*texts[0], *texts[1]]]),
        embeddings,
        torch.cat((first, second), dim=-1),
        last,
        torch.ones(1, 22),
        owner,
    )
    output = target.get_output_embeddings().weight.detach()[head.token_ids]
    mask = target.get_input_embeddings().weight.detach()[3]
    where = torch.tensor([[*anchors[0], *(12 + anchor for anchor in anchors[1])]])
    recipe = BlockRecipe(out=Path("unused"), schedule=Schedule(), gamma=gamma)
    loss = block_loss(head, lesson, where, Teacher(None, None, mask, output), recipe)
    assert float(loss) == pytest.approx(total / counted, rel=1e-4)


def losses_of(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_block_head_learns_and_then_its_bias_alone(
    config, target, mixture, tmp_path: Path, resumed
) -> None:
    def recipe(out: str, steps: int, **changes: object) -> MiniBlockConfig:
        shared = config(out, steps, draft_vocab_size=200).model_dump(
            include=set(MiniBlockConfig.model_fields) - {"mixture", "eta"}
        )
        shape = {"layers": (1, 2), "block_size": 4, "anchors": 3}
        return MiniBlockConfig(**shared, mixture=mixture, **shape, **changes)

    def same(head, saved: dict[str, torch.Tensor]) -> None:
        for name, weight in head.state_dict().items():
            torch.testing.assert_close(saved[name], weight, rtol=2e-3, atol=1e-3)

    trained = train_mini_block(recipe("block", 60))
    losses = losses_of(tmp_path / "block")
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    again = read_head(tmp_path / "block/head", Runner(target, "mini/target"))
    same(trained, again.state_dict())

    bias = {"start": tmp_path / "block/head", "markov_rank": 8, "eta": 3.0, "smoothing": 0.5}
    biased = train_mini_block(recipe("bias", 60, **bias))
    losses = losses_of(tmp_path / "bias")
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    loaded = read_head(tmp_path / "bias/head", Runner(target, "mini/target"))
    assert loaded.config.markov_rank == 8
    same(biased, loaded.state_dict())
    for name, weight in again.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)
    assert resumed(lambda out: train_mini_block(recipe(out, 6, **bias)))

    fit = {"start": tmp_path / "bias/head", "fit_temperature": True}
    fitted = train_mini_block(recipe("fit", 1, **fit))
    assert 0.5 < fitted.config.temperature < 2
    kept = read_head(tmp_path / "fit/head", Runner(target, "mini/target")).config
    assert kept.temperature == pytest.approx(fitted.config.temperature, abs=1e-3)
    assert kept.markov_rank == 8
