"""Messages as token ids, by the tokenizer's own chat template, and which of the tokens are a message's content.

Ids are those of `tokenizer.apply_chat_template`, with the generation prompt appended; a last message of the assistant
is continued instead, as transformers' text-generation pipeline does it. The template writes the special tokens, BOS
included; none is added.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from speclab.errors import PromptError
from speclab.prompts import Message, checked_messages

_COMMON = {"system", "user", "assistant"}
_MARK = re.compile("\ue0f1(\\d+)\ue0f2")
"""Stands for the content of a message, by private characters, to find what the template writes around it."""


def has_template(tokenizer: PreTrainedTokenizerBase | None) -> bool:
    """Whether messages can be given."""
    return bool(getattr(tokenizer, "chat_template", None))


def encode_messages(
    tokenizer: PreTrainedTokenizerBase | None, prompt: Sequence[Mapping[str, str]]
) -> tuple[list[int], tuple[Message, ...]]:
    """Token ids of a conversation, and its messages, each with the tokens of its content.

    Where the tokenizer tells no offsets, or the template rewrites a content, that content is of no tokens.

    Raises:
        PromptError: no message, or none of a role and a text; no template; or one that does not take these messages.
    """
    messages = checked_messages(prompt)
    if tokenizer is None:
        raise PromptError("This pair has no tokenizer, so messages have no chat template: give token ids.")
    if not has_template(tokenizer):
        raise PromptError("These models have no chat template: give the prompt as plain text, not as messages.")
    rendered = _rendered(tokenizer, messages)
    _check_roles(tokenizer, messages)
    fast = bool(getattr(tokenizer, "is_fast", False))
    encoded = tokenizer(rendered, add_special_tokens=False, return_offsets_mapping=fast, verbose=False)
    offsets = encoded["offset_mapping"] if fast else []
    starts, ends = [start for start, _ in offsets], [end for _, end in offsets]
    for index, (first, last) in _places(rendered, _around(tokenizer, messages), messages).items():
        start, stop = bisect_right(ends, first), bisect_left(starts, last)
        if start < stop:
            messages[index] = replace(messages[index], start=start, stop=stop)
    return list(encoded["input_ids"]), tuple(messages)


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> str:
    """The text that the template makes of messages."""
    last: dict[str, Any] = (
        {"continue_final_message": True} if messages[-1].role == "assistant" else {"add_generation_prompt": True}
    )
    plain = [{"role": message.role, "content": message.content} for message in messages]
    try:
        return str(tokenizer.apply_chat_template(plain, tokenize=False, **last))
    except (TemplateError, TypeError, ValueError) as error:
        raise _refused(str(error).partition("\n")[0][:110] or type(error).__name__) from None


def _around(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[str]:
    """What the template writes before, between and after the contents, and in between the numbers of the messages.

    Raises:
        PromptError: it writes nothing of a message, as some do with a role they do not know.
    """
    marked = [replace(message, content=f"\ue0f1{index}\ue0f2") for index, message in enumerate(messages)]
    try:
        pieces = _MARK.split(_rendered(tokenizer, marked))
    except PromptError:  # it looks into a content
        return [""]
    for index, message in enumerate(messages):
        if str(index) not in pieces[1::2]:
            raise _refused(f"it leaves out message {index + 1}, of the role {message.role!r}")
    return pieces


def _check_roles(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> None:
    """A template that copies whatever role it is given would take a misspelt one, which no model was trained on."""
    source = tokenizer.get_chat_template()
    for role in [message.role for message in messages]:
        if role not in _COMMON and not re.search(rf"""['"]{re.escape(role)}['"]""", source):
            raise _refused(f"it knows no role {role!r}")


def _refused(why: str) -> PromptError:
    return PromptError(
        f"The chat template of these models does not take these messages ({why}): change them, or give plain text."
    )


def _places(rendered: str, pieces: Sequence[str], messages: Sequence[Message]) -> dict[int, tuple[int, int]]:
    """Where each content stands in the rendered text, `pieces` around it, stripped as many templates have it.

    Of none where the text is another.
    """
    places: dict[int, tuple[int, int]] = {}
    at = len(pieces[0]) if rendered.startswith(pieces[0]) else -1
    for number, after in zip(pieces[1::2], pieces[2::2], strict=True):
        content = messages[int(number)].content
        ways = [way for way in (content, content.strip(), content.rstrip(), content.lstrip()) if at >= 0]
        found = next((way for way in ways if rendered.startswith(way + after, at)), None)
        if found is None:
            return {}
        places[int(number)] = at, at + len(found)
        at += len(found) + len(after)
    return places if at == len(rendered) else {}
