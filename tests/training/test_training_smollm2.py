from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from support.tiny import tiny
from transformers import AutoTokenizer

import speclab
from training.answers import asks
from training.loop import Schedule
from training.smollm2 import ChatHeadConfig, WholeRecipe, make_heads, train_chat_head
from training.states import Store

LAYERS = (1, 2, 3, -1)
TEMPLATE = (
    "{% for m in messages %}<|a b c d|>{{ m['role'] }}\n{{ m['content'] }}\n{% endfor %}model\n"
)


@pytest.fixture(scope="module")
def folder(tokenizer_folder, tmp_path_factory):
    """A target with tokenizer and chat template."""
    out = tmp_path_factory.mktemp("llama")
    tiny(
        "llama", vocab=320, num_hidden_layers=4, max_position_embeddings=512, eos_token_id=0
    ).save_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(out)
    return out


@pytest.fixture(scope="module")
def texts(write_source, tmp_path_factory):
    """A corpus of the sources that prompts are made of, a few documents each."""
    out = tmp_path_factory.mktemp("texts")
    story = "\n\n".join(
        f"The fox met the hen on day {i}. " + "They spoke of the owl and the hare. " * 6
        for i in range(4)
    )
    for name in ("books", "books_simple", "wikitext2_train", "tinystories", "python_stdlib"):
        write_source(out, name, [story] * 4)
    write_source(
        out, "gsm8k_train", [f"Question: What is {i} + 3?\nAnswer: {i + 3}" for i in range(8)]
    )
    write_source(
        out, "mbpp_train", ['"""\nWrite a function.\nassert f(1)\n"""\ndef f(x):\n    return x'] * 4
    )
    return out


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    out = tmp_path_factory.mktemp("prompts")
    for name in ("mtbench", "specbench", "humaneval", "mbpp", "gsm8k", "wikitext2", "pg19like"):
        lines = [
            json.dumps({"prompt": f"What does the owl say about {name} and {i} hens?"})
            for i in range(2)
        ]
        (out / f"{name}.jsonl").write_text("\n".join(lines))
    return out


def test_the_recipe_makes_heads_that_draft(folder, texts, prompts, tmp_path, resumed):
    small: dict[str, Any] = {
        "name": "llama", "kept": LAYERS, "layers": (1, 2, 3), "feed_forward": 48, "draft_vocab_size": 160,
        "lengths": ((0.0, 16),), "schedule": Schedule(steps=6), "batch_tokens": 128, "micro_tokens": 64,
        "compile": False,
    }  # fmt: skip
    recipe = WholeRecipe(
        target=folder, corpus=texts, prompts=prompts, out=tmp_path / "whole", heads=small,
        answers={"layers": LAYERS, "prompts": 48, "new_tokens": 24, "batch": 8},
        figures={"per_kind": 2, "new_tokens": 8, "depth": 2},
    )  # fmt: skip
    figures = make_heads(recipe)
    answers = recipe.out / "answers"
    assert len(Store(answers).documents) == 48
    assert {ask.kind for ask in asks(texts, 0)} == {"chat", "code", "math", "prose", "correction"}
    assert figures == make_heads(recipe), "all of it is there"

    def again(out):
        config = ChatHeadConfig(
            subject="base", target=folder, texts=[answers], out=tmp_path / out, **small
        )
        return train_chat_head(config)

    assert resumed(again)
    heads = [recipe.out / subject / "head" for subject in ("chat", "code")]
    assert json.loads((recipe.out / "figures.json").read_text())["heads"].keys() == {"chat", "code"}
    assert all(len(found["agreement"]["math"]) == 2 for found in figures["heads"].values())
    named = tmp_path / "llama"
    shutil.copytree(folder, named)
    pair = speclab.load_pair(target=named, heads=heads)
    speclab.generate(pair, speclab.DraftHead(depth=3), [5, 6, 7], max_new_tokens=12, check=True)
