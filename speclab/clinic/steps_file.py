"""Steps of another decoder: opens a `speclab.steps/1` file (docs/steps.md) as a Trace."""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic_core import from_json

from speclab.clinic._step_lines import (
    FOLLOWS,
    FOR_CHECKS,
    MOST_TOKENS,
    RULES,
    Header,
    Pass,
    lines_of,
    precision,
    read_line,
    wrong_in,
)
from speclab.errors import SettingsError, TraceError, named
from speclab.recorder import FORMAT, OPTIONAL
from speclab.trace.codecs import Real
from speclab.trace.metrics import Counts, looked
from speclab.trace.records import UNKNOWN, Adaptation, CacheRecord, NodeRecord, Step, Trace, Verdict
from speclab.tree import Bools, DraftTree

if TYPE_CHECKING:
    from speclab.pair import ModelPair


def load_steps(path: str | os.PathLike[str], pair: ModelPair | None = None) -> Trace:
    """Opens the verification passes that another decoder recorded.

    Fields that are not recorded are empty and listed in `Step.missing`. Rows are reordered
    breadth-first; `Step.rows` has the row of the file for each node. An incomplete last line is
    dropped, and `Trace.finished` says so.

    Args:
        pair: the models, for token texts; without them a text is the token's number.

    Raises:
        TraceError: the file is missing, larger than 1 GB, of another version, or has an invalid
            line.
    """
    if pair is not None and not hasattr(pair, "vocab_size"):
        raise SettingsError(
            f'Expected a pair of models, got {named(pair)}: load it, as in speclab.load_pair("mini").'
        )
    header: Header | None = None
    steps: list[Step] = []
    finished = ""
    most = MOST_TOKENS if pair is None else pair.vocab_size
    for number, raw, last in lines_of(path):
        where = f"{path}, line {number}"
        try:
            value = from_json(raw)
        except ValueError as error:
            if last and header is not None:
                finished = f"line {number} is incomplete and was left out"
                break
            raise TraceError(f"{where} is not JSON ({error}): record it again.") from None
        value, raw = (value, raw) if isinstance(value, dict) else ({}, b"{}")
        if header is None:
            if value.get("format") != FORMAT:
                kind = f"{FORMAT!r}, not {value.get('format')!r}"
                raise TraceError(f"{where} must be a header of format {kind}: record it again.")
            header = read_line(Header, raw, where)
            ids: Collection[int] = header.prompt_ids
        else:
            line = read_line(Pass, raw, where)
            if wrong := next(wrong_in(line, most), ""):
                raise TraceError(f"{where}: {wrong}.")
            steps.append(_step(line, len(steps), header, value))
            ids = _tokens(steps[-1])
        if pair is not None and max(ids, default=0) >= pair.vocab_size:
            raise TraceError(
                f"{where}: token {max(ids)} is outside the vocabulary of {pair.vocab_size} tokens."
            )
    if header is None or not steps:
        raise TraceError(
            f"{path} contains no verification pass: record one with speclab.recorder.Recorder."
        )
    return _trace(header, steps, finished, pair)


def _step(line: Pass, index: int, header: Header, given: Mapping[str, Any]) -> Step:
    n = len(line.token)
    tree, order = DraftTree.grown(
        line.token, line.parent, line.log_prob or [0.0] * n, ["recorded"] * n
    )
    node_of = {row: node for node, row in enumerate(order)}
    accepted = tuple([node_of[row] for row in line.accepted])
    mask = _mask(line.mask, order) if line.mask else tree.ancestor_mask()
    hidden = tuple([(node_of[row], first, last) for row, first, last in line.hidden_prefix])
    hidden_entries = [
        [last - first + 1 for row, first, last in hidden if row == node] for node in range(n)
    ]
    rule = _rule(line, header)
    if rule not in FOLLOWS:  # a choice is then not what the text follows
        line = replace(line, choice=())
    bonus = line.committed[-1] if len(line.committed) > len(accepted) else None
    slots = line.slot or range(line.prefix_length, line.prefix_length + n)
    unread = {"choice"} if "choice" in given and not line.choice else set()
    missing = sorted({*OPTIONAL, "mask", "entropy"} - FOR_CHECKS - given.keys() | unread)
    not_numbers = [node_of[row] for row, top in enumerate(line.topk) if _broken(top)]
    return Step(
        index=index,
        prefix_length=line.prefix_length,
        tree=tree,
        nodes=tuple(_nodes(line, tree, order, accepted, bonus, slots)),
        accepted=accepted,
        committed=line.committed,
        bonus=bonus,
        root_choice=None,
        settings={},
        events=(),
        caches=(_cache(line, slots),),
        seconds=line.seconds,
        adaptation=Adaptation(),
        counts=Counts(
            1,
            len(line.committed),
            n - 1,
            len(accepted),
            int(tree.depth.max()),
            1,
            0,
            sum(line.seconds.values()),
            looked(tree, accepted, len(line.committed), drafted_root=False),
        ),
        mask=mask,
        prefix_seen=tuple([line.prefix_length - sum(hidden_entries[node]) for node in range(n)]),
        texts={},
        note="recorded",
        rule=rule,
        position=tuple([line.position[row] for row in order]) if line.position else (),
        hidden_prefix=hidden,
        rows=tuple(order) if order != list(range(n)) else (),
        missing=tuple(missing),
        not_numbers=tuple(sorted(not_numbers)),
        hidden=line.hidden,
        request=str(line.request if line.request != "" else header.request),
        batch=str(line.batch),
    )


