"""Damaged trace files by seed, and everything that may be done with one that loads all the same.

`python tests/trace/mutants.py 20000 3` makes so many from seed 3 and says what came of them.
"""

from __future__ import annotations

import copy
import gzip
import json
import math
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from speclab.analysis import attribution, routing
from speclab.drafters.measures import _MEASURED
from speclab.errors import SpeclabError, TraceError
from speclab.trace.conditions import STEP_FIELDS, parse
from speclab.trace.files import unpack_trace
from speclab.trace.records import Trace
from speclab.views import (
    attention_mask,
    cache_slots,
    draft_tree,
    drafter_state,
    explain,
    export,
    metrics_chart,
    networks,
    node_chart,
    playback,
    proposals,
    side_by_side,
    token_text,
    whatif_tree,
)
from speclab.views.registry import VIEWS, Frame, View

NUMBERS = [-1, 0, 1, 2, 63, 64, 4096, 10**5, 2**31, 2**53, 2**63 - 1, 2**63, 10**400, 1e-320, 0.5, 1.5, 1e9, 1e300,
           -1e300, 1.7e308, math.nan, math.inf, -math.inf]  # fmt: skip
TEXTS = ["", "x", "\x00", "</script>", "\u202e", "é" * 5000, "root", "accepted", "rejected", "not reached", "expand",
         "prune", "route", "match", "-inf", "nan", "1e999", "ff", "independent draws"]  # fmt: skip
OTHERS = [None, True, False, [], {}, [[]], [None], {"a": 1}, [1, 2], "text", 7, 0.5]


def mutant(seed: int, packed: Sequence[bytes]) -> bytes:
    """One of `packed`, the bytes of saved traces, changed in one to four places."""
    chance = random.Random(seed)
    whole = chance.choice(packed)
    level = chance.random()
    if level < 0.08:
        return _bytes(chance, whole)
    data = gzip.decompress(whole)
    if level < 0.16:
        return gzip.compress(_bytes(chance, data), 1)
    changed = json.loads(data)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        _change(chance, changed)
    return gzip.compress(json.dumps(changed).encode(), 1)


