"""A tiny pair, labs that are closed again, and the messages that widgets send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import comm
import pytest
import torch
from lab_tools import PROMPT, Messages, settle
from tiny import tiny

from speclab.lab import Lab
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner


@pytest.fixture(scope="session")
def pair() -> ModelPair:
    """A target, and a draft that agrees with it now and then."""
    draft = tiny("gpt_neox")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for parameter in draft.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.03)
    return ModelPair(Runner(tiny("gpt_neox"), "target"), Runner(draft, "draft"), name="tiny")


@pytest.fixture
def make(pair: ModelPair) -> Iterator[Callable[..., Lab]]:
    """Makes labs, over the tiny pair unless told otherwise, and closes them."""
    labs: list[Lab] = []

    def made(*args: Any, **settings: Any) -> Lab:
        labs.append(Lab(*(args or (pair,)), **({"prompt": PROMPT, "max_new_tokens": 40} | settings)))
        return labs[-1]

    yield made
    for lab in labs:
        assert settle(lab)
        lab.close()


@pytest.fixture
def lab(make: Callable[..., Lab]) -> Lab:
    """A lab over the tiny pair, before its first iteration."""
    return make()


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> Messages:
    """Fills as widgets talk; `clear()` it before the action to look at."""
    sent = Messages()

    def publish(
        self: Any, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **_: Any
    ) -> None:
        sent.append({"id": self.comm_id, "type": msg_type, "data": data, "buffers": len(buffers or ())})

    monkeypatch.setattr(comm.DummyComm, "publish_msg", publish)
    return sent


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are looked up as soon as they are named, and none lies in a cache of the hub's."""
    monkeypatch.setattr("speclab.lab.models.PATIENCE", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of one's own, without a tokenizer."""
    tiny("llama").save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"