def _cache(line: Pass, slots: Sequence[int]) -> CacheRecord:
    before = line.prefix_length
    end = before + len(line.committed)
    capacity = max(end, *slots) + 1
    return CacheRecord(
        "target", before, len(line.token), line.kept_slots, (), end, end, capacity, 0
    )


def _broken(top: Sequence[tuple[int, float]]) -> bool:
    """Whether a row's answer is not a number."""
    return any(value != value for _, value in top)


def _rule(line: Pass, header: Header) -> str:
    """The acceptance rule; a sampled run without one follows the choices that it recorded."""
    if header.rule:
        return RULES[header.rule]
    if not header.temperature:
        return "greedy"
    return "sample and match" if line.choice else "recorded"


def _mask(text: str, order: Sequence[int]) -> Bools:
    packed = np.frombuffer(base64.b64decode(text), np.uint8).reshape(len(order), -1)
    mask = np.unpackbits(packed, axis=1, count=len(order)).astype(np.bool_)
    return mask[np.ix_(order, order)]


def _nodes(
    line: Pass,
    tree: DraftTree,
    order: Sequence[int],
    accepted: Sequence[int],
    bonus: int | None,
    slots: Sequence[int],
) -> Iterator[NodeRecord]:
    path = [0, *accepted]
    followed = dict(zip(path, [*(int(tree.token[node]) for node in accepted), bonus], strict=True))
    draft = np.exp(tree.log_prob).tolist()
    path_probs = np.exp(tree.path_log_prob).tolist()
    top = [_probabilities(line.topk[row]) if line.topk else () for row in order]
    draft_top = [_probabilities(line.draft_topk[row]) if line.draft_topk else () for row in order]
    for node, row in enumerate(order):
        parent = int(tree.parent[node])
        chosen = line.choice[row] if line.choice else followed.get(node)
        known = dict(top[parent]) if node else {}
        verdict: Verdict = (
            "accepted" if node in path else "rejected" if parent in path else "not reached"
        )
        yield NodeRecord(
            index=node,
            token=int(tree.token[node]),
            draft_prob=draft[node],
            path_prob=path_probs[node],
            target_prob=known.get(int(tree.token[node])),
            target_choice=UNKNOWN if chosen is None else chosen,
            verdict="root" if node == 0 else verdict,
            kv_slot=slots[row],
            entropy=0.0,
            choice_prob=None if chosen is None else dict(top[node]).get(chosen),
            target_top=top[node],
            draft_top=draft_top[node],
        )


def _probabilities(top: Sequence[tuple[int, Real]]) -> tuple[tuple[int, float], ...]:
    """Best first; empty if a number is missing."""
    if _broken(top):
        return ()
    ordered = sorted(top, key=lambda pair: -pair[1])
    return tuple([(token, exp(log_prob)) for token, log_prob in ordered])


def _trace(header: Header, steps: list[Step], finished: str, pair: ModelPair | None) -> Trace:
    """If the first pass also runs the prompt's last token, that token is the root, and not part of the prompt here."""
    first = steps[0]
    prompt = header.prompt_ids
    root = int(first.tree.token[0])
    root_in_prompt = first.prefix_length == len(prompt) - 1 and prompt[-1] == root
    for index, step in enumerate(steps[:-1]):
        cache = replace(step.caches[0], after=steps[index + 1].prefix_length)
        steps[index] = replace(step, caches=(cache,))
    tokens = sorted({*prompt, *(token for step in steps for token in _tokens(step))})
    texts = (
        pair.token_texts(tokens) if pair is not None else {token: f" #{token}" for token in tokens}
    )
    steps = [
        replace(step, texts={token: texts[token] for token in sorted(_tokens(step))})
        for step in steps
    ]
    about: dict[str, Any] = {
        "target": header.model,
        "engine": header.engine,
        "tokenizer": header.tokenizer,
        "note": header.note,
        "target_dtype": precision(header.dtype) or header.dtype,
        "format": header.format,
        "processed": header.processed,
        "eos_ids": " ".join(map(str, header.eos_ids)),
        "position_offset": header.position_offset,
    }
    sampling = {
        "temperature": header.temperature,
        "top_k": header.top_k,
        "top_p": header.top_p,
        "min_p": header.min_p,
        "seed": header.seed,
        "stop_at_eos": not header.ignore_eos,
    }
    return Trace(
        prompt_ids=prompt[:-1] if root_in_prompt else prompt,
        first_token=root,
        steps=tuple(steps),
        settings={
            "strategy": header.engine or "recorded",
            **{name: value for name, value in sampling.items() if value is not None},
        },
        models=about,
        texts=texts,
        finished=finished,
    )


def _tokens(step: Step) -> set[int]:
    tops = {token for node in step.nodes for token, _ in (*node.target_top, *node.draft_top)}
    choices = {node.target_choice for node in step.nodes} - {UNKNOWN}
    return {*step.tree.token.tolist(), *step.committed, *choices, *tops}
