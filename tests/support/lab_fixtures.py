"""A tiny pair, labs that are closed again, and a page that hears what labs send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import comm
import pytest
import torch
from support.lab_page import PATIENCE, PROMPT, Page
from support.tiny import tiny

import speclab
from speclab.lab import Lab
from speclab.models.runner import Runner
from speclab.pair import ModelPair

SMALL = speclab.DynaTree(
    node_budget=12,
    stop_probability=0,
    deep_probability=0,
    prune_probability=0,
    max_branches=3,
    history="off",
)
"""Trees of a dozen nodes."""


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
        labs.append(
            Lab(*(args or (pair,)), **({"prompt": PROMPT, "max_new_tokens": 40} | settings))
        )
        return labs[-1]

    yield made
    for lab in labs:
        lab.close()


@pytest.fixture
def lab(make: Callable[..., Lab]) -> Lab:
    """A lab over the tiny pair, its first iteration decoded."""
    lab = make()
    assert lab.wait(PATIENCE)
    return lab


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Fills as widgets talk to the browser."""
    messages: list[dict[str, Any]] = []

    def publish(
        self: Any,
        msg_type: str,
        data: Any = None,
        metadata: Any = None,
        buffers: Any = None,
        **_: Any,
    ) -> None:
        messages.append(
            {"id": self.comm_id, "type": msg_type, "data": data, "buffers": len(buffers or ())}
        )

    monkeypatch.setattr(comm.DummyComm, "publish_msg", publish)
    return messages


@pytest.fixture
def page(make: Callable[..., Lab], sent: list[dict[str, Any]]) -> Page:
    """A page that shows a lab, its first iteration decoded."""
    return Page(make(max_new_tokens=120), sent)


@pytest.fixture
def small_page(make: Callable[..., Lab], sent: list[dict[str, Any]]) -> Page:
    """A page on the settings of a small tree, at its second iteration."""
    page = Page(make(strategy=SMALL, max_new_tokens=120), sent)
    page.do("step")
    page.go(2, tab="settings")
    return page
