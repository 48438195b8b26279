"""Lesson 1: its pictures, the functions that it gives, and the tests of its exercises."""

from importlib.util import module_from_spec, spec_from_file_location
from inspect import getsource
from pathlib import Path
from tempfile import gettempdir

import plotly.graph_objects as go
import torch
from transformers import DynamicCache

import speclab
from speclab.course import check, plain
from speclab.course.export import solution


def lanes(pair, prompt, tokens=64):
    """The passes of plain decoding and of DynaTree in two lanes, and what they gained."""
    ways = {"plain": speclab.Autoregressive(), "DynaTree": speclab.DynaTree()}
    runs = {}
    for name, way in ways.items():
        speclab.generate(pair, way, prompt, max_new_tokens=8)  # to warm up
        runs[name] = speclab.Session(pair, way, prompt, max_new_tokens=tokens)
        runs[name].run()
    assert list(runs["plain"].token_ids) == list(runs["DynaTree"].token_ids)  # the same text, token for token
    figure = go.Figure()
    for phase, color, label in (("draft", "#E69F00", "the draft guesses"), ("verify", "#0072B2", "the target reads")):
        lane = {"base": [], "x": [], "y": []}
        for name, run in runs.items():
            clock = 0.0
            total = sum(sum(step.seconds.values()) for step in run.steps)
            for step in run.steps:
                before = step.seconds.get("draft", 0.0) if phase == "verify" else 0.0
                lane["y"].append(f"{name}: {len(run.steps)} passes, {total:.1f} s")
                lane["base"].append(clock + before)
                lane["x"].append(step.seconds.get(phase, 0.0))
                clock += sum(step.seconds.values())
        figure.add_bar(**lane, orientation="h", name=label, marker_color=color)
    figure.update_yaxes(autorange="reversed", automargin=True).update_xaxes(title="seconds after the first token")
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    figure.update_layout(barmode="overlay", height=200, bargap=0.3, legend=legend, font_size=14, margin_t=40)
    return figure


def free_rows(weights=1.24e9, bytes_per_weight=2, bandwidth=3.35e12, flops=989e12):
    """A pass of many rows on an H100: the time to read the weights, and that of the arithmetic."""
    reading = 1000 * weights * bytes_per_weight / bandwidth
    row = 1000 * 2 * weights / flops  # a multiplication and an addition per weight
    free = reading / row
    rows = [0, free, 600]
    figure = go.Figure()
    figure.add_scatter(x=rows, y=[reading] * 3, name="reads all weights, once", line={"color": "#0072B2", "width": 3})
    work = [row * count for count in rows]
    figure.add_scatter(x=rows, y=work, name="computes, for each row", line={"color": "#E69F00", "width": 3})
    longer = [reading, reading, row * 600]
    band = {"color": "rgba(0, 0, 0, 0.25)", "width": 12}
    figure.add_scatter(x=rows, y=longer, name="the pass: the longer of both", line=band)
    figure.data = [figure.data[2], figure.data[0], figure.data[1]]
    note = f"up to {free:.0f} rows cost<br>as much as one"
    figure.add_annotation(x=free, y=reading, text=note, ax=-90, ay=-60, font_size=14)
    figure.update_xaxes(title="rows (tokens) of one pass").update_yaxes(title="milliseconds", rangemode="tozero")
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    return figure.update_layout(height=330, legend=legend, font_size=14)


def cut(cache, length):
    """Drops the newest rows of a cache until at most `length` are left."""
    cache.crop(-max(cache.get_seq_length() - length, 0))


def generated(model, prompt, count):
    """The tokens that a model writes, each from a plain pass over the whole text, to compare with yours."""
    text = list(prompt)
    while len(text) < len(prompt) + count:
        text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(prompt) :]


def tree_pass(model, tokens, positions, sees, cache):
    """Logits [nodes, vocabulary] of one pass over all nodes of a tree; a node reads what it `sees`."""
    sees = torch.as_tensor(sees).bool()
    bias = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)  # added to the attention scores
    places = torch.as_tensor(positions).long()[None]
    inputs = {"position_ids": places, "attention_mask": bias[None, None], "past_key_values": cache}
    return model(torch.tensor([tokens]), **inputs, use_cache=True).logits[0]


