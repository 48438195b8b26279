"""A setting taken to a serving engine: `export_settings` writes it as vLLM, SGLang or llama.cpp take it.

A strategy says what it is in neutral words (`drafters.base.Outline`), and an engine has a writer for each kind that it
knows. What is written is checked against the fields that the engine documents (`engines.toml`).
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from speclab.drafters import from_str, to_str
from speclab.drafters.base import Outline, Strategy, checked
from speclab.errors import SettingsError, named

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair
    from speclab.trace.records import Trace

ENGINES = ("vllm", "sglang", "llama.cpp")
Fields = dict[str, str | int | float | bool]
_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "str": (str,), "bool": (bool,)}


class Exported(Fields):
    """What the engine calls its settings → their values; shown as the line to paste and its notes.

    `line`: starts the engine's server with them. `notes`: what does not carry over, or is written otherwise than one
    would think, a sentence each.
    """

    def __init__(self, engine: str, fields: Fields, line: str, notes: tuple[str, ...]) -> None:
        super().__init__(fields)
        self.engine, self.line, self.notes = engine, line, notes

    def __str__(self) -> str:
        return "\n".join([self.line, *(f"# {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        items = "".join([f"<li>{escape(note)}</li>" for note in self.notes])
        return f'<pre style="white-space:pre-wrap;overflow-wrap:anywhere">{escape(self.line)}</pre><ul>{items}</ul>'


@dataclass(frozen=True, slots=True)
class _Models:
    """The `names` to write of "target", "draft" and "heads", where there are any.

    `eagle3`: of the head; None: its name tells. `own`: whether it is in speclab's format. `folders`: names that stand
    for folders of this machine.
    """

    names: Mapping[str, str]
    eagle3: bool | None = None
    own: bool = False
    folders: tuple[str, ...] = ()

    @classmethod
    def of(cls, pair: ModelPair | None, head: int, names: dict[str, str]) -> _Models:
        """Those that have `names`, and else those of the pair."""
        if pair is None:
            return cls(names)
        heads = pair.heads[head] if head < len(pair.heads) and "heads" not in names else None
        folders = []
        for what, model in {"target": pair.target, "draft": pair.draft, "heads": heads}.items():
            if what not in names and model is not None:
                config = getattr(getattr(model, "model", None), "config", None)
                hub = str(getattr(config, "_name_or_path", "") or "")
                if not hub or Path(hub).exists():
                    folders.append(model.name)
                names = {**names, what: model.name if model.name in folders else hub}
        config = getattr(heads, "config", None)  # a second draft model in the place of a head has none
        own = getattr(config, "format", "") == "speclab"
        return cls(names, getattr(config, "eagle3", None), own, tuple(folders))

    def drafting(self, values: Mapping[str, Any]) -> tuple[str, str]:
        """What drafts, "draft", "eagle" or "eagle3", and its name."""
        head = values["head"] is not None
        if values.get("either"):  # EAGLE-2's tree of a draft model, where there is no head
            head = "heads" in self.names or "draft" not in self.names
        elif not head:  # where there is no draft model, the first head drafts
            head = "draft" not in self.names and "heads" in self.names
        if not head:
            return "draft", self.names.get("draft", "DRAFT_MODEL")
        name = self.names.get("heads", "DRAFT_HEAD")
        named = "eagle3" in name.lower().replace("-", "").replace("_", "")
        return "eagle3" if self.eagle3 or (self.eagle3 is None and named) else "eagle", name


def _is_gguf(name: str) -> bool:
    return name.endswith(".gguf") or _is_repository(name)


def _is_repository(name: str) -> bool:
    """Whether it is a repository of GGUF files on the hub, which llama.cpp loads by its name."""
    return re.fullmatch(r"[\w.-]+/[\w.-]*gguf[\w.-]*(?<!\.gguf)(:\w+)?", name, re.IGNORECASE) is not None


Written = tuple[Fields, list[str]]
Writer = Callable[[Mapping[str, Any], _Models], Written]


def export_settings(
    strategy: Strategy,
    engine: str,
    *,
    pair: ModelPair | None = None,
    target: str | PathLike[str] | None = None,
    draft: str | PathLike[str] | None = None,
    heads: str | PathLike[str] | None = None,
    trace: Trace | None = None,
) -> Exported:
    """The strategy as a setting of vLLM ("vllm"), SGLang ("sglang") or llama.cpp ("llama.cpp").

        print(speclab.export_settings(speclab.LinearSpeculation(draft_tokens=5), "vllm", draft="Qwen/Qwen3-0.6B"))

    Args:
        pair: whose models are named, and whose head is written as what it is.
        target, draft, heads: names or paths as the engine takes them, before the pair's; a name in capitals stands
            where one is missing. A head that is named here is one of EAGLE-3 if its name has "eagle3" in it.
        trace: of a run with `budget="auto"`: its median sizes are written, and without it the largest that may be.

    Raises:
        SettingsError: there is no such engine, or nothing in it does this; the sentence says why, and what is near it.
    """
    if engine not in ENGINES:
        raise SettingsError(f"There is no engine {engine!r} to write settings for: choose one of {', '.join(ENGINES)}.")
    outline, notes = checked(strategy).outline(), []
    writer = _WRITERS.get((engine, outline.kind))
    if writer is None:
        raise SettingsError(_refusal(strategy, outline, engine))
    if strategy.chooses_budget:
        outline, note = _settled(strategy, outline, trace)
        notes.append(note)
    given: dict[str, object] = {"target": target, "draft": draft, "heads": heads}
    if wrong := [name for name in given.values() if not isinstance(name, str | PathLike | None)]:
        raise SettingsError(
            f"{named(wrong[0])} is no name of a model: give a name or path, or pair= for a loaded pair."
        )
    if pair is not None and not hasattr(pair, "heads"):  # its module need not be loaded to tell
        raise SettingsError(f"{named(pair)} is no pair of models: leave pair= out, or load it with speclab.load_pair.")
    names = {what: str(name) for what, name in given.items() if name}
    models, made = _Models.of(pair, outline.values.get("head") or 0, names), dict[str, str]()
    if engine == "llama.cpp":
        made = {what: f"{Path(name).name}.gguf" for what, name in models.names.items() if not _is_gguf(name)}
        models = replace(models, names={**models.names, **made}, folders=())
    fields, more = writer(outline.values, models)
    check_fields(engine, fields)
    target_name = models.names.get("target", "TARGET_MODEL")
    used = {target_name, *fields.values()}
    if folders := [name for name in models.folders if name in used]:
        more.append(f"Models from folders are named only ({', '.join(folders)}): write the paths that the engine sees.")
    if files := [name for name in made.values() if name in used]:
        more.append(_GGUF.format(names=" and ".join(files)) + (_OF_HEADS if made.get("heads") in files else "."))
    if models.own and models.names["heads"] in used:
        more.append(_OWN.format(name=models.names["heads"]))
    return Exported(engine, fields, _line(engine, fields, target_name), (*notes, *more, _SAMPLING))


def nearest(strategy: Strategy, engine: str) -> str:
    """What is near a strategy and goes to the engine, as `from_str` reads it; "" for one that drafts nothing."""
    outline = strategy.outline()
    usual = "LinearSpeculation(draft_tokens=5)" if strategy.needs_draft else "PromptLookup(draft_tokens=10)"
    parts = [part for one in strategy.baselines() for part in (to_str(one), *one.outline().instead)]
    goes = (one for one in (*outline.instead, *parts, usual) if (engine, from_str(one).outline().kind) in _WRITERS)
    return "" if outline.kind == "plain" else next(goes)


@cache
def documented() -> dict[str, Any]:
    """For each engine its `title`, its `fields` and where they were `read`, as `engines.toml` has them."""
    return tomllib.loads(files(__package__).joinpath("engines.toml").read_text(encoding="utf-8"))


def check_fields(engine: str, fields: Mapping[str, Any]) -> None:
    """Checks settings against what the engine documents.

    Raises:
        SettingsError: it has no such field, or the value is of another type or out of bounds; the sentence says which.
    """
    title, known = documented()[engine]["title"], documented()[engine]["fields"]
    for name, value in fields.items():
        if name not in known:
            raise SettingsError(f"{title} has no documented setting {name!r}: it has {', '.join(known)}.")
        rule = known[name]
        right = isinstance(value, _TYPES[rule["type"]]) and isinstance(value, bool) == (rule["type"] == "bool")
        bounded = right and value >= rule.get("ge", value) and value <= rule.get("le", value)
        if not bounded or value not in rule.get("choices", [value]):
            facts = ", ".join(f"{key} {said}" for key, said in rule.items() if key != "default")
            raise SettingsError(f"{title}'s {name} does not take {value!r} ({facts}).")


def most_draft_tokens(num_steps: int, topk: int) -> int:
    """The largest `num_draft_tokens` that SGLang's tree has nodes for, the root included.

    The root gives `topk` candidates; on each further level the `topk` best of the level above give `topk` each
    (`select_top_k_tokens` and `organize_draft_results` in SGLang's source).
    """
    return 1 + topk + (num_steps - 1) * topk * topk


def _refusal(strategy: Strategy, outline: Outline, engine: str) -> str:
    """Why nothing in the engine does this, and what is near it that does."""
    title, way = documented()[engine]["title"], nearest(strategy, engine)
    said = f"{type(strategy).__name__} does not go to {title}: "
    if not way:
        return f"{said}it drafts nothing; start the engine without its speculative options."
    why = f"{title} has no suffix decoding" if outline.kind == "suffix" else outline.why
    why = _NO_TREES[engine] if outline.kind in {"tree", "best"} else why
    return f"{said}{why}; what is near it and goes there is {way}."


def _settled(strategy: Strategy, outline: Outline, trace: Trace | None) -> tuple[Outline, str]:
    """The sizes that a run with a budget by cost came to, and what is said of it."""
    values = dict(outline.values)
    if trace is None:
        return outline, (
            "budget='auto' chooses a size in each iteration, by what passes cost here; the line has the largest. With "
            "trace=session.trace it has the median of a run."
        )
    if not hasattr(trace, "steps"):
        raise SettingsError(f"{named(trace)} is no run: give a trace, as speclab.load_trace opens it.")
    own = [step.tree for step in trace.steps if step.settings.get("strategy") == type(strategy).__name__]
    if not own:
        raise SettingsError(f"No iteration of this run is by {type(strategy).__name__}: give the trace of a run of it.")
    trees = [tree for tree in own if len(tree) > 1]
    if not trees:
        raise SettingsError(
            "No iteration of this run drafted anything, for by the costs measured here that does not pay: there is "
            "nothing to write; give a size with budget='fixed'."
        )
    deep, nodes = (round(median(sizes)) for sizes in zip(*((int(t.depth[-1]), len(t)) for t in trees), strict=True))
    found = {"tokens": deep, "depth": deep, "nodes": max(2, nodes)}
    values |= {name: size for name, size in found.items() if name in values}
    return Outline(outline.kind, values), (
        f"budget='auto' chose a size in each iteration, by what passes cost here; the line has the median of the "
        f"{len(trees)} iterations that drafted."
    )


def _line(engine: str, fields: Fields, target: str) -> str:
    if engine == "vllm":
        return shlex.join(["vllm", "serve", target, "--speculative-config", json.dumps(fields)])
    words = ["python", "-m", "sglang.launch_server", "--model-path", target]
    if engine == "llama.cpp":
        words = ["llama-server", "-hf" if _is_repository(target) else "-m", target]
    words += [word for name, value in fields.items() for word in ([name] if value is True else [name, f"{value}"])]
    return shlex.join(words)


# What each engine has of each kind: its own fields, and what does not carry over.


def _vllm_chain(values: Mapping[str, Any], models: _Models) -> Written:
    method, name = models.drafting(values)
    fields: Fields = {"method": "draft_model" if method == "draft" else method, "model": name}
    fields["num_speculative_tokens"] = values["tokens"]
    if values.get("sampled"):
        fields["draft_sample_method"] = "probabilistic"
    return fields, _head_note(method) + _stop_note(values, "vLLM")


def _vllm_lookup(values: Mapping[str, Any], _: _Models) -> Written:
    fields: Fields = {
        "method": "ngram", "num_speculative_tokens": values["tokens"],
        "prompt_lookup_max": values["longest"], "prompt_lookup_min": values["shortest"],
    }  # fmt: skip
    return fields, _pick_note(values, "first", "vLLM's ngram copies what follows the earliest of the longest matches")


def _vllm_suffix(values: Mapping[str, Any], _: _Models) -> Written:
    names = ("max_tree_depth", "max_cached_requests", "max_spec_factor", "min_token_prob")
    own = {f"suffix_decoding_{name}": values[name] for name in names}
    notes = [_RUNNERS]
    if values["tree"]:
        notes.append("vLLM drafts one path: use_tree_spec=True does not carry over.")
    if values["corpus"]:
        notes.append(f"vLLM's global tree holds earlier outputs alone, and not corpus={values['corpus']!r}.")
    return {"method": "suffix", "num_speculative_tokens": values["tokens"], **own}, notes


def _sglang_chain(values: Mapping[str, Any], models: _Models) -> Written:
    method, name = models.drafting(values)
    fields = _sglang_drafting(method, name, values["tokens"], 1, values["tokens"] + 1)
    notes = [*_head_note(method), _ROOT]
    if values.get("sampled") and method == "draft":
        notes.append("SGLang samples from EAGLE heads alone: its draft model gives the most probable token.")
    elif values.get("sampled"):
        fields["--speculative-use-rejection-sampling"] = True
    return fields, notes + _stop_note(values, "SGLang")


def _sglang_best(values: Mapping[str, Any], models: _Models) -> Written:
    method, name = models.drafting(values)
    steps, topk, nodes = values["depth"], values["children"], values["nodes"]
    most = most_draft_tokens(steps, topk)
    fields = _sglang_drafting(method, name, steps, topk, max(2, min(nodes, most)))
    notes = _head_note(method)
    if nodes > most:
        notes.append(f"{steps} levels of topk {topk} have {most} nodes with the root: node_budget={nodes} keeps all.")
    return fields, [*notes, _PAGES]


def _sglang_drafting(method: str, name: str, steps: int, topk: int, nodes: int) -> Fields:
    algorithms = {"draft": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3"}
    return {
        "--speculative-algorithm": algorithms[method], "--speculative-draft-model-path": name,
        "--speculative-num-steps": steps, "--speculative-eagle-topk": topk, "--speculative-num-draft-tokens": nodes,
    }  # fmt: skip


def _sglang_lookup(values: Mapping[str, Any], _: _Models) -> Written:
    fields: Fields = {
        "--speculative-algorithm": "NGRAM", "--speculative-num-draft-tokens": values["tokens"] + 1,
        "--speculative-ngram-min-bfs-breadth": 1, "--speculative-ngram-max-bfs-breadth": 1,
        "--speculative-ngram-max-trie-depth": values["longest"] + values["tokens"],
    }  # fmt: skip
    notes = [_SHARED, _ROOT]
    if values["shortest"] > 1:
        notes.append(f"SGLang matches down to a single token: shortest_ngram={values['shortest']} does not carry over.")
    return fields, notes + _pick_note(values, "last", "SGLang copies the most recent continuation")


def _llama_chain(values: Mapping[str, Any], models: _Models) -> Written:
    method, name = models.drafting(values)
    if method == "eagle":
        raise SettingsError(
            "llama.cpp drafts with EAGLE-3 heads alone (draft-eagle3), and this one's name says nothing of EAGLE-3: "
            "give heads=… with eagle3 in its name, or draft=… for a draft model."
        )
    fields: Fields = {
        "--spec-draft-hf" if _is_repository(name) else "--model-draft": name,
        "--spec-type": "draft-simple" if method == "draft" else "draft-eagle3", "--spec-draft-n-max": values["tokens"],
    }  # fmt: skip
    notes = []
    if values.get("stop"):
        fields["--spec-draft-p-min"] = values["stop"]
        notes.append("llama.cpp leaves out the token that falls below --spec-draft-p-min; confidence_stop keeps it.")
    if values.get("sampled") and method == "draft":
        fields["--spec-draft-sampling"] = "probabilistic"
        notes.append("--spec-draft-sampling is there from build b11368 on (ggml-org/llama.cpp #27694).")
    elif values.get("sampled"):
        notes.append("llama.cpp's EAGLE-3 heads give their most probable token: sampled candidates do not carry over.")
    return fields, notes


def _llama_lookup(values: Mapping[str, Any], _: _Models) -> Written:
    shortest, longest = values["shortest"], values["longest"]
    fields: Fields = {
        "--spec-type": "ngram-simple", "--spec-ngram-simple-size-n": shortest,
        "--spec-ngram-simple-size-m": values["tokens"],
    }  # fmt: skip
    notes = []
    if shortest != longest:
        notes.append(f"ngram-simple matches n-grams of one length, here {shortest}: no longer match is preferred.")
    notes.append(f"ngram-simple drafts nothing before the text has {shortest + values['tokens'] + 2} tokens.")
    return fields, notes + _pick_note(values, "last", "ngram-simple copies what follows the last match")


def _head_note(method: str) -> list[str]:
    if method != "eagle":
        return []
    return ["The head is written as one of EAGLE-1 or 2; for one of EAGLE-3 give heads=… with eagle3 in its name."]


def _stop_note(values: Mapping[str, Any], title: str) -> list[str]:
    stop = values.get("stop")
    return [f"{title} drafts as many tokens always: confidence_stop={stop} does not carry over."] if stop else []


def _pick_note(values: Mapping[str, Any], pick: str, does: str) -> list[str]:
    return [] if values["pick"] == pick else [f"{does}: pick={values['pick']!r} does not carry over."]


_RUNNERS = (
    "vLLM's default model runner V2 verifies num_speculative_tokens rows always (it suggests 8), and uses neither "
    "max_spec_factor nor min_token_prob; V1 uses both, and needs the package arctic-inference."
)
_SHARED = (
    "SGLang's n-gram cache holds the texts of all requests, and where the longest match ends early shorter ones fill "
    "the rest."
)
_PAGES = "With a page size above 1, SGLang takes topk above 1 on the backends flashinfer, fa3 and triton alone."
_ROOT = "num_draft_tokens counts the newest token, too, which is verified with the draft."
_GGUF = "{names}: llama.cpp's convert_hf_to_gguf.py makes GGUF files of models"
_OF_HEADS = ", and of a head with --target-model-dir."
_OWN = "The head {name} is in speclab's own format, which no engine loads: give one of EAGLE's."
_WRITERS: dict[tuple[str, str], Writer] = {
    ("vllm", "chain"): _vllm_chain,
    ("vllm", "lookup"): _vllm_lookup,
    ("vllm", "suffix"): _vllm_suffix,
    ("sglang", "chain"): _sglang_chain,
    ("sglang", "best"): _sglang_best,
    ("sglang", "lookup"): _sglang_lookup,
    ("llama.cpp", "chain"): _llama_chain,
    ("llama.cpp", "lookup"): _llama_lookup,
}
_NO_TREES = {
    "vllm": "vLLM verifies chains alone since it removed tree attention (vllm-project/vllm #42121)",
    "llama.cpp": "llama-server verifies one chain of drafted tokens",
    "sglang": "SGLang shapes the trees of a draft model or head by EAGLE-2's rule alone",
}
_SAMPLING = "Temperature, top-k and top-p come with each request; the engines' own defaults are not greedy."
