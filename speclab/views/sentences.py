"""One sentence per picture, phase and node, and the tooltips of nodes."""

from __future__ import annotations

from typing import Any

from speclab.trace.records import RANKS, TIE, UNKNOWN, Event, Finding, Step, Trace
from speclab.views.phases import (
    WHOLE,
    Decision,
    Position,
    decisions,
    growth,
    own_kind,
    verified_root,
)
from speclab.views.theme import STYLE
from speclab.views.tokens import percent, plural, quoted
from speclab.views.words import WORDS, event_words, fill, filled


def summary(step: Step) -> str:
    """`Iteration 3: 10 drafted, 2 accepted, 1 bonus: 3 tokens for one pass.`"""
    values = {
        "number": step.index + 1,
        "drafted": step.counts.drafted,
        "accepted": len(step.accepted),
        "gained": len(step.committed),
    }
    end = "ended" if step.bonus is None else own_kind(step)
    sentences = [fill("summary", end if step.counts.drafted else "plain", values)]
    sentences += dict.fromkeys([mark(finding) for finding in step.findings])
    if step.note:
        sentences.append(note_words(step))
    return ". ".join(sentences) + "."


def note_words(step: Step) -> str:
    """The note of a step: the sentence of its code, or what another author wrote."""
    template = WORDS["note"].get(step.note, step.note)
    return filled(template, {"missing": ", ".join(step.missing)}).rstrip(".")


def mark(finding: Finding) -> str:
    """`⚠ position`: how pictures mark a finding."""
    sign = STYLE["signs"]["tie" if finding.kind == TIE else "fault"]
    return f"{sign} {finding.kind}"


def findings_at(step: Step, node: int) -> list[Finding]:
    """The findings of a check at a node."""
    return [finding for finding in step.findings if finding.node == node]


def plain_sentence(step: Step, node: int) -> str:
    """Compare the path of a node, run plainly, with the record; empty without a check."""
    if not step.plain:
        return ""
    plain = dict(step.plain[node])
    best = max(plain, key=lambda token: plain[token])
    recorded = dict(step.nodes[node].target_top).get(best)
    values = {"token": best, "prob": plain[best], "recorded": recorded}
    return fill("plain", "alone" if recorded is None else "both", values, step.texts)


def position_sentence(step: Step, position: Position = WHOLE) -> str:
    """Describe a phase of the iteration; for the whole iteration this is its `summary`."""
    phase = position.phase
    if phase == "all":
        return summary(step)
    values: dict[str, Any] = {
        "number": step.index + 1,
        "phase": phase,
        "rows": len(step.tree),
        "gained": len(step.committed),
    }
    start = fill("position", "start", values)
    if phase == "draft":
        return start + _draft(step, position)
    if phase == "accept":
        return start + _accept(step, position)
    return start + fill("position", phase, values)


def _accept(step: Step, position: Position) -> str:
    taken = decisions(step)
    if not taken:
        return fill("position", "undecided", {})
    count = len(taken) if position.level is None else min(position.level, len(taken))
    values = {"number": count, "count": len(taken), "outcome": outcome(step, taken[count - 1])}
    return fill("position", "accept", values)


def _draft(step: Step, position: Position) -> str:
    drafted = growth(step)
    last = max(drafted)
    level = last if position.level is None else position.level
    if not last and verified_root(step):
        return fill("position", "nothing", {})
    popped = {event.values["order"]: event for event in step.events if event.kind == "pop"}
    if popped and position.level is None:
        return fill("position", "heap", {"nodes": last})
    if level in popped:
        event = popped[level]
        return fill("position", "pop", {"node": event.node, "event": event_words(event)})
    block = [ranked(event, step)[0] for event in step.events if event.kind == "marginal"]
    if block:
        values = {"depths": len(block), "tokens": ", ".join(block)}
        return fill("position", "block", values)
    if not level:
        return fill("position", "root", {})
    values = {"level": level, "last": last, "nodes": drafted.count(level)}
    return fill("position", "level", values)


def ranked(event: Event, step: Step) -> list[str]:
    """The tokens that an event names, best first: `' the' 41 %`."""
    named = [
        (event.values[name], event.values[f"{name}_prob"]) for name in RANKS if name in event.values
    ]
    return [
        f"{quoted(int(token or 0), step.texts)} {percent(float(prob or 0))}"
        for token, prob in named
    ]


