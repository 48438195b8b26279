"""Chat templates as families write them, on the mini family's tokenizer, which has none of its own."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import speclab
from speclab.models.pair import ModelPair

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
    "the system message inside the user's": "{% for m in messages %}{% if m.role != 'system' %}{% if loop.last and "
    "messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}<{{ m.role }}>{{ m.content }}\n{% endif %}"
    "{% endfor %}" + GENERATION,
    "users and assistants alone": "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}"
    "{{ m.role }}: {{ m.content }}\n{% endif %}{% endfor %}" + GENERATION,
}
FIRST = next(iter(TEMPLATES))


@cache
def _mini() -> ModelPair:
    return speclab.load_pair(device="cpu")


def chat_pair(template: str | None = TEMPLATES[FIRST]) -> ModelPair:
    """The mini family, its tokenizer with this chat template."""
    tokenizer = copy.deepcopy(_mini().tokenizer)
    tokenizer.chat_template = template
    return replace(_mini(), tokenizer=tokenizer).fresh()


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
