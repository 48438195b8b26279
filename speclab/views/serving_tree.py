"""SGLang's three numbers, drawn with a real iteration: which candidates num_steps and topk give, and which are kept.

SGLang grows EAGLE-2's tree, as `drafters.draft_head.DraftHead` does: its num_steps are levels below the root, topk the
nodes that go on from a level and the candidates that each gives, num_draft_tokens the rows that are verified, the root
among them. Struck out is a candidate that was computed and dropped.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from speclab.errors import NotRecordedError
from speclab.serving.settings import most_draft_tokens
from speclab.trace.records import Step
from speclab.views.draft_tree import GONE, Ink, staged
from speclab.views.explain import hovers, plural
from speclab.views.figures import MUTED, Part, Spec, lines, note
from speclab.views.markup import escape, quoted, table, tag
from speclab.views.networks import OWN, attach, graph


def sglang_drawing(step: Step) -> list[Part]:
    """The tree with what was dropped, what the three numbers did in a sentence, and the table of levels.

    Raises:
        NotRecordedError: the iteration is of another strategy than DraftHead.
    """
    words = tag("p", escape(sglang_sentence(step)), class_="sl-said")
    return [sglang_spec(step), words + sglang_table(step)]


def sglang_spec(step: Step) -> Spec:
    """The kept nodes with their ranks by path probability, and the dropped candidates that the record holds."""
    _, topk = _numbers(step)
    own, both = graph(step, tops=False), graph(step, tops=False)
    for drawn_on in (own, both):
        drawn_on.remove_nodes_from([OWN])
    tips: dict[Any, str] = {node: lines(*tip) for node, tip in enumerate(hovers(step, range(len(step.tree))))}
    for record in step.nodes:
        kept = {int(step.tree.token[child]) for child in step.tree.children[record.index]}
        for rank, (token, prob) in enumerate(record.draft_top[:topk]):
            if token not in kept:
                name, path = f"{record.index} dropped {rank}", record.path_prob * prob
                attach(both, name, token, step.texts, record.index, verdict=GONE, path_prob=path)
                tips[name] = lines(
                    f"{quoted(token, step.texts)} · id {token} · computed and dropped",
                    f"draft {prob:.3f} · path {path:.2g}",
                )
    order = sorted(range(1, len(step.tree)), key=lambda node: -step.nodes[node].path_prob)
    ranks = {node: f"rank {place}" for place, node in enumerate(order, start=1)}
    ink = Ink(lambda _: tips, ranks, (), None, name=f"sglang-tree-{step.index + 1}")
    drawn = staged(both, both, f"SGLang's tree. {sglang_sentence(step)}", ink, 640, 420, 1.0, base=own)
    font = {"size": 11.0, "color": MUTED}
    signs = "rank: by path probability<br>struck out: dropped"  # above the root nothing is drawn
    for trace in drawn["data"]:
        trace["name"] = {"would not be drafted": "computed and dropped"}.get(trace["name"], trace["name"])
    drawn["layout"]["annotations"] = [note(signs, 0, 1, yanchor="top", align="left", font=font)]
    return drawn


def sglang_sentence(step: Step) -> str:
    """What the three numbers of this iteration come to, and what num_draft_tokens may be at most."""
    steps, topk = _numbers(step)
    most, rows = most_draft_tokens(steps, topk), len(step.tree)
    sums = f"{topk}" if steps == 1 else f"{topk} + {steps - 1} · {topk}²"
    return (
        f"num_steps={steps} and topk={topk} give {sums} = {plural(most - 1, 'candidate')} on {plural(steps, 'level')}; "
        f"num_draft_tokens={rows} is the root and the {rows - 1} best of them by path probability, and "
        f"{most - rows} are dropped. It may be at most {most} = 1 + {sums}."
    )


def sglang_table(step: Step) -> str:
    """For each level how many nodes give candidates, how many there are, and how many are verified."""
    steps, topk = _numbers(step)
    kept = Counter(step.tree.depth.tolist())
    rows: list[tuple[object, ...]] = [("0 (the root)", "", "", 1, "")]
    for level in range(1, steps + 1):
        givers = 1 if level == 1 else topk
        rows.append((level, givers, givers * topk, kept[level], givers * topk - kept[level]))
    most = most_draft_tokens(steps, topk)
    rows.append(("in all", "", most - 1, f"{len(step.tree)} = num_draft_tokens", most - len(step.tree)))
    head = ("level", "nodes that give candidates", "candidates", "verified", "dropped")
    return table(f"SGLang's tree of iteration {step.index + 1}: num_steps={steps}, topk={topk}", head, rows)


def _numbers(step: Step) -> tuple[int, int]:
    """num_steps and topk."""
    depth, children = step.settings.get("depth"), step.settings.get("children")
    if not isinstance(depth, int) or not isinstance(children, int) or step.proposals:
        raise NotRecordedError("SGLang's tree is EAGLE-2's: draw an iteration of DraftHead, whose tree it is.")
    return depth, children
