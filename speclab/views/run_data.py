"""A run as plain JSON for the page: a header, and everything that the page shows for each iteration."""

from __future__ import annotations

from typing import Any

from speclab.trace.records import Step, Trace
from speclab.views import cache_picture, mask_picture, node_picture, run_picture, sentences, text_html, tree_picture
from speclab.views.decisions import block_table, decided_table, drafts_sentence, draw_drafts
from speclab.views.networks import step_graph
from speclab.views.phases import PHASES, Position, fresh, positions
from speclab.views.theme import LOOKS, template
from speclab.views.tokens import labels, plot_lines

Data = dict[str, Any]


def header(trace: Trace) -> Data:
    """The part that all iterations share: the title, the prompt, the looks, and empty pictures."""
    looks = {
        look.code: {"label": look.label, "color": look.color, "symbol": look.symbol, "sign": look.sign,
                    "filled": look.filled, "kind": kind}
        for kind, look in LOOKS.items()
    }  # fmt: skip
    return {
        "title": sentences.title(trace),
        "prompt": text_html.prompt_piece(trace),
        "legend": text_html.legend(),
        "sentence": f"Before the first iteration: {sentences.prompt_words(trace)}, and the prefill's first token.",
        "max_tokens": trace.settings.get("max_new_tokens"),
        "phases": list(PHASES),
        "looks": looks,
        "links": tree_picture.LINKS,
        "template": template(),
        "mask": {"words": mask_picture.WORDS},
        "timeline": run_picture.timeline_template(),
        "metrics": run_picture.metrics_template(),
        "numbers": run_picture.NUMBERS,
        "node": node_picture.bars_template(),
        "facts": tree_picture.FACTS,
    }


def iteration(step: Step, trace: Trace) -> Data:
    """Everything that the page shows for an iteration; reads only the steps of `trace` up to this one."""
    made = tree_picture.tree_table(step_graph(step), first=tree_picture.marked(step))
    panels = node_picture.panels_of(step)
    frame, codes = mask_picture.mask_frame(step)
    names = frame["data"][0].pop("hovertext")  # the page restores them, and adds them to the cells' tooltips
    nodes = [_node(step, node) for node in range(len(step.tree))]
    tokens = {token for node in nodes for token, _ in (*node["p"], *node["q"], *node["plain"], (node["choice"], 1))}
    return {
        "index": step.index,
        "tokens": len(trace.token_ids(step.index + 1)),
        "sentence": sentences.summary(step),
        "ending": sentences.ending(step),
        "last": step.accepted[-1] if step.accepted else 0,
        "positions": [_position(step, made, position) for position in positions(step)],
        "tree": made,
        "notes": {phase: tree_picture.notes(step, Position(phase)) for phase in ("draft", "verify", "all")},
        "facts": tree_picture.node_facts(step),
        "mask": {
            "figure": frame,
            "codes": ["".join(map(str, row)) for row in codes.tolist()],
            "names": names,
            "verdict": mask_picture.verdict(step),
        },
        "cache": cache_picture.draw_cache(step, prompt_length=len(trace.prompt_ids)) if step.caches else None,
        "cache_lines": cache_picture.cache_lines(step),
        "cache_key": cache_picture.key(step),
        "nodes": nodes,
        "block": block_table(step),
        "words": labels(tokens, step.texts),
        "residual": _residual(step),
        "findings": [(one.node, sentences.mark(one), one.sentence) for one in step.findings],
        "bars": node_picture.bars_template(panels) if panels != ("p", "q") else None,
        "text": text_html.text_piece(step),
        "timeline": run_picture.timeline_point(step),
        "metrics": run_picture.metrics_point(step),
        "decided": decided_table(step),
        "drafts": {"figure": draw_drafts(step), "sentence": drafts_sentence(step)} if step.proposals else None,
    }


def _position(step: Step, made: Data, position: Position) -> Data:
    kinds = tree_picture.step_kinds(step, position)
    return {
        "phase": position.phase,
        "level": position.level,
        "kinds": tree_picture.codes(made, kinds),
        "absent": [node for node in range(len(step.tree)) if kinds[node] is None],
        "fresh": sorted(fresh(step, position)),
        "sentence": sentences.position_sentence(step, position),
    }


def _node(step: Step, node: int) -> Data:
    drafted, verified, grown = sentences.node_sentence(step, node)
    before, after = sentences.tips(step, [node])[0]
    children, target, draft = node_picture.node_tops(step, node)
    return {
        "sentence": [drafted, verified, grown],
        "tip": [plot_lines(*before), plot_lines(*after)],
        "children": list(children.items()),
        "choice": step.nodes[node].target_choice,
        "p": [(token, round(probability, 4)) for token, probability in target.items()],
        "q": [(token, round(probability, 4)) for token, probability in draft.items()],
        "plain": [(token, round(probability, 4)) for token, probability in step.plain[node]] if step.plain else [],
        "beside": sentences.plain_sentence(step, node),
    }


def _residual(step: Step) -> Data | None:
    if step.residual is None:
        return None
    return {
        "node": step.residual.node or 0,
        "sentence": node_picture.residual_sentence(step),
        "figure": node_picture.draw_residual(step),
        "table": node_picture.draws_table(step),
    }
