"""A link shows the iterations that it was made of; one that is damaged gets a sentence."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from support import view_samples
from support.command import speclab_command
from support.traces import place_in

import speclab
from speclab import host, views
from speclab.features import link as links

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
"""Links of version 1, which open for ever."""
PICTURES = [(views.mask, "draft"), (views.mask, "all"), (views.tree, "accept"), (views.tree, "all")]


def _close(shown, drawn):
    """Whether two figures are the same, with probabilities in thousandths."""
    if isinstance(shown, dict):
        return shown.keys() == drawn.keys() and all(_close(shown[key], drawn[key]) for key in shown)
    if isinstance(shown, list):
        return len(shown) == len(drawn) and all(map(_close, shown, drawn))
    if isinstance(shown, float | int) and isinstance(drawn, float | int):
        return shown == pytest.approx(drawn, rel=0.02, abs=0.3)
    return shown == drawn


def _committed(step):
    return [step.texts[token] for token in step.committed]


@pytest.mark.wide
@pytest.mark.parametrize("name", view_samples.runs())
def test_an_iteration_of_each_strategy_is_drawn_as_in_the_lab(name):
    run = view_samples.runs()[name]
    for index, step in enumerate(run.steps[:2]):
        (opened,) = speclab.open_link(run.link(first=index, last=index)).steps
        assert opened.accepted == step.accepted
        assert _committed(opened) == _committed(step)
        assert [node.verdict for node in opened.nodes] == [node.verdict for node in step.nodes]
        for picture, phase in PICTURES:
            shown, drawn = (
                json.loads(picture(one, phase=phase).to_json())["data"] for one in (opened, step)
            )
            assert _close(shown, drawn), (index, phase)


@pytest.mark.wide
@pytest.mark.parametrize("name", view_samples.runs())
def test_a_run_has_every_iteration(name):
    run = view_samples.runs()[name]
    opened = speclab.open_link(run.link())
    for step, other in zip(run.steps, opened.steps, strict=True):
        assert other.tree.parent.tolist() == step.tree.parent.tolist()
        assert other.accepted == step.accepted
        assert _committed(other) == _committed(step)
        assert other.prefix_length == step.prefix_length
        assert replace(other.counts, draft_calls=0) == replace(
            step.counts, draft_calls=0, seconds=0.0
        )


def test_a_step_and_a_session_have_links_too():
    run = view_samples.runs()["dynatree"]
    step = run.steps[1]
    opened = speclab.open_link(step.link())
    assert opened.steps[0].accepted == step.accepted
    assert opened.prompt_ids == (), "an iteration does not know the text before it"
    assert speclab.link(run) == run.link()
    again = speclab.open_link(opened.link())
    assert again.steps[0].accepted == step.accepted, "the link of a link"


def test_the_page_of_links_is_the_one_that_is_named(monkeypatch):
    step = view_samples.runs()["chain"].steps[0]
    project = Path(__file__).parents[3] / "pyproject.toml"
    assert f'"{links.PAGE}"' in project.read_text(encoding="utf-8")
    monkeypatch.setenv("SPECLAB_PAGE", "https://example.org/lab/")
    assert step.link().startswith("https://example.org/lab/#r=1.")


@pytest.mark.parametrize("asked", [(-1, 0), (1, 0), (0, 900)])
def test_iterations_that_are_not_there_are_refused(asked):
    with pytest.raises(speclab.SettingsError, match="count from 0"):
        view_samples.runs()["chain"].link(*asked)


@pytest.mark.parametrize("name", GOLDEN)
def test_links_of_version_1_open_for_ever(name):
    known = GOLDEN[name]
    opened = speclab.open_link(known["link"])
    text = "".join(["".join(_committed(step)) for step in opened.steps])
    assert text == known["text"]
    assert [len(step.tree) for step in opened.steps] == known["nodes"]
    assert [list(step.accepted) for step in opened.steps] == known["accepted"]


def _mutated(seed):
    """A link with something in it that no writer puts there."""
    chance = random.Random(seed)
    known = chance.choice([*GOLDEN.values()])["link"]
    if seed % 2:
        place = chance.randrange(2, len(known))
        part = chance.choice(["", "A", "_-", known[:9], "%", "\x00"])
        return known[:place] + part + known[place + chance.randrange(4) :]
    data = links.unpacked(known)
    values = [None, -1, 10**9, 1e300, "", "zz", [], {}, [[]], True, "<script>", [-1], [9] * 2000]
    part, key = place_in(data, chance, 0.7)
    part[key] = chance.choice(values)
    return links.packed(data)


def _refusal(text):
    try:
        speclab.open_link(text)
    except speclab.TraceError as error:
        return str(error)
    return ""


def test_400_mutated_links_open_or_get_one_sentence():
    refusals = [_refusal(_mutated(seed)) for seed in range(400)]
    assert max(len(sentence.splitlines()) for sentence in refusals) == 1
    assert refusals.count("") < 100


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no run"),
        ("https://example.org/?prompt=Once", "no run"),
        ("2.abc", "version 2"),
        ("1.", "cut short"),
        ("1.AAAA", "cut short"),
        ("1." + "A" * 70_000, "64,000"),
        (links.packed({"w": "a" * 2_000_000}), "unpacks"),
        (links.packed({}), "Field required"),
        (links.packed([]), "dictionary"),
    ],
)
def test_a_text_that_is_no_link_is_refused(text, why):
    with pytest.raises(speclab.TraceError, match=why):
        speclab.open_link(text)


def test_a_link_has_at_most_1024_nodes():
    data = links.unpacked(GOLDEN["an iteration of DynaTree"]["link"])
    data["t"][0]["k"] = [1024]
    with pytest.raises(speclab.TraceError, match="1024 nodes"):
        speclab.open_link(links.packed(data))


def test_the_command_saves_the_run_of_a_link_or_opens_a_notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    link = GOLDEN["a run of DynaTree"]["link"]
    done = speclab_command("open", link, "--to", "run.json.gz")
    assert done.exit_code == 0, done.output
    assert speclab.load_trace("run.json.gz").steps[2].accepted == (1, 6)
    started = []
    monkeypatch.setattr(host, "start", started.append)
    done = speclab_command("open", link, "--no-browser")
    assert done.exit_code == 0, done.output
    (command,) = started
    (cell,) = json.loads(Path(command[3]).read_text(encoding="utf-8"))["cells"]
    assert link in cell["source"]
    assert command[-1] == "--no-browser"
    wrong = speclab_command("open", "nothing")
    assert (wrong.exit_code, len(wrong.output.splitlines())) == (1, 1)
