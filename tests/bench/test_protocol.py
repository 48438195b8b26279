"""Protocols and methods: what is shipped holds together, and a file of one's own is checked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from refusals import refused
from table_runner import mixed_probs, random_probs, table_pair
from words import word_tokenizer

import speclab
from speclab.bench.protocol import DRAFT, find, methods, protocols
from speclab.bench.run import plan
from speclab.bench.workloads import load, names
from speclab.errors import MeasurementError

PAPERS = {
    "dynatree-main", "dynatree-latency", "dynatree-verification", "dynatree-ablation", "dynatree-length",
    "dynatree-prompt-length", "dynatree-thresholds", "dynatree-breadth", "dynatree-depth", "dynatree-fixed-sweep",
    "dynatree-memory", "goose-main", "goose-topology", "goose-ablation", "goose-steps", "goose-allocation",
    "goose-tasks", "goose-decomposition", "goose-bound", "dual-draft-routing",
}  # fmt: skip


@pytest.fixture(scope="module")
def pair():
    """Tables in the place of models, with a context as long as the mini family's."""
    probs = random_probs(8, 1, low=0.5, high=2.0)
    draft = mixed_probs(probs, random_probs(8, 2), 0.3)
    heads = tuple(table_pair(draft, None, 8, context=1024).target for _ in range(2))
    return replace(table_pair(probs, draft, 8, context=1024), heads=heads, tokenizer=word_tokenizer(8))


def test_every_protocol_holds_together_and_fits_the_shipped_prompts(pair):
    assert PAPERS | {"main", "chat", "procedure", "budget", "goose-code", "training-free"} == protocols().keys()
    prompts = {name: load(name, 1) for name in ("shipped", "shipped-long", "shipped-chat")}
    for name, protocol in protocols().items():
        cells = [(one.name, one.x, one.x2) for one in protocol.methods]
        assert len(cells) == len(set(cells)), "no two methods look the same in the results"
        assert protocol.baseline == "plain" == protocol.methods[0].name
        assert protocol.workload in names()
        assert (protocol.source == "speclab") == (name not in PAPERS)
        assert (protocol.x_name is not None) == any(one.x is not None for one in protocol.methods)
        assert (protocol.x2_name is not None) == any(one.x2 is not None for one in protocol.methods)
        for one in protocol.methods:
            assert json.loads(json.dumps(one.settings))["strategy"]
            assert DRAFT not in one.settings.values() or one.group == "transformers"
        asked = plan(protocol, pair, prompts[protocol.workload])
        assert asked.max_new_tokens >= min(100, protocol.max_new_tokens), name
        assert {one.name for one in asked.methods} == {one.name for one in protocol.methods}, name


def test_methods_are_the_papers_presets():
    presets = speclab.DynaTree.presets().values()
    assert methods()["DynaTree, authors' code"].strategy in presets
    assert methods()["DynaTree, paper's procedure"].strategy in presets
    assert methods()["Goose, authors' code"].strategy in speclab.Goose.presets().values()
    assert methods()["plain, module forward"].passes == "module"
    assert methods()["transformers, assisted"].generate == {"assistant_model": DRAFT}


def test_a_workload_may_have_a_limit_of_its_own(pair):
    protocol, some = protocols()["goose-main"], load("shipped", 1)
    asked = [plan(protocol, pair, replace(some, name=name)) for name in ("gsm8k", "mbpp")]
    assert [one.arguments["max_new_tokens"] for one in asked] == [1024, 512]
    assert plan(protocol, pair, replace(some, name="gsm8k"), max_new_tokens=7).max_new_tokens == 7


OWN = """
[methods]
wide = "FixedTree(depth=3, branching=4)"

[[protocol]]
name = "own"
title = "A wide tree"
methods = ["plain", "wide"]
[[protocol.sweep]]
name = "chain"
strategy = "LinearSpeculation(draft_tokens={x})"
x = [2, 4]
"""


def test_a_file_of_ones_own_may_use_the_shipped_methods(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(OWN)
    protocol = find(str(file))
    assert [(one.name, one.x) for one in protocol.methods] == [
        ("plain", None),
        ("wide", None),
        ("chain", 2),
        ("chain", 4),
    ]
    assert protocol.methods[1].strategy == speclab.FixedTree(depth=3, branching=4)
    assert protocol.methods[3].strategy.draft_tokens == 4


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("depth=3", "deep=3", ("'wide'", "deep")),
        ('"wide"]', '"narrow"]', ("'own'", "'narrow'", "[methods]")),
        ('title = "A wide tree"', "", ("'own'", "title")),
        ('title = "A wide tree"', 'title = ""\nlimit = 0', ("'own'", "limit")),
        ("draft_tokens", "drafts", ("'chain'", "drafts")),
        ("x = [2, 4]", 'x = ["two"]', ("'own'", "x")),
        ('name = "own"', 'name = "own"\nlike = "other"', ("'own'", "'other'")),
        ("[methods]", "[ways]", ("own.toml", "ways")),
        ('wide = "FixedTree(depth=3, branching=4)"', "wide = {}", ("'wide'", "strategy", "generate")),
        ("[methods]", "[methods", ("own.toml is no TOML",)),
    ],
)
def test_a_wrong_entry_is_one_sentence_that_names_it(tmp_path, old, new, said):
    file = tmp_path / "own.toml"
    assert old in OWN
    file.write_text(OWN.replace(old, new, 1))
    with refused(MeasurementError, *said):
        find(str(file))


def test_a_protocol_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(MeasurementError, match="There is no protocol 'dynatree': choose one of main, "):
        find("dynatree")
    with refused(MeasurementError, "cannot be read"):
        find(str(tmp_path / "none.toml"))
    (tmp_path / "empty.toml").write_text("")
    with refused(MeasurementError, "holds no protocol"):
        find(str(tmp_path / "empty.toml"))
