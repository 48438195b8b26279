"""The live page decodes as a session does: the same trees, verdicts, events and caches, from plain JavaScript."""

from __future__ import annotations

import gzip
import json
import random
import re
from html import unescape
from itertools import groupby
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from support.checkout import ROOT
from support.live import MINI, RUNS, decoded, in_node
from support.records import assert_alike, ran

import speclab
from speclab.prompts import examples
from speclab.trace.codecs import adapter
from speclab.trace.files import unpack_trace
from speclab.trace.records import Trace

pytestmark = pytest.mark.model
STRATEGIES = [
    speclab.DynaTree(node_budget=12, low_confidence=0.3),
    speclab.DynaTree(node_budget=256, prune_probability=0.05),
    speclab.FixedTree(depth=3, branching=2),
    speclab.DraftHead(node_budget=12, depth=5, children=4),
    speclab.LinearSpeculation(draft_tokens=8, confidence_stop=0.3),
    speclab.Autoregressive(),
]
PROMPTS = ["Once upon a time", "Zoë 🙂 said"]
TOKENS = 12


@pytest.fixture(scope="module")
def pair():
    names = ("target", "draft", "tokenizer")
    return speclab.load_pair(**{name: str(MINI / name) for name in names})


@pytest.fixture(scope="module")
def runs():
    wanted = [(strategy, prompt) for strategy in STRATEGIES for prompt in PROMPTS]
    data = [
        {"strategy": strategy.describe(), "prompt": prompt, "tokens": TOKENS}
        for strategy, prompt in wanted
    ]
    traces = [result["trace"] for result in decoded(data)]
    return [(*one, trace) for one, trace in zip(wanted, traces, strict=True)]


def test_steps_are_those_of_a_session(pair, runs):
    """Everything in a trace but seconds, to 1e-3."""
    for strategy, prompt, live in runs:
        session = ran(pair, strategy, prompt, max_new_tokens=TOKENS)
        own = json.loads(adapter(Trace).dump_json(session.trace))
        for trace in (own, live):
            trace.pop("models", None)
            trace.pop("prefill_seconds", None)
        for mine, its in zip(own["steps"], live["steps"], strict=True):
            columns = its["nodes"][0]  # a column may be the kernel's alone
            mine["nodes"] = [{name: node[name] for name in columns} for node in mine["nodes"]]
        assert_alike(live, own, f"{strategy}, {prompt}: ")
        assert session.steps


def test_the_clinic_finds_nothing_in_a_live_run(pair, runs):
    for _, _, live in runs[::2]:
        whole = {**live, "models": {}, "prefill_seconds": 0.0}
        trace = unpack_trace(gzip.compress(json.dumps(whole).encode()), "run")
        findings = speclab.clinic.check(trace, pair)
        assert [finding for finding in findings if finding.kind != speclab.clinic.TIE] == []


def test_token_ids_and_texts_are_the_tokenizers(pair):
    letters = random.Random(0)
    texts = [prompt.text for prompt in examples()] + ["a<|endoftext|>b", "\ufeff\u00a0x\u200d", ""]
    texts += ["".join(letters.choices("ab 1²\n\t's'llé😀 ¼<|", k=30)) for _ in range(60)]
    script = """
    const texts = tokenizer.pieces.map((_, id) => tokenizer.text(id));
    process.stdout.write(JSON.stringify({ ids: runs.map(text => tokenizer.encode(text)), texts }));
    """
    told = json.loads(in_node(RUNS + script, {"folder": str(MINI), "runs": texts}))
    assert told["ids"] == [pair.tokenizer(text)["input_ids"] for text in texts]
    assert dict(enumerate(told["texts"])) == pair.token_texts(range(len(told["texts"])))


@pytest.mark.night
def test_what_ships_reads_as_text(pair):
    """No half characters, and no token that repeats itself, in what the first 60 tokens say."""
    page = (ROOT / "speclab/live/index.html").read_text(encoding="utf-8")
    texts = {prompt.text for prompt in examples()}
    for link in re.findall(r'"(\?[^"]+)"', page):
        texts.update(parse_qs(urlsplit(unescape(link)).query).get("prompt", []))
    for text in texts:
        session = ran(pair, speclab.DynaTree(node_budget=16), text, max_new_tokens=60)
        assert "\ufffd" not in session.text, text
        assert max(len([*group]) for _, group in groupby(session.token_ids)) < 4, text


def test_logits_of_a_tree_are_the_targets(pair):
    parents = [-1, 0, 0, 1, 1, 2, 4]
    tree = speclab.DraftTree.of([5, 300, 17, 9, 2000, 40, 41], parents, [0.0] * 7, "test")
    prompt = pair.encode("The storm had been growing")
    runner = pair.target.fork(0)
    runner.extend(prompt)
    positions = (len(prompt) + tree.depth).tolist()
    wanted = runner.logits(tree.token.tolist(), positions, tree.ancestor_mask()).logits.numpy()
    script = """
    (async () => {
      const [{ prompt, token, sees }] = runs;
      await models.target.text(prompt);
      const rows = await models.target.rows(token, sees);
      process.stdout.write(JSON.stringify(rows.map(row => [...row])));
    })();
    """
    sees = [
        [*range(len(prompt)), *(len(prompt) + node for node in tree.path(row))]
        for row in range(len(tree))
    ]
    row = {"prompt": prompt, "token": tree.token.tolist(), "sees": sees}
    told = json.loads(in_node(RUNS + script, {"folder": str(MINI), "runs": [row]}))
    assert np.abs(np.asarray(told) - wanted).max() < 1e-4
