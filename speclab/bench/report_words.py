"""What a report says in sentences: what was found, what to beware of, and on what it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from speclab.bench.report_numbers import Row, prompts
from speclab.bench.report_page import said, warning
from speclab.bench.report_tables import best, name_of, number, times
from speclab.bench.result import RunInfo
from speclab.bench.store import Stored
from speclab.bench.summary import Spread
from speclab.views.explain import plural

FEW = 4
"""Prompts of which quartiles tell little."""


def lead(stored: Stored, found: Sequence[Row]) -> str:
    """The finding: the fastest of ours, the fastest peer, and whether every text was the target's own."""
    run, top = stored.run, best(found)
    if top is None or top.speedup is None or top.name == run.baseline:
        return said("Nothing here is faster than the baseline." if found else "There is no result yet.", "lead")
    name, spread = name_of(run), top.speedup
    first = (
        f"The fastest of ours is {name(top)}: {times(spread.median)} {run.baseline}{_quartiles(spread)}, with "
        f"{number(top.summary.tokens_per_iteration)} tokens an iteration."
    )
    return said(" ".join((first, *_peer(found, run), *_texts(found))), "lead")


def _quartiles(spread: Spread) -> str:
    if spread.count < 2:
        return " on the one prompt"
    return f" in the median of {spread.count} prompts (quartiles {times(spread.low)} to {times(spread.high)})"


def _peer(found: Sequence[Row], run: RunInfo) -> Iterable[str]:
    peers = [(each.speedup.median, name_of(run)(each)) for each in found if each.peer and each.speedup]
    if peers:
        ratio, name = max(peers)
        yield f"Of transformers' own, {name} is the fastest: {times(ratio)}."


def _texts(found: Sequence[Row]) -> Iterable[str]:
    compared = sum(each.summary.compared for each in found)
    if compared and compared == sum(each.summary.equal for each in found):
        yield "Every text compared is the target's own, token for token."


def warnings(stored: Stored, found: Sequence[Row]) -> str:
    """All that a reader should know before using a figure."""
    run, many = stored.run, len(prompts(stored.results))
    unequal = [name_of(run)(each) for each in found if each.summary.equal < each.summary.compared]
    failed = sum(len(each.failures) for each in found)
    absent = [name for name in run.contenders if name not in {each.name for each in found}]
    notices = []
    if run.ended is None:
        kept = plural(len(stored.results), "call")
        notices.append(
            ("Unfinished", f"The run was cut short or still goes on; {kept} are kept, and they are all here.")
        )
    if absent:
        notices.append(("Not reached", f"No result of {', '.join(absent)}."))
    if unequal:
        notices.append(("Other text", f"Not the target's own greedy text on every prompt: {', '.join(unequal)}."))
    if failed:
        notices.append(("Failed", f"{plural(failed, 'call')} gave no text; why is said under Failures."))
    if 0 < many < FEW:
        notices.append(("Few prompts", f"Only {plural(many, 'prompt')}: medians and quartiles of so few say little."))
    notices += [("Note", note) for note in stored.notes]
    return "".join(warning(label, text) for label, text in notices)


def models(run: RunInfo) -> str:
    """The pair in a few words: `mini: target of 10.9 M parameters, draft of 1.1 M, float32`."""
    told = run.pair
    sizes = [f"{role} of {told[f'{role}_parameters'] / 1e6:,.3g} M parameters" for role in ("target", "draft")
             if told.get(f"{role}_parameters")]  # fmt: skip
    kind = [str(told["target_dtype"])] if told.get("target_dtype") else []
    name = str(told.get("pair", "models"))
    return f"{name}: {', '.join((*sizes, *kind))}" if sizes else name


def machine(run: RunInfo) -> str:
    """The machine in a few words."""
    facts = run.machine
    known = facts.get("gpu") or facts.get("processor") or "this machine"
    return f"{known} ({facts.get('device', 'device unknown')}), {plural(run.threads, 'thread')}"


def measured(stored: Stored, found: Sequence[Row]) -> str:
    """How many prompts, and how long the texts are."""
    lengths = [one.new_tokens for each in found for one in each.results]
    longest = f", up to {max(lengths):,} new tokens" if lengths else ""
    return f"{plural(len(prompts(stored.results)), 'prompt')}{longest}"
