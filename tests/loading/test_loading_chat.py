"""Messages become ids by the tokenizer's own template, and it is known which tokens are whose."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.refusals import refused
from tokenizers.processors import TemplateProcessing

import speclab
from speclab import Autoregressive, Session
from speclab.errors import PromptError

GENERATION = "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
TEMPLATES = {
    "any role, a system message of its own": "{% if messages[0].role != 'system' %}<|system|>\nBe brief.\n{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}" + GENERATION,
    "bos, contents stripped": "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] | trim }}"
    "{{ eos_token }}{% endfor %}" + GENERATION,
    "turns in order, no system": "{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}" + GENERATION,
    "users and assistants alone": "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}"
    "{{ m.role }}: {{ m.content }}\n{% endif %}{% endfor %}" + GENERATION,
}
FIRST = next(iter(TEMPLATES))


mini = cache(speclab.load_pair)


def chat_pair(template: str | None = TEMPLATES[FIRST]):
    """The mini family, whose tokenizer has no chat template of its own, with this one."""
    pair = mini()
    tokenizer = copy.deepcopy(pair.tokenizer)
    tokenizer.chat_template = template
    return replace(pair, tokenizer=tokenizer).fresh()


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


CONTENT = st.text(st.characters(exclude_categories=["Cs", "Co"]), max_size=30) | st.sampled_from(
    ["user", "<|assistant|>\n", "<|endoftext|>", "  around  ", "🙂é", "a\n\nb", "[user] "]
)
TALK = st.lists(CONTENT, min_size=1, max_size=4)


@pytest.fixture(scope="module")
def pairs():
    return {name: chat_pair(template) for name, template in TEMPLATES.items()}


def turns(contents: list[str]) -> list[dict[str, str]]:
    return [said(("user", "assistant")[i % 2], content) for i, content in enumerate(contents)]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(TEMPLATES)), TALK, st.none() | CONTENT)
def test_ids_are_those_of_the_template_and_each_message_knows_its_tokens(
    pairs, name, contents, system
):
    pair = pairs[name]
    talk = turns(contents)
    if system is not None and name not in {
        "turns in order, no system",
        "users and assistants alone",
    }:
        talk = [said("system", system), *talk]
    last = (
        {"continue_final_message": True}
        if talk[-1]["role"] == "assistant"
        else {"add_generation_prompt": True}
    )
    try:
        expected = pair.tokenizer.apply_chat_template(talk, **last)["input_ids"]
    except ValueError:  # a last message of the assistant that transformers does not find again
        with pytest.raises(PromptError):
            pair.encode(talk)
        return
    ids, messages = pair.read_prompt(talk)
    assert ids == pair.encode(talk) == expected
    assert [(one.role, one.content) for one in messages] == [
        (one["role"], one["content"]) for one in talk
    ]
    for one in messages:
        held = pair.tokenizer.decode(ids[one.start : one.stop])
        assert one.content.strip() in held, "all of it is there; a token may hold more"
        outer = pair.tokenizer.decode(ids[one.start + 1 : max(one.stop - 1, 0)])
        assert outer.strip("\ufffd") in one.content, (
            "and between its first and last token nothing else"
        )


@pytest.mark.parametrize(
    ("template", "prompt", "words"),
    [
        (
            "users and assistants alone",
            [said("system", "Be kind."), said("user", "Hi")],
            ["message 1", "'system'"],
        ),
        ("turns in order, no system", [said("system", "Be kind.")], ["System role not supported"]),
        (FIRST, [said("user", "Hi"), 7], ["Message 2", "role"]),
        (FIRST, [{"role": "user"}], ["Message 1", "content"]),
        (FIRST, said("user", "Hi"), ["messages"]),
    ],
)
def test_what_no_template_takes_is_said_in_a_sentence(template, prompt, words):
    with refused(PromptError, *words):
        chat_pair(TEMPLATES[template]).encode(prompt)
    with refused(PromptError, "chat template", "plain text"):
        chat_pair(None).encode([said("user", "Hi")])


def test_arguments_of_the_template_and_messages_that_are_more_than_text():
    thinks = "{% if enable_thinking is defined and not enable_thinking %}<no thoughts>{% endif %}"
    calls = "{% for m in messages %}{{ m.tool_calls }}{% endfor %}{{ tools }}"
    pair = chat_pair(TEMPLATES[FIRST] + thinks + calls)
    talk = [
        said("user", "Hi"),
        {"role": "assistant", "tool_calls": [{"function": {"name": "now"}}]},
        {"role": "user", "content": [{"type": "text", "text": "Well?"}]},
    ]
    template = {"enable_thinking": False, "tools": [{"type": "function"}]}
    options = template | {"add_generation_prompt": True}
    wanted = pair.tokenizer.apply_chat_template(talk, **options)["input_ids"]
    session = Session(pair, Autoregressive(), talk, max_new_tokens=4, template=template)
    assert session.prompt_ids == wanted
    assert [one.role for one in session.messages] == ["user", "assistant", "user"]
    text = speclab.generate(pair, Autoregressive(), talk, max_new_tokens=4, template=template)
    session.run()
    assert text.token_ids == session.token_ids
    for prompt, wrong in (("Hi", {}), ([5, 6], template), (talk, [1]), (talk, {"tools": 7})):
        with refused(PromptError, "template"):
            Session(pair, Autoregressive(), prompt, template=wrong)


def test_a_rendered_template_gets_no_second_first_token():
    pair = chat_pair()
    core = pair.tokenizer._tokenizer
    bos = pair.tokenizer.bos_token = pair.tokenizer.eos_token
    number = pair.tokenizer.bos_token_id
    core.post_processor = TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, number)])
    for text, count in (("Hi", 1), (f"{bos}Hi", 1), (f"{bos}{bos}Hi", 2)):
        assert pair.encode(text) == [number] * count + pair.plain_ids("Hi")
