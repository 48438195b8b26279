"""Steps of another decoder: opens a `speclab.steps/1` file (docs/steps.md) as a Trace."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import Any

import numpy as np

from speclab.clinic._lines import Header, Pass, precision, read_line
from speclab.clinic._record import FOLLOWS_THE_TARGET, RECORDED
from speclab.engine.decode import runners
from speclab.engine.record import beyond
from speclab.errors import TraceError
from speclab.files import opened
from speclab.models.source import DraftSource
from speclab.pair import ModelPair, checked_pair
from speclab.recorder import OPTIONAL
from speclab.trace.metrics import Counts, looked
from speclab.trace.records import UNKNOWN, Adaptation, CacheRecord, NodeRecord, Step, Trace, Verdict
from speclab.tree import Bools, DraftTree

Top = Sequence[tuple[int, float]]
MAX_BYTES = 1 << 30
"""Largest file."""
RULES = {
    "greedy": "greedy",
    "sample_and_match": "sample and match",
    "rejection": "independent draws",
    "rejection_without_replacement": "draws without replacement",
    "block": "a block of draws",
}
"""Acceptance rules of the header, and their names in records."""
UNSEEN = {"batch", "draft_topk", "request"}
"""Fields that no picture shows, so that a step does not miss them."""
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
    header: Header | None = None
    steps: list[Step] = []
    finished = ""
    for number, raw in _lines(path):
        where = f"{path}, line {number}"
        if header is None and b'"n_accept' in raw:
            raise TraceError(f"{path} is a dump of llama.cpp's drafts: speclab read shows it.")
        try:
            if header is None:
                header = read_line(Header, raw, where)
            else:
                steps.append(_step(read_line(Pass, raw, where), len(steps), header))
        except TraceError:
            if header is None or raw.endswith(b"\n"):
                raise
            finished = f"line {number} is incomplete and was left out"
            break
    if header is None or not steps:
        raise TraceError(
            f"{path} contains no verification pass: record one with speclab.recorder.Recorder."
        )
    tokens = sorted({*header.prompt_ids}.union(*map(_tokens, steps)))
    if pair is None:
        return _trace(header, steps, finished, {token: f" #{token}" for token in tokens}, ())
    if tokens[-1] >= pair.vocab_size:
        raise TraceError(
            f"{path}: token {tokens[-1]} is outside the vocabulary of {pair.vocab_size} tokens."
        )
    return _trace(header, steps, finished, pair.token_texts(tokens), runners(pair)[1:])


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


def _step(line: Pass, index: int, header: Header) -> Step:
    n = len(line.token)
    log_prob = line.log_prob or [0.0] * n
    tree, order = DraftTree.grown(line.token, line.parent, log_prob, RECORDED)
    node_of = {row: node for node, row in enumerate(order)}
    accepted = tuple([node_of[row] for row in line.accepted])
    hidden = tuple([(node_of[row], first, last) for row, first, last in line.hidden_prefix])
    seen = [line.prefix_length] * n
    for node, first, last in hidden:
        seen[node] -= last - first + 1
    # a sampled run without a rule follows the choices that it recorded
    sampled = "sample and match" if line.choice else RECORDED
    rule = RULES.get(header.rule, sampled if header.temperature else "greedy")
    start = line.prefix_length
    end = start + len(line.committed)
    slots = [(line.slot or range(start, start + n))[row] for row in order]
    missing = {name for name in {*OPTIONAL, "mask"} - UNSEEN if not getattr(line, name)}
    missing |= {"entropy"} if rule in FOLLOWS_THE_TARGET else {"entropy", "choice"}
    tops = [_best_first(line.topk[row]) if line.topk else () for row in order]
    not_numbers = [node for node, top in enumerate(tops) if any(p != p for _, p in top)]
    for node in not_numbers:
        tops[node] = ()
    most = max(end, *slots) + 1
    cache = CacheRecord("target", start, n, line.kept_slots, (), end, end, most, 0)
    mask = tree.ancestor_mask()
    if line.mask is not None:
        mask = _unpacked(line.mask, order)
    return Step(
        index=index,
        prefix_length=start,
        tree=tree,
        nodes=_nodes(line, rule, tree, order, [0, *accepted], slots, tops),
        accepted=accepted,
        committed=line.committed,
        bonus=line.committed[-1] if end - start > len(accepted) else None,
        root_choice=None,
        settings={},
        events=(),
        caches=(cache,),
        seconds=line.seconds,
        adaptation=Adaptation(),
        counts=_counts(line, tree, accepted),
        mask=mask,
        prefix_seen=tuple(seen),
        texts={},
        note=RECORDED,
        rule=rule,
        position=tuple([line.position[row] for row in order]) if line.position else (),
        hidden_prefix=hidden,
        rows=tuple(order) if order != list(range(n)) else (),
        missing=tuple(sorted(missing)),
        not_numbers=tuple(not_numbers),
        request=str(line.request if line.request != "" else header.request),
        batch=str(line.batch),
    )


def _counts(line: Pass, tree: DraftTree, accepted: tuple[int, ...]) -> Counts:
    committed = len(line.committed)
    return Counts(
        iterations=1,
        committed=committed,
        drafted=len(tree) - 1,
        accepted=len(accepted),
        longest_path=int(tree.depth.max()),
        target_calls=1,
        seconds=sum(line.seconds.values()),
        looked=looked(tree, accepted, committed, drafted_root=False),
    )


def _unpacked(packed: bytes, order: Sequence[int]) -> Bools:
    rows = np.frombuffer(packed, np.uint8).reshape(len(order), -1)
    mask = np.unpackbits(rows, axis=1, count=len(order)).astype(np.bool_)
    return mask[np.ix_(order, order)]


def _nodes(
    line: Pass,
    rule: str,
    tree: DraftTree,
    order: Sequence[int],
    path: Sequence[int],
    slots: Sequence[int],
    tops: Sequence[tuple[tuple[int, float], ...]],
) -> tuple[NodeRecord, ...]:
    tokens = tree.token.tolist()
    # what follows each node of the path: the next one's token, then the target's own
    following = [tokens[node] for node in path[1:]] + [*line.committed[len(path) - 1 :][-1:]]
    choices = dict(zip(path, following, strict=False))
    if rule in FOLLOWS_THE_TARGET and line.choice:  # else the text does not follow the choice
        for node, row in enumerate(order):
            choice = line.choice[row]
            choices[node] = UNKNOWN if choice is None else choice
    draft = np.exp(tree.log_prob).tolist()
    path_probs = np.exp(tree.path_log_prob).tolist()
    nodes = []
    for node, row in enumerate(order):
        parent = int(tree.parent[node])
        verdict: Verdict = "not reached"
        if node == 0:
            verdict = "root"
        elif node in path:
            verdict = "accepted"
        elif parent in path:
            verdict = "rejected"
        choice = choices.get(node, UNKNOWN)
        record = NodeRecord(
            index=node,
            token=tokens[node],
            draft_prob=draft[node],
            path_prob=path_probs[node],
            target_prob=dict(tops[parent]).get(tokens[node]) if node else None,
            target_choice=choice,
            verdict=verdict,
            kv_slot=slots[node],
            entropy=0.0,
            choice_prob=dict(tops[node]).get(choice),
            target_top=tops[node],
            draft_top=_best_first(line.draft_topk[row]) if line.draft_topk else (),
        )
        nodes.append(record)
    return tuple(nodes)


def _best_first(top: Top | None) -> tuple[tuple[int, float], ...]:
    """With probabilities; a row without an answer has none."""
    pairs = [(token, exp(log_prob)) for token, log_prob in top or ()]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def _trace(
    header: Header,
    steps: Sequence[Step],
    finished: str,
    texts: Mapping[int, str],
    drafts: Sequence[DraftSource],
) -> Trace:
    prompt = header.prompt_ids
    root = int(steps[0].tree.token[0])
    root_in_prompt = steps[0].prefix_length == len(prompt) - 1 and prompt[-1] == root
    after = [*[step.prefix_length for step in steps[1:]], steps[-1].caches[0].after]
    whole = []
    for step, entries in zip(steps, after, strict=True):
        nodes = [
            replace(node, beyond_draft=beyond(drafts, node.target_choice)) for node in step.nodes
        ]
        cache = replace(step.caches[0], after=entries)
        own = {token: texts[token] for token in sorted(_tokens(step))}
        whole.append(replace(step, caches=(cache,), texts=own, nodes=tuple(nodes)))
    settings = header.model_dump(include=SETTINGS, exclude_none=True)
    settings |= {"strategy": header.engine or RECORDED, "stop_at_eos": not header.ignore_eos}
    about: dict[str, Any] = header.model_dump(include=ABOUT)
    about |= {"target": header.model, "target_dtype": precision(header.dtype) or header.dtype}
    about["eos_ids"] = " ".join(map(str, header.eos_ids))
    return Trace(
        prompt_ids=prompt,
        first_token=None if root_in_prompt else root,
        steps=tuple(whole),
        settings=settings,
        models=about,
        texts=texts,
        finished=finished,
    )


def _tokens(step: Step) -> set[int]:
    tokens = {*step.tree.token.tolist(), *step.committed}
    for node in step.nodes:
        tokens.update(token for token, _ in (*node.target_top, *node.draft_top))
        if node.target_choice != UNKNOWN:
            tokens.add(node.target_choice)
    return tokens
