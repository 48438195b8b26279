"""Every strategy for every engine: a line that the engine's documented fields take, or the reason why there is none."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest
from traces import step_of, trace_of
from typer.testing import CliRunner

import speclab
from speclab import SettingsError, export_settings
from speclab.cli import app
from speclab.drafters import from_str
from speclab.serving.settings import ENGINES, check_fields, documented, most_draft_tokens
from speclab.tree import DraftTree

CHAIN = speclab.LinearSpeculation(draft_tokens=4)
SHIPPED = [kind for kind in speclab.strategies().values() if kind.__module__.startswith("speclab.")]
EVERY = [one for kind in SHIPPED for one in (kind(), *kind.presets().values())]
GOES = {
    "LinearSpeculation": {"vllm", "sglang", "llama.cpp"},
    "PromptLookup": {"vllm", "sglang", "llama.cpp"},
    "DraftHead": {"sglang"},
    "SuffixDecoding": {"vllm"},
}
"""Which engines take a strategy as it is; of the others none goes anywhere."""


def read(engine: str, line: str) -> dict[str, object]:
    """The settings that stand in a command line, read as the engine would."""
    words = shlex.split(line)
    if engine == "vllm":
        assert words[:2] == ["vllm", "serve"]
        assert words[-2] == "--speculative-config"
        return json.loads(words[-1])
    words = words[words.index("TARGET_MODEL") + 1 :]
    found: dict[str, object] = {}
    while words:
        name, *words = words
        kind = documented()[engine]["fields"][name]["type"]
        if kind == "bool":
            found[name] = True
        else:
            value, *words = words
            found[name] = {"int": int, "float": float, "str": str}[kind](value)
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("strategy", EVERY, ids=str)
def test_it_goes_as_a_line_that_reads_back_or_is_refused_with_a_way_that_goes(strategy, engine):
    name, heads = type(strategy).__name__, "org/EAGLE3-head"
    if engine in GOES.get(name, ()):
        found = export_settings(strategy, engine, heads=heads if name == "DraftHead" else None)
        assert read(engine, found.line) == found
        check_fields(engine, found)
        assert all(note.endswith(".") for note in found.notes)
        return
    with pytest.raises(SettingsError) as refusal:
        export_settings(strategy, engine)
    said = str(refusal.value)
    assert name in said
    assert documented()[engine]["title"] in said
    way = said.partition("goes there is ")[2].rstrip(".")
    assert way or name == "Autoregressive"
    assert not way or export_settings(from_str(way), engine, heads=heads).line


VLLM = "vllm serve t/t --speculative-config '{}'"
SGLANG = (
    "python -m sglang.launch_server --model-path t/t --speculative-algorithm STANDALONE --speculative-draft-model-path "
    "d/d --speculative-num-steps {} --speculative-eagle-topk {} --speculative-num-draft-tokens {}"
)
LLAMA = "llama-server -m t.gguf {}"
LOOKUP = speclab.PromptLookup(longest_ngram=4, shortest_ngram=2, draft_tokens=6)


@pytest.mark.parametrize(
    ("strategy", "engine", "line"),
    [
        (CHAIN, "vllm", VLLM.format('{"method": "draft_model", "model": "d/d", "num_speculative_tokens": 4}')),
        (CHAIN, "sglang", SGLANG.format(4, 1, 5)),
        (CHAIN, "llama.cpp", LLAMA.format("--model-draft d.gguf --spec-type draft-simple --spec-draft-n-max 4")),
        (LOOKUP, "vllm", VLLM.format(
            '{"method": "ngram", "num_speculative_tokens": 6, "prompt_lookup_max": 4, "prompt_lookup_min": 2}'
        )),
        (LOOKUP, "llama.cpp", LLAMA.format(
            "--spec-type ngram-simple --spec-ngram-simple-size-n 2 --spec-ngram-simple-size-m 6"
        )),
        (speclab.DraftHead(depth=3, children=4, node_budget=16), "sglang", SGLANG.format(3, 4, 16)),
    ],
)  # fmt: skip
def test_the_line_has_the_engines_names_and_the_strategys_values(strategy, engine, line):
    assert export_settings(strategy, engine, target="t/t", draft="d/d").line == line


@pytest.mark.parametrize(
    ("heads", "names"),
    [
        ("yuhuili/EAGLE-llama2-chat-7B", ("eagle", "EAGLE", None)),
        ("org/x-EAGLE3-8B", ("eagle3", "EAGLE3", "draft-eagle3")),
    ],
)
def test_a_head_drafts_a_chain_everywhere_but_llama_cpp_takes_eagle_3_alone(heads, names):
    chain = speclab.DraftHead(depth=3, children=1)
    vllm, sglang, llama = names
    assert export_settings(chain, "vllm", heads=heads)["method"] == vllm
    assert export_settings(chain, "sglang", heads=heads)["--speculative-algorithm"] == sglang
    if llama:
        assert export_settings(chain, "llama.cpp", heads=heads)["--spec-type"] == llama
    else:
        with pytest.raises(SettingsError, match="EAGLE-3 heads alone"):
            export_settings(chain, "llama.cpp", heads=heads)


@pytest.mark.model
def test_a_pairs_models_are_named_and_its_head_is_what_it_is():
    pair = speclab.load_pair()
    linear = export_settings(CHAIN, "vllm", pair=pair)
    assert linear["model"] == pair.draft.name
    assert "/" not in linear.line.replace(pair.target.name, "").replace(pair.draft.name, ""), "no path of this machine"
    assert any(pair.draft.name in note and pair.target.name in note for note in linear.notes)
    tree = export_settings(speclab.DraftHead(head=1), "sglang", pair=pair, target="org/target")
    assert tree["--speculative-draft-model-path"] == pair.heads[1].name
    assert tree["--speculative-algorithm"] == "EAGLE"
    assert any("own format" in note for note in tree.notes)
    assert not any("own format" in note for note in linear.notes)
    config = pair.heads[0].config.model_copy(update={"eagle3": True})
    heads = (SimpleNamespace(name="made", config=config, model=None),)
    made = SimpleNamespace(target=pair.target, draft=None, heads=heads)
    assert export_settings(CHAIN, "llama.cpp", pair=made)["--spec-type"] == "draft-eagle3", "the only one that drafts"


def test_llama_cpp_gets_files_or_repositories_of_files_and_is_told_how_to_make_the_others():
    found = export_settings(CHAIN, "llama.cpp", target="org/t-GGUF:Q4_K_M", draft="folder/d.gguf")
    assert shlex.split(found.line)[:5] == ["llama-server", "-hf", "org/t-GGUF:Q4_K_M", "--model-draft", "folder/d.gguf"]
    assert not any("convert" in note for note in found.notes)
    other = export_settings(CHAIN, "llama.cpp", target="folder/t.gguf", draft="org/d-gguf")
    assert shlex.split(other.line)[:5] == ["llama-server", "-m", "folder/t.gguf", "--spec-draft-hf", "org/d-gguf"]
    head = export_settings(speclab.DraftHead(children=1), "llama.cpp", target="org/t", heads="org/EAGLE3-t")
    assert head["--model-draft"] == "EAGLE3-t.gguf"
    assert any("t.gguf and EAGLE3-t.gguf" in note and "--target-model-dir" in note for note in head.notes)


def test_suffix_decoding_keeps_its_numbers_in_vllm_and_says_that_its_tree_is_a_path():
    strategy = speclab.SuffixDecoding(max_tree_depth=24, max_cached_requests=500, max_spec_factor=2.0)
    found = export_settings(strategy, "vllm")
    assert found == {
        "method": "suffix",
        "num_speculative_tokens": 24,
        "suffix_decoding_max_tree_depth": 24,
        "suffix_decoding_max_cached_requests": 500,
        "suffix_decoding_max_spec_factor": 2.0,
        "suffix_decoding_min_token_prob": 0.1,
    }
    assert any("one path" in note for note in found.notes)
    assert not any("one path" in note for note in export_settings(strategy.changed(use_tree_spec=False), "vllm").notes)


def test_a_tree_of_one_branch_is_a_chain_and_a_chain_of_samples_says_so():
    tree = speclab.FixedTree(depth=4, branching=1)
    assert export_settings(tree, "vllm") == export_settings(CHAIN, "vllm")
    sampled = CHAIN.changed(candidates="independent", head=0)
    assert export_settings(sampled, "vllm")["draft_sample_method"] == "probabilistic"
    assert export_settings(sampled, "sglang")["--speculative-use-rejection-sampling"] is True
    assert export_settings(sampled.changed(head=None), "llama.cpp")["--spec-draft-sampling"] == "probabilistic"


def test_what_does_not_carry_over_is_in_the_notes():
    stop = CHAIN.changed(confidence_stop=0.4)
    for engine in ("vllm", "sglang"):
        assert any("confidence_stop=0.4" in note for note in export_settings(stop, engine).notes)
    assert export_settings(stop, "llama.cpp")["--spec-draft-p-min"] == 0.4
    first = export_settings(speclab.PromptLookup(pick="first"), "llama.cpp")
    assert any("pick='first'" in note for note in first.notes)
    assert first.line in str(first)
    assert all(note in str(first) for note in first.notes)


def test_sglangs_tree_never_has_more_draft_tokens_than_candidates():
    whole = speclab.DraftHead(depth=3, children=2, node_budget=200)
    found = export_settings(whole, "sglang")
    assert found["--speculative-num-draft-tokens"] == most_draft_tokens(3, 2) == 11
    assert any("200" in note for note in found.notes)


def test_a_budget_by_cost_is_written_as_a_run_settled_on_it():
    strategy = speclab.LinearSpeculation(draft_tokens=32, budget="auto")
    assert export_settings(strategy, "vllm")["num_speculative_tokens"] == 32

    def run(*lengths: int, name: str = "LinearSpeculation"):
        chains = [DraftTree.of([5] * (n + 1), range(-1, n), [0.0] * (n + 1), "draft") for n in lengths]
        return trace_of(*[replace(step_of(chain), settings={"strategy": name}) for chain in chains])

    found = export_settings(strategy, "vllm", trace=run(0, 2, 3, 0, 7))
    assert found["num_speculative_tokens"] == 3, "where it drafted"
    assert any("median" in note for note in found.notes)
    with pytest.raises(SettingsError, match="LinearSpeculation"):
        export_settings(strategy, "vllm", trace=run(2, name="Other"))
    with pytest.raises(SettingsError, match="budget='fixed'"):
        export_settings(strategy, "vllm", trace=run(0, 0))


@pytest.mark.parametrize(
    ("engine", "fields", "said"),
    [
        ("vllm", {"speculative_token_tree": "[(0,)]"}, "speculative_token_tree"),
        ("vllm", {"num_speculative_tokens": 0}, "ge 1"),
        ("vllm", {"num_speculative_tokens": True}, "True"),
        ("vllm", {"method": "medusa"}, "choices"),
        ("sglang", {"--speculative-eagle-topk": 1.5}, "1.5"),
        ("llama.cpp", {"--draft-max": 5}, "--draft-max"),
        ("llama.cpp", {"--spec-ngram-simple-size-m": 2000}, "1024"),
    ],
)
def test_a_field_that_is_not_documented_or_out_of_bounds_is_an_error(engine, fields, said):
    with pytest.raises(SettingsError, match=said):
        check_fields(engine, fields)


@pytest.mark.parametrize("engine", ENGINES)
def test_defaults_keep_the_rules_and_every_list_says_where_and_when_it_was_read(engine):
    about = documented()[engine]
    defaults = {name: rule["default"] for name, rule in about["fields"].items() if rule["default"] not in {"", "none"}}
    check_fields(engine, defaults)
    assert all(len(one["commit"]) == 40 and one["file"] and one["day"] for one in about["read"])


def test_bad_input_is_one_sentence():
    with pytest.raises(SettingsError, match=r"vllm, sglang, llama\.cpp"):
        export_settings(CHAIN, "tensorrt")
    with pytest.raises(SettingsError, match="The class LinearSpeculation is no strategy"):
        export_settings(speclab.LinearSpeculation, "vllm")
    with pytest.raises(SettingsError, match=r"^An object of type dict is no strategy"):  # however long its contents
        export_settings({"a": "b"}, "vllm")
    for wrong in (5, ["a"], object()):
        with pytest.raises(SettingsError, match="is no name of a model"):
            export_settings(CHAIN, "vllm", draft=wrong)
    with pytest.raises(SettingsError, match="'mini' is no pair"):
        export_settings(CHAIN, "vllm", pair="mini")
    with pytest.raises(SettingsError, match="'run' is no run"):
        export_settings(speclab.LinearSpeculation(budget="auto"), "vllm", trace="run")


def test_a_name_with_spaces_and_quotes_stays_one_word_of_the_line():
    found = export_settings(CHAIN, "sglang", target="TARGET_MODEL", draft="my 'best' model")
    assert read("sglang", found.line)["--speculative-draft-model-path"] == "my 'best' model"
    assert "&lt;x&gt;" in export_settings(CHAIN, "sglang", target="<x>")._repr_html_()


def test_the_command_prints_the_line_and_a_refusal():
    run = lambda *words: CliRunner().invoke(app, ["export", *words])  # noqa: E731
    shown = run("LinearSpeculation", "--engine", "vllm", "--set", "draft_tokens=4")
    assert export_settings(CHAIN, "vllm").line in shown.output
    assert run("Goose", "--engine", "vllm").exit_code == 1
