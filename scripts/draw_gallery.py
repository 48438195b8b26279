"""Decode eight runs, and write their links with a sentence and a picture each as docs/gallery.md.

python scripts/draw_gallery.py    needs SmolLM2 (`speclab fetch smollm2`), Playwright and a Chromium

The pictures are drawn by the live page from the links.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import speclab
from scripts.draw_readme import BROWSERS, IMAGES, Quiet
from speclab.trace.records import Step, Trace

PAGE = Path(__file__).parents[1] / "docs" / "gallery.md"
QUESTION = "What is the capital of France, and what is it known for?"
STORY = "Once upon a time there lived a poor miller who had three daughters."
TOP = (
    "# Eight runs to look at\n\n"
    "Each picture is a link: it opens this iteration, alive, in a browser, without models and "
    "without a kernel. The links contain the runs ([format](link.md)); "
    "`python scripts/draw_gallery.py` decoded them.\n"
)


@dataclass(frozen=True)
class Exhibit:
    """A run, which of its iterations is shown, and what there is to see."""

    name: str
    title: str
    sentence: str
    decode: Callable[[], Trace]
    best: Callable[[Step], Any]


@cache
def chat() -> Trace:
    """A chat model's answer."""
    prompt = [{"role": "user", "content": QUESTION}]
    return decoded("smollm2", speclab.DynaTree(node_budget=16), prompt)


def decoded(pair: str, strategy: Any, prompt: Any) -> Trace:
    """A run of 60 tokens."""
    session = speclab.Session(speclab.load_pair(pair), strategy, prompt, max_new_tokens=60)
    session.run()
    return session.trace


def off_the_first_branch(step: Step) -> int:
    """Accepted nodes that a chain would not have had: second and later children."""
    children = step.tree.children
    parents = step.tree.parent.tolist()
    others = [node for node in step.accepted if children[parents[node]][0] != node]
    return len(others) * 100 + len(step.accepted)


def smallest_margin(step: Step) -> float:
    """How close two answers of the target are after a node of the path, negative."""
    margins = [1.0]
    for node in step.path:
        best, second, *_ = step.nodes[node].target_top
        margins.append(best[1] - second[1])
    return -min(margins)


def with_a_fault() -> Trace:
    """A run whose drafted rows are one position too far, with what a check finds."""
    pair = speclab.load_pair()
    broken = speclab.clinic.broken(pair, "wrong positions")
    session = speclab.Session(broken, speclab.FixedTree(depth=3), STORY, max_new_tokens=40)
    session.run()
    return speclab.clinic.marked(session.trace, pair)


def by_paths() -> Trace:
    """A run of a state-space model with random weights."""
    import torch
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(3)
    config = MambaConfig(vocab_size=4096, hidden_size=64, num_hidden_layers=2, state_size=8)
    model = MambaForCausalLM(config).eval()
    tokenizer = speclab.load_pair().tokenizer
    pair = speclab.load_pair(target=model, tokenizer=tokenizer)
    session = speclab.Session(pair, speclab.Goose(node_budget=12), STORY, max_new_tokens=40)
    session.run()
    return session.trace


def breadth(step: Step) -> int:
    """How differently nodes branch: the most children, if a node above others has one child."""
    counts = [len(children) for children in step.tree.children if children]
    return max(counts, default=0) * len(step.accepted) if 1 in counts else 0


EXHIBITS = (
    Exhibit(
        "tree",
        "A tree that wins",
        "The target leaves the draft's first choice, and finds its own among the second and third.",
        chat,
        off_the_first_branch,
    ),
    Exhibit(
        "chain",
        "A chain that wins",
        "Here the draft's most probable token is right again and again: branches would gain nothing.",
        lambda: decoded("mini", speclab.LinearSpeculation(draft_tokens=8), STORY),
        lambda step: len(step.accepted),
    ),
    Exhibit(
        "wrong",
        "A draft that is wrong",
        "The whole tree is rejected; the target's own token is all that this pass writes.",
        chat,
        lambda step: (not step.accepted) * len(step.tree),
    ),
    Exhibit(
        "tie",
        "A near-tie",
        "Two tokens are almost equally probable for the target: in half precision rounding may decide.",
        chat,
        smallest_margin,
    ),
    Exhibit(
        "fault",
        "A fault found",
        "The drafted rows of this pass were one position too far: a check names the rows and the cause.",
        with_a_fault,
        lambda step: (len(step.findings) > 0) * (1000 - step.index),
    ),
    Exhibit(
        "heads",
        "Two heads",
        "Two draft heads propose a tree each, and the target verifies the one whose mean confidence is higher.",
        lambda: decoded("mini", speclab.DualDraft(node_budget=10), STORY),
        lambda step: len(step.accepted),
    ),
    Exhibit(
        "paths",
        "A state-space model, by paths",
        "Mamba takes no tree mask: each path from root to leaf is a row behind a copy of the cache. "
        "Its weights are random.",
        by_paths,
        lambda step: len(step.paths),
    ),
    Exhibit(
        "threshold",
        "DynaTree's threshold",
        "Where the draft is sure a node gets one child, where it is not it gets three.",
        chat,
        breadth,
    ),
)


def main() -> None:
    lines = [TOP]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        speclab.export_live(folder)
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for exhibit in EXHIBITS:
            trace = exhibit.decode()
            index = max(trace.steps, key=exhibit.best).index
            link = trace.link(first=index, last=index)
            page = browser.new_page(viewport={"width": 1000, "height": 900}, bypass_csp=True)
            data = link.partition("#")[2]
            page.goto(f"http://127.0.0.1:{server.server_port}/index.html#{data}")
            page.wait_for_selector(".speclab-tree .main-svg")
            page.wait_for_timeout(1500)  # nothing moves any more
            picture = page.locator(".speclab-tree").screenshot(type="jpeg", quality=70)
            (IMAGES / f"gallery_{exhibit.name}.jpg").write_bytes(picture)
            page.close()
            image = f"![{exhibit.title}](images/gallery_{exhibit.name}.jpg)"
            lines.append(f"## {exhibit.title}\n\n{exhibit.sentence}\n\n[{image}]({link})\n")
        server.shutdown()
        browser.close()
    PAGE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
