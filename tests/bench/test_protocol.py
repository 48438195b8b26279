"""What is measured and on what: protocols, methods, prompts; shipped, or in a file of one's own."""

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
from speclab.bench.workloads import WORKLOADS, load
from speclab.errors import MeasurementError
from speclab.prompts import examples, kinds

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
        assert protocol.workload in WORKLOADS
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


def lines(*records: object) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


def test_the_shipped_prompts_by_kind():
    shipped = load("shipped")
    assert [task.text for task in shipped.tasks] == [prompt.text for prompt in examples()]
    assert list(shipped.kinds) == kinds()
    assert all(len(texts) == 2 for texts in load("shipped", 2).kinds.values())


def test_what_users_ask_is_of_five_kinds_eight_each():
    asked = load("shipped-chat")
    assert {kind: len(set(texts)) for kind, texts in asked.kinds.items()} == dict.fromkeys(kinds(chat=True), 8)
    assert len({task.name for task in asked.tasks}) == 40
    assert len(kinds(chat=True)) == 5


def test_long_prompts_are_the_shipped_ones_of_a_kind_joined_and_all_differ():
    tasks = load("shipped-long").tasks
    assert len(tasks) == len(examples())
    prose = [prompt.text for prompt in examples("prose")]
    some = [task.text for task in tasks if task.kind == "prose"]
    assert all(text in long for long in some for text in prose)
    assert [long.endswith(text) for long, text in zip(some, prose, strict=True)] == [True] * len(prose)
    assert len({task.text for task in tasks}) == len(tasks)


def test_a_folder_of_files_and_a_line_that_does_not_parse(tmp_path):
    good = [{"id": "a", "dataset": "gsm8k", "category": "math", "prompt": "1 + 1"}, {"prompt": "no names\u2028here"}]
    (tmp_path / "one.jsonl").write_text(lines(good[0]) + "{broken\n\n" + lines({"text": 1}, [1], good[0]))
    (tmp_path / "two.jsonl").write_text(lines(good[1], {"prompt": "  "}))
    found = load(str(tmp_path))
    assert [(task.name, task.kind, task.text) for task in found.tasks] == [
        ("a", "gsm8k", "1 + 1"),
        ("two-1", "two", "no names\u2028here"),
    ]
    said = "\n".join(found.notes)
    assert "one.jsonl, line 2: no JSON" in said
    assert "one.jsonl, line 4: no object with a field prompt" in said
    assert "one.jsonl, line 5: no object" in said
    assert "one.jsonl, line 6: the id 'a' is taken" in said
    assert "two.jsonl, line 2: no object" in said
    assert len(found.notes) == 5


def test_the_digest_tells_prompts_apart(tmp_path):
    file = tmp_path / "some.jsonl"
    file.write_text(lines({"prompt": "a"}, {"prompt": "b"}))
    before = load(str(file)).digest
    assert before == load(str(file)).digest != load(str(file), 1).digest
    file.write_text(lines({"prompt": "a"}, {"prompt": "c"}))
    assert load(str(file)).digest != before


def test_an_unknown_name_lists_what_there_is(tmp_path):
    with refused(MeasurementError, "'humanevil'", "shipped", "shipped-long", "JSONL"):
        load("humanevil")
    assert list(WORKLOADS) == ["shipped", "shipped-long", "shipped-chat"]
    with refused(MeasurementError, "no .jsonl file"):
        load(str(tmp_path))
    (tmp_path / "bad.jsonl").write_text("{\n")
    with refused(MeasurementError, "holds no prompt", "bad.jsonl, line 1"):
        load(str(tmp_path))


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "/dev/zero"], ids=["NUL", "long", "device"])
def test_a_path_that_is_no_file_of_prompts_is_one_sentence(name):
    with pytest.raises(MeasurementError) as caught:
        load(name)
    assert len(str(caught.value)) <= 500
    assert str(caught.value).isprintable()


def test_a_line_of_brackets_is_left_out(tmp_path):
    (tmp_path / "deep.jsonl").write_text("[" * 100_000 + "\n" + lines({"prompt": "1 + 1"}))
    assert [task.text for task in load(str(tmp_path / "deep.jsonl")).tasks] == ["1 + 1"]