def _bytes(chance: random.Random, data: bytes) -> bytes:
    changed, way = bytearray(data), chance.randrange(4)
    for _ in range(chance.choice((1, 1, 4))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    place = chance.randrange(len(data))
    return (bytes(changed), data[:place], data + changed[place:], data[:place] + data[place + chance.randrange(99) :])[
        way
    ]


def _change(chance: random.Random, root: dict) -> None:
    """Walks down to some item, more likely a deep one, and changes it in place."""
    at, key, deeper = {"": root}, "", root
    while isinstance(deeper, dict | list) and deeper and chance.random() < (1.0 if at[key] is root else 0.9):
        at, key = deeper, chance.choice([*deeper] if isinstance(deeper, dict) else range(len(deeper)))
        deeper = at[key]
    if at[key] is root:
        return
    item = at[key]
    ways = [_other, _splice]
    if isinstance(item, int | float) and not isinstance(item, bool) and -1e300 < item < 1e300:
        ways += [_number, _near, _near]
    if isinstance(item, str):
        ways.append(lambda chance, *_: chance.choice(TEXTS))
    if isinstance(item, list):
        ways += [_listed] * 3
    if isinstance(item, dict):
        ways += [_mapped] * 2
    at[key] = chance.choice(ways)(chance, item, root)


def _other(chance: random.Random, *_: object) -> object:
    return copy.deepcopy(chance.choice([*OTHERS, *NUMBERS, *TEXTS]))


def _number(chance: random.Random, *_: object) -> object:
    return chance.choice(NUMBERS)


def _near(chance: random.Random, item: float, _: object) -> object:
    return chance.choice((item + 1, item - 1, 2 * item, -item, item + chance.randrange(64), item / 2))


def _splice(chance: random.Random, _: object, root: dict) -> object:
    """What stands somewhere else in the file."""
    found: object = root
    for _ in range(chance.randrange(2, 7)):
        if not isinstance(found, dict | list) or not found:
            break
        found = found[chance.choice([*found] if isinstance(found, dict) else range(len(found)))]
    return copy.deepcopy(found)


def _listed(chance: random.Random, item: list, _: object) -> object:
    if not item:
        return [0]
    one, other = chance.randrange(len(item)), chance.randrange(len(item))
    swapped = [*item]
    swapped[one], swapped[other] = item[other], item[one]
    cut, twice = item[:one] + item[one + 1 :], item[: one + 1] + item[one:]
    return chance.choice((cut, twice, swapped, item[::-1], item[:one], [], item * chance.choice((2, 2, 100)), [item]))


def _mapped(chance: random.Random, item: dict, _: object) -> object:
    if not item:
        return {"a": 1}
    gone = chance.choice([*item])
    value = item[gone]
    rest = {name: item[name] for name in item if name != gone}
    return chance.choice(
        (rest, rest | {chance.choice(TEXTS): value}, item | {chance.choice(("9" * 4400, "1", "x")): value})
    )


@cache
def functions() -> tuple[list, list]:
    """Every view of a step, and every view of a run at a cursor."""
    of_step = [
        attention_mask.categories, node_chart.residual_parts, proposals.summary, networks.graph,
        drafter_state.cost_drawing, drafter_state.path_words, _positions, _every_node,
        *(lambda step, of=field.of: of(step) for field in STEP_FIELDS.values()),
        *(lambda step, measure=measure: whatif_tree.strip(step, measure, 0.5, float) for measure in _MEASURED),
    ]  # fmt: skip
    of_run = [
        token_text.summary, metrics_chart.summary, proposals.routing_drawing, drafter_state.key_at,
        *(lambda trace, cursor, by=by: token_text.text_html(trace, cursor, by)
          for by in ("verdict", "source", "iteration", "probability")),
        *(lambda trace, cursor, view=view: _view(view, trace, cursor) for view in VIEWS.values()),
    ]  # fmt: skip
    return of_step, of_run


def _positions(step) -> None:
    for moment in playback.positions(step)[:12]:
        explain.position_summary(step, moment)
        draft_tree.tree_spec(step, 0, position=moment)
        cache_slots.cache_spec(step, 0, position=moment)
        cache_slots.cache_spec(step, 0, position=moment, compact=True)
        attention_mask.mask_spec(step, 0, position=moment, mode="compare")


def _view(view: View, trace: Trace, cursor: int) -> None:
    """As the lab, a snapshot and a page show it, itself beside itself."""
    frame = Frame(trace, cursor, selected=0, pinned=trace.steps[-1], beside=side_by_side.Beside(1, "itself", trace))
    view.render(frame)
    view.describe(frame)
    view.tabulate(frame)


def _every_node(step) -> None:
    for node in range(min(len(step.tree), 24)):
        explain.why(step, node)
        explain.node_table(step, node)


def use(trace: Trace) -> None:
    """Draws, asks, exports and saves whatever can be drawn, asked, exported and saved."""
    of_step, of_run = functions()
    for step in trace.steps:
        for view in of_step:
            view(step)
    for view in of_run if trace.steps else ():
        view(trace, len(trace.steps))
    attribution.attribution(trace.steps)
    routing.statistics(trace)
    parse("nodes > 1 and entropy > 0.5")
    export.page(trace, other=side_by_side.Beside(1, "itself", trace)).encode()
    with tempfile.TemporaryDirectory() as folder:
        trace.save(Path(folder) / "t")


def previews(trace: Trace) -> None:
    """The tree that other settings would have grown."""

    from speclab.analysis.whatif import in_force, what_if
    from speclab.views.whatif_tree import whatif_spec

    for step in trace.steps[:2]:
        with suppress(SpeclabError):
            whatif_spec(step, what_if(step, in_force(step)))


@cache
def seeds() -> list[bytes]:
    """Short runs of different strategies, as saved."""
    from table_runner import mixed_probs, random_probs, table_pair

    import speclab

    vocab = 12
    target = random_probs(vocab, 1)
    pair = table_pair(target, mixed_probs(target, random_probs(vocab, 2), 0.3), vocab)
    small = {"node_budget": 10}
    runs = [
        (speclab.DynaTree(**small), {}),
        (speclab.DynaTree(root="drafted", commit="rebuild", **small), {}),
        (speclab.DynaTree(**small), {"temperature": 0.9}),
        (speclab.Goose(**small), {}),
        (speclab.Lookahead(window=3, ngram=3), {}),
        (speclab.LinearSpeculation(candidates="independent"), {"temperature": 1.0}),
        (speclab.SequoiaTree(**small), {"temperature": 1.0}),
        (speclab.TokenRecycling(**small), {}),
        (speclab.Autoregressive(), {}),
    ]  # fmt: skip
    packed = []
    with tempfile.TemporaryDirectory() as folder:
        for strategy_, settings in runs:
            session = speclab.Session(pair, strategy_, [1, 2, 3, 4, 1, 2, 3], max_new_tokens=8, **settings)
            session.run()
            packed.append(session.trace.save(Path(folder) / "t").read_bytes())
    return packed


def outcome(packed: bytes, also_previews: bool = False) -> str:
    """ "refused" or "drawn"; whatever else is raised goes through."""
    try:
        trace = unpack_trace(packed, "mutant")
    except TraceError as error:
        sentence = str(error)
        return "refused" if sentence.isprintable() and len(sentence) <= 500 else sentence
    use(trace)
    if also_previews:
        previews(trace)
    return "drawn"


def main(count: int, first: int) -> None:
    """Prints what came of `count` mutants, with the worst seconds and memory."""
    packed, found, worst = seeds(), Counter[str](), 0.0
    for seed in range(first, first + count):
        made, began = mutant(seed, packed), time.process_time()
        try:
            found[outcome(made, also_previews=seed % 10 == 0)] += 1
        except Exception:  # whatever it is, it is what is looked for
            found["failed"] += 1
            print(f"seed {seed}:", traceback.format_exc(limit=-3), flush=True)
        worst = max(worst, time.process_time() - began)
        if seed % 1000 == 999:
            print(seed + 1 - first, dict(found), f"worst {worst:.2f} s", flush=True)
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB", dict(found), f"worst {worst:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
