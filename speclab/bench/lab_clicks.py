"""Scenarios for timing the lab: real trees of 60 nodes, a tree of 256 over a long prefix, and a run kept in history."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from speclab.bench.clicks import PHASE_VIEWS, VIEWS, ClickRow, Clicks, measured, notebook
from speclab.trace.files import load_trace
from speclab.trace.records import Trace

STEP_MS, HISTORY_MS, PHASE_MS, SHOWN_MS = 150.0, 100.0, 60.0, 3000.0
WARM_UP = 3

_CLOCK = """
from IPython.display import display
from ipywidgets import HTML

clock = HTML()
clock.add_class("speclab-clock")


def tell(change):
    step = change["new"].step
    clock.value = f"{1000 * sum(step.seconds.values()):.3f}" if step else "0"


lab.state.observe(tell, names="frame")
display(lab, clock)
"""
_SHIPPED = """
import speclab

strategy = speclab.FixedTree(depth=6, branching=4, prune_probability=0, node_budget=60)
lab = speclab.Lab(strategy=strategy, max_new_tokens=512, stop_at_eos=False)
"""
_LONG = """
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

import speclab

torch.manual_seed(0)
sizes = dict(vocab_size=2048, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
target, draft = (GPTNeoXForCausalLM(GPTNeoXConfig(max_position_embeddings=8192, **sizes)) for _ in range(2))
strategy = speclab.FixedTree(depth=6, branching=4, prune_probability=0, node_budget=256)
prompt = torch.randint(2048, (4096,)).tolist()
lab = speclab.Lab(speclab.load_pair(target=target, draft=draft), strategy, prompt=prompt, temperature=1.0)
"""


class KeptRow(BaseModel):
    """What a history of so many iterations takes."""

    model_config = ConfigDict(frozen=True)

    iterations: int
    nodes: float
    """Of a tree, on average."""
    memory_mib: float
    """Of Python and numpy, after opening the file: `tracemalloc`."""
    file_mib: float


def clicks(count: int = 30) -> Iterator[ClickRow]:
    """Rows as they are measured: the shipped family with trees of 60 nodes, then a random pair with trees of 256."""
    with notebook(_SHIPPED + _CLOCK) as opened:
        yield measured("lab visible, bundled trace", [opened.show()], target=SHOWN_MS)
        yield from _actions(opened, count, "60 nodes", 1)
    with notebook(_LONG + _CLOCK) as opened:
        opened.show(empty=True)
        yield from _actions(opened, count, "256 nodes, prefix 4,096", 2)


def _actions(opened: Clicks, count: int, of: str, times: int) -> Iterator[ClickRow]:
    took, model = [], []
    for i in range(WARM_UP + count):
        spent = opened.click("step", VIEWS[1:] if i == 0 else VIEWS)
        if i >= WARM_UP:
            took.append(spent)
            model.append(opened.model_ms())
    yield measured(f"Step, {of}", took, model, times * STEP_MS)
    for action, name, views, target in (
        ("back in history", "back", VIEWS, HISTORY_MS),
        ("forward in history", "step", VIEWS, HISTORY_MS),
        ("phase step", "phase-back", PHASE_VIEWS, PHASE_MS),
    ):
        yield measured(f"{action}, {of}", [opened.click(name, views) for _ in range(count)], target=times * target)


def kept(iterations: int, decode: Callable[[int], Trace]) -> Iterator[KeptRow]:
    """Memory and file of half a history and of the whole: twice as much of each, if both grow linearly."""
    trace = decode(iterations)
    for count in (iterations // 2, iterations):
        part = replace(trace, steps=trace.steps[:count])
        with tempfile.TemporaryDirectory() as folder:
            path = part.save(Path(folder) / "run.json.gz")
            size = path.stat().st_size
            tracemalloc.start()
            try:
                opened = load_trace(path)
                memory, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        nodes = sum(len(step.tree) for step in opened.steps) / len(opened.steps)
        yield KeptRow(iterations=count, nodes=nodes, memory_mib=memory / 2**20, file_mib=size / 2**20)


def decoded(iterations: int) -> Trace:
    """A run of the shipped family with trees of 60 nodes, over as many prompts' room as it needs."""
    from speclab.drafters.fixed_tree import FixedTree
    from speclab.engine.session import Session
    from speclab.models.pair import load_pair
    from speclab.prompts import examples

    strategy = FixedTree(depth=6, branching=4, prune_probability=0, node_budget=60)
    session = Session(load_pair(), strategy, examples()[0].text, max_new_tokens=900, stop_at_eos=False, temperature=1.0)
    while len(session.steps) < iterations and not session.done:
        session.step()
    return session.trace