_HEAD = '''"""Speculative decoding with a chain: a small model drafts, a large one verifies.

python my_speculative.py TARGET DRAFT "PROMPT"    two models with one tokenizer: folders or hub ids
"""

import sys
from time import perf_counter

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.utils import logging


def read(model, tokens, cache):
    """One forward pass over new tokens: a row of logits after each. The cache grows by their rows."""
    return model(torch.tensor([tokens]), past_key_values=cache, use_cache=True).logits[0]


def cut(cache, length):
    """Drops the newest rows of a cache until at most `length` are left."""
    cache.crop(-max(cache.get_seq_length() - length, 0))
'''
_TAIL = '''def decode(prompt, count, gamma):
    """The prefill, then iterations of a chain until there are `count` tokens."""
    target_cache = DynamicCache()
    draft_cache = DynamicCache()
    text = prompt + [int(read(target, prompt, target_cache)[-1].argmax())]
    while len(text) < len(prompt) + count:
        text = text + list(chain_iteration(text, gamma, target_cache, draft_cache, accepted_chain))
    return text[len(prompt) : len(prompt) + count]


@torch.inference_mode()
def compare(models, tokenizer, text, count=40, gamma=3):
    """Decodes greedily: plainly, with transformers' assisted generation, and with this file."""
    global target, draft
    target, draft = models
    logging.set_verbosity_error()  # assisted generation warns of its own arguments
    ids = tokenizer(text, return_tensors="pt").input_ids
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": count}
    ways = {
        "transformers, plain": lambda: target.generate(ids, **options)[0].tolist(),
        "transformers, assisted": lambda: target.generate(ids, assistant_model=draft, **options)[0].tolist(),
        "my_speculative.py": lambda: ids[0].tolist() + decode(ids[0].tolist(), count, gamma),
    }
    texts = {}
    for name, way in ways.items():
        began = perf_counter()
        texts[name] = way()
        print(f"{name:24} {perf_counter() - began:6.2f} seconds")
    assert texts["my_speculative.py"] == texts["transformers, plain"], "expected the text of plain decoding"
    print(tokenizer.decode(texts["my_speculative.py"]))


if __name__ == "__main__":
    models = [AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32) for name in sys.argv[1:3]]
    compare(models, AutoTokenizer.from_pretrained(sys.argv[1]), sys.argv[3])
'''


def write_decoder(accepted_chain, chain_iteration):
    """Writes my_speculative.py with these functions into a temporary folder, and imports it."""
    parts = [_HEAD]
    for function in (accepted_chain, chain_iteration):
        try:
            parts.append(getsource(function))
        except OSError:  # the course's version has no cell
            parts.append(solution(function.__name__))
    folder = Path(gettempdir()) / "speclab-course"
    folder.mkdir(exist_ok=True)
    file = folder / "my_speculative.py"
    file.write_text("\n\n".join([*(part.strip() + "\n" for part in parts), _TAIL]), encoding="utf-8")
    specification = spec_from_file_location("my_speculative", file)
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _lengths(models, call, *arguments):
    """What a call returns, and for each model the tokens that it read in each of its passes."""
    seen = {model: [] for model in models}

    def note(model, args, named):
        tokens = args[0] if args else named["input_ids"]
        seen[model].append(tokens.shape[1])

    hooks = [model.register_forward_pre_hook(note, with_kwargs=True) for model in models]
    try:
        result = call(*arguments)
    finally:
        for hook in hooks:
            hook.remove()
    return result, list(seen.values())


def A(answer, pair, prompt, seed=0):
    """Greedy decoding: the tokens, and that each is read once."""
    models = {"target": pair.target.model, "draft": pair.draft.model}

    def counted(answer, model, prompt, count):
        tokens, passes = _lengths(models.values(), lambda: plain(answer(models[model], prompt, count)))
        lengths = passes[0] + passes[1]
        return {"tokens": tokens, "passes": len(lengths), "tokens read in these passes": sum(lengths)}

    def case(model, length, count):
        """The prompt and all that is written but the last token are read once, in as many passes as tokens."""
        start = prompt[:length]
        read = length + count - 1 if count else 0
        expected = {
            "tokens": generated(models[model], start, count),
            "passes": count,
            "tokens read in these passes": read,
        }
        return model, start, count, expected

    def world(random):
        return case(random.choice(("target", "draft")), random.randint(1, 14), random.randint(0, 6))

    cases = [case("target", 14, 1), case("draft", 14, 6), case("draft", 9, 4), case("target", 7, 0)]
    check("A", answer, cases, through=counted, worlds=world, seed=seed)


