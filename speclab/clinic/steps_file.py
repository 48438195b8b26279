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

from speclab.clinic._detectors import FOLLOWS_THE_TARGET, RECORDED
from speclab.clinic._lines import DUMP, Dumped, Header, Pass, precision, read_line
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

Top = tuple[tuple[int, float], ...]
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
FOR_CHECKS = {"batch", "draft_topk", "request"}
"""Fields that no picture shows, so that a step does not miss them."""
SAMPLING = (
    "temperature top_k top_p min_p draft_temperature draft_top_k draft_top_p draft_min_p seed"
)
ABOUT = "engine tokenizer note format processed position_offset"
"""Fields of the header that become settings of the trace, and that describe its models."""


def load_steps(path: str | os.PathLike[str], pair: ModelPair | None = None) -> Trace:
    """Opens the verification passes that another decoder recorded: `speclab.steps/1`, or what a fork of
    llama.cpp writes if `LLAMA_SPEC_DUMP` names a file.

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
        if header is None and b'"n_accepted"' in raw:
            header = DUMP
        try:
            if header is None:
                header = read_line(Header, raw, where)
                continue
            if header is DUMP:
                length = steps[-1].caches[0].committed if steps else 0
                line = read_line(Dumped, raw, where).as_pass(length)
            else:
                line = read_line(Pass, raw, where)
            steps.append(_step(line, len(steps), header))
        except TraceError:
            if header is None or raw.endswith(b"\n"):
                raise
            finished = f"line {number} is incomplete and was left out"
            break
    if header is None or not steps:
        raise TraceError(
            f"{path} contains no verification pass: record one with speclab.recorder.Recorder."
        )
    known = sorted({*header.prompt_ids}.union(*map(_tokens, steps)))
    if pair is not None and header is not DUMP and known[-1] >= pair.vocab_size:
        raise TraceError(
            f"{path}: token {known[-1]} is outside the vocabulary of {pair.vocab_size} tokens."
        )
    texts = {token: f" #{token}" for token in known} if pair is None else pair.token_texts(known)
    drafts = () if pair is None else runners(pair)[1:]
    return _trace(header, steps, finished, texts, drafts)


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
    if rule not in FOLLOWS_THE_TARGET:  # a choice is then not what the text follows
        line = replace(line, choice=())
    start = line.prefix_length
    end = start + len(line.committed)
    slots = line.slot or range(start, start + n)
    missing = [name for name in ({*OPTIONAL} - FOR_CHECKS) | {"mask"} if not getattr(line, name)]
    tops = [_probabilities(line.topk[row]) if line.topk else () for row in order]
    not_numbers = [node for node, top in enumerate(tops) if any(p != p for _, p in top)]
    for node in not_numbers:
        tops[node] = ()
    came_to = looked(tree, accepted, end - start, drafted_root=False)
    seconds = sum(line.seconds.values())
    deepest = int(tree.depth.max())
    counts = Counts(1, end - start, n - 1, len(accepted), deepest, 1, 0, seconds, came_to)
    kept = line.kept_slots
    cache = CacheRecord("target", start, n, kept, (), end, end, max(end, *slots) + 1, 0)
    return Step(
        index=index,
        prefix_length=start,
        tree=tree,
        nodes=tuple(_nodes(line, tree, order, accepted, slots, tops)),
        accepted=accepted,
        committed=line.committed,
        bonus=line.committed[-1] if end - start > len(accepted) else None,
        root_choice=None,
        settings={},
        events=(),
        caches=(cache,),
        seconds=line.seconds,
        adaptation=Adaptation(),
        counts=counts,
        mask=_mask(line.mask, order) if line.mask else tree.ancestor_mask(),
        prefix_seen=tuple(seen),
        texts={},
        note=RECORDED,
        rule=rule,
        position=tuple([line.position[row] for row in order]) if line.position else (),
        hidden_prefix=hidden,
        rows=tuple(order) if order != list(range(n)) else (),
        missing=tuple(sorted([*missing, "entropy"])),
        not_numbers=tuple(not_numbers),
        request=str(line.request if line.request != "" else header.request),
        batch=str(line.batch),
    )


def _mask(packed: bytes, order: Sequence[int]) -> Bools:
    rows = np.frombuffer(packed, np.uint8).reshape(len(order), -1)
    mask = np.unpackbits(rows, axis=1, count=len(order)).astype(np.bool_)
    return mask[np.ix_(order, order)]


def _nodes(
    line: Pass,
    tree: DraftTree,
    order: Sequence[int],
    accepted: Sequence[int],
    slots: Sequence[int],
    top: Sequence[Top],
) -> Iterator[NodeRecord]:
    path = [0, *accepted]
    tokens = tree.token.tolist()
    # what follows each node of the path: the next one's token, then the target's own
    following = [*[tokens[node] for node in accepted], *line.committed[len(accepted) :][-1:]]
    followed = dict(zip(path, following, strict=False))
    draft = np.exp(tree.log_prob).tolist()
    path_probs = np.exp(tree.path_log_prob).tolist()
    for node, row in enumerate(order):
        parent = int(tree.parent[node])
        chosen = line.choice[row] if line.choice else followed.get(node, UNKNOWN)
        verdict: Verdict = "not reached"
        if node in path or parent in path:
            verdict = "accepted" if node in path else "rejected"
        yield NodeRecord(
            index=node,
            token=tokens[node],
            draft_prob=draft[node],
            path_prob=path_probs[node],
            target_prob=dict(top[parent]).get(tokens[node]) if node else None,
            target_choice=chosen,
            verdict=verdict if node else "root",
            kv_slot=slots[row],
            entropy=0.0,
            choice_prob=dict(top[node]).get(chosen),
            target_top=top[node],
            draft_top=_probabilities(line.draft_topk[row]) if line.draft_topk else (),
        )


def _probabilities(top: Top) -> Top:
    """Best first."""
    pairs = [(token, exp(log_prob)) for token, log_prob in top]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def _trace(
    header: Header,
    steps: list[Step],
    finished: str,
    texts: Mapping[int, str],
    drafts: Sequence[DraftSource],
) -> Trace:
    prompt = header.prompt_ids
    root = int(steps[0].tree.token[0])
    root_in_prompt = steps[0].prefix_length == len(prompt) - 1 and prompt[-1] == root
    after = [*[step.prefix_length for step in steps[1:]], steps[-1].caches[0].after]
    for index, step in enumerate(steps):
        cache = replace(step.caches[0], after=after[index])
        own = {token: texts[token] for token in sorted(_tokens(step))}
        nodes = [
            replace(each, beyond_draft=beyond(drafts, each.target_choice)) for each in step.nodes
        ]
        steps[index] = replace(step, caches=(cache,), texts=own, nodes=tuple(nodes))
    settings = {
        name: value for name in SAMPLING.split() if (value := getattr(header, name)) is not None
    }
    about: dict[str, Any] = {name: getattr(header, name) for name in ABOUT.split()}
    return Trace(
        prompt_ids=prompt,
        first_token=None if root_in_prompt else root,
        steps=tuple(steps),
        settings={
            "strategy": header.engine or RECORDED,
            "stop_at_eos": not header.ignore_eos,
            **settings,
        },
        models={
            **about,
            "target": header.model,
            "target_dtype": precision(header.dtype) or header.dtype,
            "eos_ids": " ".join(map(str, header.eos_ids)),
        },
        texts=texts,
        finished=finished,
    )


def _tokens(step: Step) -> set[int]:
    tops = {token for node in step.nodes for token, _ in (*node.target_top, *node.draft_top)}
    choices = {node.target_choice for node in step.nodes} - {UNKNOWN}
    return {*step.tree.token.tolist(), *step.committed, *choices, *tops}
