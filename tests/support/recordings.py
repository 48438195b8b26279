"""Recordings of other decoders: lines written by hand, and sessions written down."""

import json

import torch
from support.pairs import PROMPT, pair_of

import speclab
from speclab import clinic
from speclab.recorder import Recorder, topk

ROOT = {
    "prefix_length": 3,
    "token": [7, 8, 9],
    "parent": [-1, 0, 0],
    "accepted": [2],
    "committed": [9, 4],
}
"""A pass of a root and two guesses after the prompt of `written`, of which the second is right."""


def written(path, *lines, **header):
    """The file of these passes."""
    first = {"format": "speclab.steps/1", "prompt_ids": [1, 2, 3]} | header
    path.write_text("".join([json.dumps(line) + "\n" for line in (first, *lines)]))
    return path


def recorded_session(session, path):
    """The session as another decoder would have recorded it."""
    with Recorder(path, session.trace.prompt_ids) as recorder:
        for step in session.steps:
            recorder.step(
                prefix_length=step.prefix_length,
                token=step.tree.token,
                parent=step.tree.parent,
                accepted=step.accepted,
                committed=step.committed,
                log_prob=step.tree.log_prob,
            )
    return speclab.load_steps(path, session.pair)


def kinds(run, pair=None, **more):
    """The kinds of what a check finds, but for ties."""
    return {finding.kind for finding in clinic.check(run, pair, **more)} - {clinic.TIE}


@torch.inference_mode()
def chains(path, drafter, propose, verify, passes=8, **header):
    """Chains of two tokens and the random llama's answers, recorded.

    `propose`: of the drafter's logits `[V]` a token, its log-probability and the best tokens.
    `verify`: of the chain's tokens and the target's logits `[3, V]` how many are accepted, and the
    token after them.
    """
    pair = pair_of("llama")
    text = [*PROMPT, 3]
    with Recorder(path, PROMPT, **header) as recorder:
        for _ in range(passes):
            token, log_prob, tops = [text[-1]], [0.0], []
            for _ in range(2):
                ids = torch.tensor([text[:-1] + token])
                proposed = propose(drafter(ids).logits[0, -1])
                for column, value in zip((token, log_prob, tops), proposed, strict=True):
                    column.append(value)
            logits = pair.target.model(torch.tensor([text[:-1] + token])).logits[0, -3:]
            accepted, own = verify(token, logits)
            committed = [*token[1 : accepted + 1], own]
            recorder.step(
                prefix_length=len(text) - 1,
                token=token,
                parent=[-1, 0, 1],
                accepted=range(1, accepted + 1),
                committed=committed,
                log_prob=log_prob,
                topk=topk(logits),
                draft_topk=[*tops, None],
            )
            text += committed
    return speclab.load_steps(path, pair), pair