def B(answer, seed=0):
    """The committed tokens of a chain."""

    def world(random):
        """A chain of up to 12 guesses, of which `right` are right; later guesses may be right by chance."""
        right = random.randint(0, 8)
        wrong = random.randint(0, 4)
        drafted = random.choices((1000, 1001, 1002, 4000), k=right + wrong)
        choice = drafted[:right] + random.choices((1000, 1001, 1002), k=wrong + 1)
        choice = [int(str(token)) for token in choice]  # other objects: `is` does not compare them
        if wrong:
            choice[right] = drafted[right] + 7
        return drafted, choice, choice[: right + 1]

    cases = [
        ([5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 8]),
        ([5, 6, 7], [5, 6, 1, 8], [5, 6, 1]),
        ([5, 6, 7], [1, 6, 7, 8], [1]),
        ([6, 7, 8], [5, 6, 7, 8], [5]),
        ([5, 5, 5, 5, 5], [5, 5, 1, 5, 5, 5], [5, 5, 1]),
        ([5], [5, 5], [5, 5]),
        ([], [4], [4]),
    ]
    check("B", answer, cases, worlds=world, seed=seed)


def C(answer, pair, prompt, seed=0):
    """One iteration of a chain: what was drafted, chosen and committed, the passes, and what the caches hold."""
    target = pair.target.model
    draft = pair.draft.model

    def iteration(answer, text, gamma, accepted, unread):
        """`accepted` guesses are taken, right or not; the draft's cache misses `unread` tokens of the text."""
        target_cache = DynamicCache()
        draft_cache = DynamicCache()
        if len(text) > 1:
            target(torch.tensor([text[:-1]]), past_key_values=target_cache, use_cache=True)
        if unread < len(text):
            draft(torch.tensor([text[:-unread]]), past_key_values=draft_cache, use_cache=True)
        calls = []

        def accept(drafted, choice):
            calls.append((list(drafted), list(choice)))
            return [*drafted[:accepted], choice[accepted]]

        given = (text, gamma, target_cache, draft_cache, accept)
        committed, passes = _lengths([target, draft], answer, *given)
        assert len(calls) == 1, f"expected one call of accept, got {len(calls)}"
        return {
            "drafted tokens": calls[0][0],
            "the target's choices": calls[0][1],
            "committed tokens": committed,
            "passes of the target": len(passes[0]),
            "passes of the draft": len(passes[1]),
            "tokens that the draft read": sum(passes[1]),
            "rows left in the target's cache": target_cache.get_seq_length(),
            "rows left in the draft's cache": draft_cache.get_seq_length(),
        }

    def case(text, gamma, accepted, unread):
        drafted = generated(draft, text, gamma)
        rows = target(torch.tensor([text + drafted])).logits[0, -gamma - 1 :]
        choice = rows.argmax(-1).tolist()
        length = len(text) + accepted
        expected = {
            "drafted tokens": drafted,
            "the target's choices": choice,
            "committed tokens": [*drafted[:accepted], choice[accepted]],
            "passes of the target": 1,
            "passes of the draft": gamma,
            "tokens that the draft read": unread + gamma - 1,
            "rows left in the target's cache": length,
            "rows left in the draft's cache": min(length, len(text) + gamma - 1),
        }
        return text, gamma, accepted, unread, expected

    def world(random):
        text = prompt[: random.randint(1, 12)]
        gamma = random.randint(1, 6)
        return case(text, gamma, random.randint(0, gamma), random.randint(1, len(text)))

    cases = [case(prompt, 3, 1, len(prompt)), case(prompt, 3, 3, 2), case(prompt, 1, 0, 1), case(prompt, 5, 5, 1)]
    check("C", answer, cases, through=iteration, worlds=world, seed=seed)


def D(answer, seed=0):
    """Positions and mask of a tree; the mask is compared as letters."""

    def drawn(answer, parents, prefix):
        positions, sees = answer(parents, prefix)
        whole = torch.as_tensor(positions).dtype not in (torch.float32, torch.float64, torch.bool)
        assert whole, f"expected a tensor of integers, got positions {positions}"
        rows = []
        for row in torch.as_tensor(sees).tolist():
            rows.append("".join("x" if mark else "." for mark in row))
        return {"positions": positions, "what each node sees": " ".join(rows)}

    def case(parents, prefix, positions, rows):
        return parents, prefix, {"positions": positions, "what each node sees": rows}

    def world(random):
        """A random tree; the path of each node is walked up."""
        parents = [-1]
        for node in range(1, random.randint(1, 12)):
            parents.append(random.randrange(node))
        prefix = random.randint(0, 6)
        positions = []
        rows = []
        for node in range(len(parents)):
            path = [node]
            while parents[path[-1]] >= 0:
                path.append(parents[path[-1]])
            positions.append(prefix + len(path) - 1)
            rows.append("x" * prefix + "".join("x" if other in path else "." for other in range(len(parents))))
        return case(parents, prefix, positions, " ".join(rows))

    cases = [
        case([-1, 0, 1], 2, [2, 3, 4], "xxx.. xxxx. xxxxx"),
        case([-1, 0, 0, 1, 1], 3, [3, 4, 4, 5, 5], "xxxx.... xxxxx... xxxx.x.. xxxxx.x. xxxxx..x"),
        case([-1, 0, 0, 2, 1, 3], 1, [1, 2, 2, 3, 3, 4], "xx..... xxx.... xx.x... xx.xx.. xxx..x. xx.xx.x"),
        case([-1, 0, 1, 2, 3, 4], 0, [0, 1, 2, 3, 4, 5], "x..... xx.... xxx... xxxx.. xxxxx. xxxxxx"),
    ]
    check("D", answer, cases, through=drawn, worlds=world, seed=seed)


