from __future__ import annotations

import json
from math import exp
from pathlib import Path

import pytest
import torch
from heads import random_block

import speclab
from speclab.models.block_head import BlockRunner
from speclab.models.head_files import read_head
from speclab.models.runner import Runner
from training.blocks import Lesson, MiniBlockConfig, block_loss, train_mini_block
from training.loop import Schedule
from training.model import hidden_states

pytestmark = pytest.mark.model


@torch.no_grad()
def test_the_loss_is_of_what_a_block_drafts_and_no_text_sees_another(target) -> None:
    """Two texts side by side; the weighted mean of KL(target || head) over the places of each block."""
    head = random_block(target, 1, ids=list(range(0, 320, 2)), layers=(1, 2), heads=2, key_value_heads=2)
    texts, anchors = [torch.randint(0, 320, (n,)).tolist() for n in (12, 10)], [[3, 9], [2, 5]]
    runner, gamma, total, counted = Runner(target), 3.0, 0.0, 0.0
    for text, places in zip(texts, anchors, strict=True):
        for anchor in places:
            on, drafts = runner.fork(), BlockRunner(head, runner)
            on.watch((1, 2))
            on.logits(text[:anchor])
            rows = drafts.draft(text[anchor], on.hidden.rows(0, anchor, (1, 2))).rows[:, head.token_ids]
            for depth in range(1, min(5, len(text) - anchor)):
                said = target(torch.tensor([text[: anchor + depth]])).logits[0, -1, head.token_ids].log_softmax(-1)
                weight = exp(-(depth - 1) / gamma)
                total += weight * float((said.exp() * (said - rows[depth - 1].log_softmax(-1))).sum())
                counted += weight
    parts = [hidden_states(target, torch.tensor([text]), (0, 1, 2)).detach().split(16, dim=-1) for text in texts]
    embeddings, first, last = (torch.cat(each, dim=1) for each in zip(*parts, strict=True))
    owner = torch.tensor([[0] * 12 + [1] * 10])
    lesson = Lesson(embeddings, torch.cat((first, last), dim=-1), last, torch.ones(1, 22), owner)
    output = target.get_output_embeddings().weight.detach()[head.token_ids]
    mask = target.get_input_embeddings().weight.detach()[3]
    where = torch.tensor([[*anchors[0], *(12 + anchor for anchor in anchors[1])]])
    loss = block_loss(head, lesson, where, mask, output, gamma)
    assert float(loss) == pytest.approx(total / counted, rel=1e-4)


def test_training_learns_and_saves_a_head_that_drafts(
    target, corpus: Path, tokenizer_folder: Path, mixture: dict[str, float], tmp_path: Path
) -> None:
    target.save_pretrained(tmp_path / "target")
    config = MiniBlockConfig(
        corpus=corpus, tokenizer=tokenizer_folder, target=tmp_path / "target", out=tmp_path / "block", mixture=mixture,
        layers=(1, 2), feed_forward=24, draft_vocab_size=200, block_size=4, anchors=3, schedule=Schedule(steps=60),
        lengths=((0.0, 16),), batch_tokens=128, micro_tokens=64, generated_prefix=8, generated_length=24,
        generated_tokens=500, compile=False,
    )  # fmt: skip
    trained = train_mini_block(config)
    losses = [json.loads(line)["loss"] for line in (config.out / "log.jsonl").read_text().splitlines()]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    again = read_head(config.out / "head", Runner(target, "mini/target"))
    for name, weight in trained.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], weight, rtol=2e-3, atol=1e-3)
    again.config = again.config.model_copy(update={"target": ""})  # whose name this target does not have
    pair = speclab.load_pair(target=target, heads=again)
    outputs = [
        speclab.generate(pair, strategy, [1, 2, 3], max_new_tokens=16)
        for strategy in (speclab.DDTree(node_budget=8), speclab.Autoregressive())
    ]
    assert outputs[0].token_ids == outputs[1].token_ids
