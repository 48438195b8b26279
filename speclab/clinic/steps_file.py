"""Steps of another decoder: opens a `speclab.steps/1` file (docs/steps.md) as a Trace."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from math import exp, isnan
from typing import Any

import numpy as np

from speclab.clinic._lines import Header, Pass, precision, read_line
from speclab.clinic._record import BLOCK, FOLLOWS_THE_TARGET, GREEDY, MATCH, RECORDED, REJECTION
from speclab.engine.decode import runners
from speclab.engine.record import beyond
from speclab.errors import TraceError
from speclab.files import opened
from speclab.models.source import DraftSource
from speclab.pair import ModelPair, checked_pair
from speclab.recorder import OPTIONAL
from speclab.trace.metrics import Counts, looked
from speclab.trace.records import UNKNOWN, Adaptation, CacheRecord, NodeRecord, Step, Trace, Verdict
from speclab.tree import DraftTree

Top = tuple[tuple[int, float], ...]
MAX_BYTES = 1 << 30
"""Largest file."""
RULES = {
    "greedy": GREEDY,
    "sample_and_match": MATCH,
    "rejection": REJECTION[0],
    "rejection_without_replacement": REJECTION[1],
    "block": BLOCK,
}
"""Acceptance rules of the header, and their names in records."""
SHOWN = ({"mask"} | set(OPTIONAL)) - {"batch", "draft_topk", "request"}
"""Optional fields that a picture shows, so that a step misses them."""
SETTINGS = {"temperature", "top_k", "top_p", "min_p", "seed"}
SETTINGS |= {"draft_temperature", "draft_top_k", "draft_top_p", "draft_min_p"}
ABOUT = {"engine", "tokenizer", "note", "format", "processed", "position_offset"}
"""Fields of the header that become settings of the trace, and that describe its models."""


def load_steps(path: str | os.PathLike[str], pair: ModelPair | None = None) -> Trace:
    """Opens the verification passes that another decoder recorded: `speclab.steps/1`.

    Fields that are not recorded are empty and listed in `Step.missing`. Rows are reordered
    breadth-first; `Step.rows` has the row of the file for each node. An incomplete last line is
    dropped, and `Trace.finished` says so.

    Args:
        pair: the models, for token texts; without them a text is the token's number.

    Raises:
        TraceError: the file is missing, larger than 1 GB, of another version, or has an invalid
            line; or a token is outside the pair's vocabulary.
    """
    if pair is not None:
        checked_pair(pair)
    header, passes, finished = _read(path)
    prompt = header.prompt_ids
    tokens = set(prompt)
    for line in passes:
        tokens |= _tokens(line)
    texts: Mapping[int, str] = {token: f" #{token}" for token in tokens}
    drafts: Sequence[DraftSource] = ()
    if pair is not None:
        if max(tokens) >= pair.vocab_size:
            raise TraceError(
                f"{path}: token {max(tokens)} is outside the vocabulary of {pair.vocab_size} tokens."
            )
        texts = pair.token_texts(sorted(tokens))
        drafts = runners(pair)[1:]
    steps = []
    for index, line in enumerate(passes):
        # what a pass leaves in the cache is what the next one finds there
        after = line.prefix_length + len(line.committed)
        if line is not passes[-1]:
            after = passes[index + 1].prefix_length
        steps.append(_step(header, line, index, after, texts, drafts))
    first_token: int | None = passes[0].token[0]
    if passes[0].prefix_length == len(prompt) - 1 and prompt[-1] == first_token:
        first_token = None  # the first pass runs the prompt's last token
    settings = header.model_dump(include=SETTINGS, exclude_none=True)
    settings |= {"strategy": header.engine or RECORDED, "stop_at_eos": not header.ignore_eos}
    about = header.model_dump(include=ABOUT)
    about |= {"target": header.model, "target_dtype": precision(header.dtype) or header.dtype}
    about["eos_ids"] = " ".join(map(str, header.eos_ids))
    return Trace(prompt, first_token, tuple(steps), settings, about, texts, finished=finished)


def _read(path: str | os.PathLike[str]) -> tuple[Header, list[Pass], str]:
    """The header, the passes, and what is to be said of the file's end."""
    header: Header | None = None
    passes: list[Pass] = []
    finished = ""
    for number, raw in _lines(path):
        where = f"{path}, line {number}"
        try:
            if header is not None:
                passes.append(read_line(Pass, raw, where))
            elif b'"n_accept' in raw:
                raise TraceError(f"{path} is a dump of llama.cpp's drafts: speclab read shows it.")
            else:
                header = read_line(Header, raw, where)
        except TraceError:
            if header is None or raw.endswith(b"\n"):
                raise
            finished = f"line {number} is incomplete and was left out"
            break
    if finished and not passes:
        raise TraceError(f"{path} is cut in its first pass (line {number}): record the run again.")
    if header is None or not passes:
        raise TraceError(
            f"{path} contains no verification pass: record one with speclab.recorder.Recorder."
        )
    return header, passes, finished


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) of each line that is not empty; the last one may be cut short."""
    with opened(path, TraceError, MAX_BYTES) as raw:
        number = 0
        try:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            file = gzip.GzipFile(fileobj=raw) if zipped else raw
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
        except (EOFError, OSError, zlib.error):
            yield number + 1, b""


def _tokens(line: Pass) -> set[int]:
    """The tokens that a pass names."""
    tokens = set(line.token + line.committed)
    for choice in line.choice:
        if choice is not None:
            tokens.add(choice)
    for top in line.topk + line.draft_topk:
        tokens.update(dict(top or ()))
    return tokens


def _breadth_first(line: Pass, order: Sequence[int]) -> Pass:
    """The pass with its rows in the order of the tree's nodes."""
    n = len(order)
    hidden = []
    for row, first, last in line.hidden_prefix:
        hidden.append((order.index(row), first, last))

    def column(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([values[row] for row in order if values])

    columns = {
        "token": column(line.token),
        "accepted": tuple([order.index(row) for row in line.accepted]),
        "hidden_prefix": tuple(hidden),
        "slot": column(line.slot or range(line.prefix_length, line.prefix_length + n)),
        "draft_topk": column(line.draft_topk or [None] * n),
        "topk": column(line.topk or [None] * n),
        "choice": column(line.choice),
        "position": column(line.position),
    }
    return line.model_copy(update=columns)


def _step(
    header: Header,
    recorded: Pass,
    index: int,
    after: int,
    texts: Mapping[int, str],
    drafts: Sequence[DraftSource],
) -> Step:
    """`after`: entries in the cache after the pass."""
    n = len(recorded.token)
    log_prob = recorded.log_prob or [0.0] * n
    tree, order = DraftTree.grown(recorded.token, recorded.parent, log_prob, RECORDED)
    line = _breadth_first(recorded, order)
    rule = _rule(header, recorded)
    missing = {name for name in SHOWN if not getattr(recorded, name)} | {"entropy"}
    if rule not in FOLLOWS_THE_TARGET:
        missing.add("choice")
    start = line.prefix_length
    seen = [start] * n
    for node, first, last in line.hidden_prefix:
        seen[node] -= last - first + 1
    rows = tuple(order)
    if rows == tuple(range(n)):
        rows = ()
    mask = tree.ancestor_mask()
    if line.mask is not None:
        packed = np.frombuffer(line.mask, np.uint8).reshape(n, -1)
        mask = np.unpackbits(packed, axis=1, count=n).astype(np.bool_)[np.ix_(order, order)]
    end = start + len(line.committed)
    capacity = 1 + max(end, max(line.slot))
    nodes = _nodes(line, tree, rule, drafts)
    not_numbers = [node.index for node in nodes if line.topk[node.index] and not node.target_top]
    return Step(
        index=index,
        prefix_length=start,
        tree=tree,
        nodes=nodes,
        accepted=line.accepted,
        committed=line.committed,
        bonus=_bonus(line),
        root_choice=None,
        settings={},
        events=(),
        caches=(CacheRecord("target", start, n, _kept(line), (), after, end, capacity, 0),),
        seconds=line.seconds,
        adaptation=Adaptation(),
        counts=_counts(line, tree),
        mask=mask,
        prefix_seen=tuple(seen),
        texts={token: texts[token] for token in sorted(_tokens(recorded))},
        note=RECORDED,
        rule=rule,
        position=line.position,
        hidden_prefix=line.hidden_prefix,
        rows=rows,
        missing=tuple(sorted(missing)),
        not_numbers=tuple(not_numbers),
        request=str(line.request) or str(header.request),
        batch=str(line.batch),
    )


def _kept(line: Pass) -> tuple[int, ...]:
    """The kept slots of this pass, also if the whole cache's are recorded."""
    own = [slot for slot in line.kept_slots if slot in line.slot]
    if len(line.kept_slots) - len(own) == line.prefix_length:
        return tuple(own)
    return tuple(line.kept_slots)


def _rule(header: Header, line: Pass) -> str:
    if header.rule:
        return RULES[header.rule]
    if not header.temperature:
        return GREEDY
    # a sampled run without a rule follows the choices that it recorded
    return MATCH if line.choice else RECORDED


def _bonus(line: Pass) -> int | None:
    """The token after the path; None if the text ended inside it."""
    return line.committed[-1] if len(line.committed) > len(line.accepted) else None


def _counts(line: Pass, tree: DraftTree) -> Counts:
    return Counts(
        iterations=1,
        committed=len(line.committed),
        drafted=len(tree) - 1,
        accepted=len(line.accepted),
        longest_path=int(tree.depth.max()),
        target_calls=1,
        seconds=sum(line.seconds.values()),
        looked=looked(tree, line.accepted, len(line.committed), drafted_root=False),
    )


def _nodes(
    line: Pass, tree: DraftTree, rule: str, drafts: Sequence[DraftSource]
) -> tuple[NodeRecord, ...]:
    choices = _choices(line, rule)
    path = {0, *line.accepted}
    nodes: list[NodeRecord] = []
    for node, token in enumerate(line.token):
        parent = int(tree.parent[node])
        target_prob = None
        verdict: Verdict = "not reached"
        if node == 0:
            verdict = "root"
        else:
            target_prob = dict(nodes[parent].target_top).get(token)
            if node in path:
                verdict = "accepted"
            elif parent in path:
                verdict = "rejected"
        top = _best_first(line.topk[node])
        record = NodeRecord(
            index=node,
            token=token,
            draft_prob=exp(tree.log_prob[node]),
            path_prob=exp(tree.path_log_prob[node]),
            target_prob=target_prob,
            target_choice=choices[node],
            verdict=verdict,
            kv_slot=line.slot[node],
            entropy=0.0,
            choice_prob=dict(top).get(choices[node]),
            beyond_draft=beyond(drafts, choices[node]),
            target_top=top,
            draft_top=_best_first(line.draft_topk[node]),
        )
        nodes.append(record)
    return tuple(nodes)


def _choices(line: Pass, rule: str) -> list[int]:
    """The target's token after each row, `UNKNOWN` where it is not recorded."""
    choices = [UNKNOWN] * len(line.token)
    if line.choice and rule in FOLLOWS_THE_TARGET:
        for row, choice in enumerate(line.choice):
            if choice is not None:
                choices[row] = choice
        return choices
    # the text does not follow recorded choices: what follows each row of the path
    last = 0
    for row in line.accepted:
        choices[last] = line.token[row]
        last = row
    bonus = _bonus(line)
    if bonus is not None:
        choices[last] = bonus
    return choices


def _best_first(top: Top | None) -> Top:
    """With probabilities; empty for a row without an answer, and for one that is not a number."""
    pairs = []
    for token, log_prob in top or ():
        if isnan(log_prob):
            return ()
        pairs.append((token, exp(log_prob)))
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))