def outcome(step: Step, decision: Decision) -> str:
    """The outcome of one acceptance decision."""
    name = "bonus"
    if decision.winner is not None:
        name = "winner"
    elif decision.candidates:
        name = "rejected"
    if decision.node < 0:
        name += ".root"
    values = {"node": decision.node, "choice": decision.choice, "winner": decision.winner}
    return fill("outcome", name, values, step.texts)


def node_sentence(step: Step, node: int, position: Position = WHOLE) -> str:
    """What is known of a node: its draft, its verdict, what a check found, why it has children."""
    record = step.nodes[node]
    unknown = "log_prob" in step.missing
    values: dict[str, Any] = {
        "node": node,
        "token": record.token,
        "draft_prob": record.draft_prob,
        "choice": choice_words(step, node),
        "verdict": verdict_words(step, node),
    }
    if position.reached("verify"):
        name = "root" if record.verdict == "root" else "unknown" if unknown else "drafted"
    else:
        name = "open"
        if record.verdict == "root":
            name = "open.root"
        elif unknown:
            name = "open.unknown"
    sentences = [fill("node", name, values, step.texts)]
    if position.reached("verify"):
        sentences += [f"{mark(one)}: {one.sentence}" for one in findings_at(step, node)]
    grown = [event for event in step.events if event.node == node and event.kind != "prune"]
    words = [event_words(event, step.texts) for event in grown]
    sentences += [f"{each[0].upper()}{each[1:]}." for each in words]
    return " ".join(sentences)


def verdict_words(step: Step, node: int) -> str:
    """The verdict of a node and why, from the numbers of the record."""
    record = step.nodes[node]
    parent = int(step.tree.parent[node])
    values: dict[str, Any] = {"target_prob": record.target_prob}
    trial = next((one for one in step.trials if one.node == node), None)
    if trial is not None:
        values |= {"target": trial.target, "against": trial.against}
    name = _verdict_name(step, node, trial is not None)
    if name == "rejected.root":
        known = {"token": step.root_choice}
        values["choice"] = fill("choice", "bare", known, step.texts)
    elif name == "rejected":
        values["choice"] = choice_words(step, parent)
    return fill("verdict", name, values)


def _verdict_name(step: Step, node: int, tried: bool) -> str:
    record = step.nodes[node]
    parent = int(step.tree.parent[node])
    known = record.target_prob is not None
    if record.verdict == "root":
        return "root"
    if record.verdict != "not reached":
        if tried:
            return f"{record.verdict}.trial"
        if record.verdict == "accepted":
            return "accepted" if known else "accepted.bare"
        return "rejected" if parent >= 0 else "rejected.root"
    if parent >= 0 and step.nodes[parent].verdict not in {"root", "accepted"}:
        return "path.known" if known else "path"
    if step.trials:
        return "candidate"
    return "ended"


def choice_words(step: Step, node: int) -> str:
    """The target's choice after a node with its probability, such as `' iconic' (14 %)`."""
    record = step.nodes[node]
    values = {"token": record.target_choice, "prob": record.choice_prob}
    name = "bare" if record.choice_prob is None else "known"
    if record.target_choice == UNKNOWN:
        name = "unknown"
    return fill("choice", name, values, step.texts)


def prompt_words(trace: Trace) -> str:
    """`31 prompt tokens (22 of them the chat template's)`."""
    template = sum(stop - start for role, start, stop in trace.prompt_parts() if not role)
    chat = f" ({template} of them the chat template's)" if template else ""
    return plural(len(trace.prompt_ids), "prompt token") + chat


def title(trace: Trace) -> str:
    """Describe a run in one line: `mini · DynaTree · "Once upon a time" · greedy`."""
    temperature = trace.settings.get("temperature") or 0
    sampling = (
        f"temperature {temperature:g}"
        if isinstance(temperature, int | float) and temperature
        else "greedy"
    )
    names = [str(trace.models.get(key) or "") for key in ("target", "draft")]
    names.append(str(trace.settings.get("strategy") or ""))
    said = [trace.prompt_ids[one.start : one.stop] for one in trace.messages[-1:] if one.stop]
    text = "".join(
        [trace.texts.get(token, "") for token in (said[0] if said else trace.prompt_ids)]
    )
    words = " ".join(text.split())
    names.append(f"“{words[:40].rstrip()}…”" if len(words) > 40 else f"“{words}”")
    return " · ".join([name for name in (*names, sampling) if name])