def E(answer, seed=0):
    """The rows that stay in a cache whose rows hold their own numbers."""

    def rows_left(answer, prefix, nodes, path, layers):
        cache = DynamicCache()
        numbers = torch.arange(float(prefix + nodes))[None, None, :, None].repeat(1, 3, 1, 7)
        for layer in range(layers):  # values are the negative of keys
            cache.update(numbers + 1000 * layer, -numbers - 1000 * layer, layer)
        answer(cache, prefix, path)
        parts = {}
        for number, layer in enumerate(cache.layers):
            parts[f"rows of the keys of layer {number}"] = (layer.keys[0, 2, :, 3] - 1000 * number).int()
            parts[f"rows of the values of layer {number}"] = (-layer.values[0, 1, :, 5] - 1000 * number).int()
        return parts

    def case(prefix, nodes, path, layers):
        rows = list(range(prefix + 1))
        for node in path:
            rows.append(prefix + node)
        expected = {}
        for number in range(layers):
            expected[f"rows of the keys of layer {number}"] = rows
            expected[f"rows of the values of layer {number}"] = rows
        return prefix, nodes, path, layers, expected

    def world(random):
        nodes = random.randint(1, 14)
        path = sorted(random.sample(range(1, nodes), random.randint(0, nodes - 1)))
        return case(random.randint(0, 20), nodes, path, random.randint(1, 6))

    cases = [case(14, 7, [1, 4], 2), case(5, 7, [1, 2], 2), case(0, 4, [1, 3], 1), case(2, 7, [1, 3, 6], 4)]
    cases.append(case(14, 1, [], 2))
    check("E", answer, cases, through=rows_left, worlds=world, seed=seed)


def F(answer, seed=0):
    """The accepted path of a tree."""

    def world(random):
        """A random tree in which cousins may have the same token, and a target that mostly agrees with a child."""
        tokens = [7]
        parents = [-1]
        children = {}
        for node in range(1, random.randint(1, 16)):
            parent = random.randint(max(0, node - 4), node - 1)
            below = children.setdefault(parent, {})
            free = [token for token in range(1001, 1020) if token not in below]
            parents.append(parent)
            tokens.append(random.choice(free[:4]))
            below[tokens[-1]] = node
        choice = []
        for node in range(len(tokens)):
            choice.append(random.choice([*children.get(node, {1001: 0}), 1002]))
        path = [0]
        while choice[path[-1]] in children.get(path[-1], {}):
            path.append(children[path[-1]][choice[path[-1]]])
        return tokens, parents, choice, path[1:]

    cases = [
        ([7, 1, 2, 3, 4], [-1, 0, 0, 1, 1], [1, 4, 9, 9, 2], [1, 4]),
        ([7, 1, 2, 3, 4], [-1, 0, 0, 1, 1], [3, 3, 4, 9, 9], []),
        ([7, 1, 2, 1, 2], [-1, 0, 0, 1, 2], [2, 1, 2, 2, 9], [2, 4]),
        ([7, 1, 2, 9, 9], [-1, 0, 0, 1, 2], [2, 9, 9, 4, 4], [2, 4]),
        ([7, 1, 2, 2, 2], [-1, 0, 0, 1, 3], [1, 2, 9, 2, 9], [1, 3, 4]),
        ([7, 5, 5, 5, 5, 5], [-1, 0, 1, 2, 3, 4], [5, 5, 5, 5, 5, 8], [1, 2, 3, 4, 5]),
        ([7], [-1], [8], []),
    ]
    check("F", answer, cases, worlds=world, seed=seed)
