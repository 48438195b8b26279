"""Sentences, phases, tokens and the text: every token as text, whatever it holds."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from html import unescape

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.view_samples import HOSTILE, five_nodes, parse, recorded, runs, trace, with_texts

from speclab import views
from speclab.prompts import Message
from speclab.trace.records import Event
from speclab.views.drawing import call
from speclab.views.static_html import snapshot


def test_one_sentence_per_iteration_and_per_position():
    for step in recorded()[::9]:
        sentences = [call("positionSentence", step, at) for at in call("positions", step)]
        assert len({*sentences}) == len(sentences)
        assert f"{step.counts.drafted} drafted, {len(step.accepted)} accepted" in sentences[-1] or (
            "nothing drafted" in sentences[-1]
        )
    sentences = [
        call("positionSentence", five_nodes(), at) for at in call("positions", five_nodes())
    ]
    assert "level 2 of 2, 2 nodes added" in sentences[2]
    assert "after ' forest' the target chose ' her', which was drafted: accepted" in sentences[5]
    assert "2 accepted, 1 bonus: 3 tokens for one pass" in sentences[-1]
    assert "A near-tie." in call("summary", replace(five_nodes(), note="A near-tie"))


def test_the_story_names_who_drafts_and_checks_and_says_nothing_that_comes_later():
    names = {"draft": "A", "verb": "drafts", "target": "B"}
    for step in recorded()[::9]:
        *phases, whole = [call("story", step, at, names) for at in call("positions", step)]
        text = " ".join([part["text"] for part in whole])
        assert "B" in text
        assert "A" in text or not step.counts.drafted
        assert str(len(step.committed)) in whole[2]["text"]
        for at, parts in zip(call("positions", step), phases, strict=False):
            (here,) = [number for number, part in enumerate(parts) if part["strong"]]
            phase = ("draft", "flatten", "accept", "verify", "commit").index(at["phase"])
            assert here == phase % 3 + (at["phase"] in ("verify", "commit"))
            later = [part["text"] for part in parts[here + 1 :]]
            assert not any(character.isdigit() for character in "".join(later))


def test_a_tree_from_a_heap_is_drafted_node_by_node_behind_its_block():
    events = [Event("marginal", None, {"token": 1, "token_prob": 0.6})] * 2
    events += [Event("pop", node, {"order": turn}) for turn, node in enumerate((1, 3, 2, 4), 1)]
    step = replace(five_nodes(), events=tuple(events))
    at = call("positions", step)[:5]
    kinds = [call("kindsAt", step, position) for position in at]
    drafted = ["".join([node for node, kind in each.items() if kind]) for each in kinds]
    assert drafted == ["0", "01", "013", "0123", "01234"]
    assert call("positionSentence", step, at[0]).count("' old' 60 %") == 2
    assert "' her', number 2" in call("positionSentence", step, at[2])


def test_a_node_says_its_probabilities_its_verdict_and_what_the_target_chose():
    step = five_nodes()
    known = call("nodeSentence", step, 2)
    assert "' the'" in known
    assert "30 %" in known
    assert "rejected, the target chose ' her' (32 %)" in known
    assert "rejected" not in call("nodeSentence", step, 2, {"phase": "draft", "level": None})
    assert "accepted" in call("nodeSentence", step, 1)
    assert "the root" in call("nodeSentence", step, 0)
    (grown,) = [event for event in runs()["dynatree"].steps[0].events if event.node == 0]
    assert f"confidence {grown.values['confidence']:.2f}" in views.event_words(grown)
    for node in (0, 1):  # a word is explained where it stands, once
        line = call("nodeSentence", runs()["dynatree"].steps[0], node)
        assert line.count("the draft gives") == ("confidence" in line)


def test_the_title_says_which_model_is_the_target_and_what_drafts():
    target, draft = "hub/Big-7B", "chat"
    caches = [{"name": "target"}, {"name": draft}]
    step = {"caches": caches, "settings": {"strategy": "Chain"}}
    header = {"models": {"target": target}}
    long, short = [call("namesOf", header, step, brief) for brief in (False, True)]
    assert long["target"] == target
    assert {"target", "Big"} <= {*short["target"].split()}
    assert {"chat", "draft"} <= {*short["draft"].split()}
    assert long["draft"] == short["draft"], "as a link has it"
    state = {"header": header, "steps": [step], "cursor": 1, "status": {}}
    title = call("titleOf", state)
    assert long["about"] in title, "what a draft head is"
    assert "target" in long["about"]
    assert title.startswith(f"{target}, the target")
    assert long["draft"] in title


def test_the_accepted_path_decision_by_decision():
    taken = [[*decision.values()] for decision in call("decisions", five_nodes())]
    assert taken == [[0, 5, [1, 2], 1], [1, 5, [3, 4], 3], [3, 6, [], None]]
    for step in recorded():
        taken = call("decisions", step)
        winners = [decision["winner"] for decision in taken]
        assert winners == [*step.accepted, *[None] * (step.bonus is not None)]
        own = "corrected" if taken and taken[-1]["candidates"] else "bonus"
        assert step.bonus is None or call("ownKind", step) == own


@pytest.mark.parametrize(
    ("text", "visible"),
    [(" the", "␣the"), ("\n\n", "⏎⏎"), ("        ", "␣×8"), ("\u200b", "<U+200B>"), ("", "∅"), ("\u0301", "◌\u0301"),
     ("\x1b[31m", "<U+001B>[31m"), ("\u202eabc", "<U+202E>abc"), ("\t", "⇥"), ("\ud800", "<U+D800>")],
)  # fmt: skip
def test_display(text, visible):
    assert call("display", text) == visible


@given(st.text(max_size=30), st.integers(1, 20))
@example("\u2028<b>\x00", 4)
def test_nothing_invisible_is_left_and_clipping_keeps_its_columns(text, most):
    shown = call("display", text)
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}
    assert not any(unicodedata.category(char) in hidden for char in shown)
    assert call("columnsOf", call("clip", shown, most)) <= most
    assert not set(call("plotText", text)) & {"<", ">", "$"}


def test_tokens_without_a_text_per_cent_and_bytes():
    assert call("labels", [7, 0], {0: " city"}) == ["#7", "␣city"]
    quoted = [call("quoted", 0, texts) for texts in ({}, {0: " city"}, {0: "   "})]
    assert quoted == ["'#0'", "' city'", "'␣␣␣'"]
    shares = {0.934: "93 %", 0.0374: "3.7 %", 0.0002: "<0.1 %", 0.0: "0 %", 1.0: "100 %"}
    assert {share: call("percent", share) for share in shares} == shares
    bytes_of = ["Zo<0xC3>", "<0xAB>", "<0xF0><0x9F>", "<0x99>", "<0x82>!", "<0xE2>", " a", "<0xFF>"]
    assert call("joinedBytes", bytes_of) == ["Zo", "ë", "", "", "🙂!", "<0xE2>", " a", "<0xFF>"]


def test_every_generated_token_is_in_the_text_once_and_iterations_are_marked():
    run = trace()
    _, *parts = views.text(run).split('<span class="sl-mark"')
    for step, part in zip(run.steps, parts, strict=True):
        kept = re.sub("<s .*?</s>|<[^>]*>", "", f"<{part}", flags=re.DOTALL)
        new = "".join([run.texts[token] for token in step.committed])
        assert unescape(kept) == f"{step.index + 1}+{len(step.committed)}{new}"
    assert len(views.text(run, 3)) < len(views.text(run))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_token_breaks_out_of_text_sentence_or_table(hostile):
    run = with_texts(trace(), hostile)
    step = run.steps[0]
    for node in range(len(step.tree)):
        assert not set(call("nodeSentence", step, node)) & {"\u202e", "\x00", "\u200b"}
    parse(views.text(run))
    assert len(parse(snapshot(run, 1)).findall(".//tr")) == len(step.tree) + 1
    assert "alert" not in repr(views.text(trace()))


def test_a_correction_shows_what_was_rejected_and_what_a_chat_template_wrote_is_set_apart():
    run = runs()["samples, drawn"]
    losers = [
        len(step.tree.children[(0, *step.accepted)[-1]])
        for step in run.steps
        if step.bonus is not None
    ]
    assert views.text(run).count("<s ") == sum(losers) > 0
    chat = views.text(replace(run, messages=(Message("user", "…", 4, 10),)))
    assert chat.count('"sl-t sl-template"') == len(run.prompt_ids) - 6
    assert chat.count('"sl-t sl-role" title="user"') == 6
