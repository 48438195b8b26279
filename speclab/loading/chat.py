"""Messages as token ids, by the tokenizer's chat template, and which tokens are a message's
content.

Ids are those of `tokenizer.apply_chat_template` with the generation prompt; a last message of the
assistant is continued instead, as in transformers' text-generation pipeline. The template writes
the special tokens, BOS included.
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
"""Replaces the content of a message, to find what the template writes around it; the characters are private."""


def has_template(tokenizer: PreTrainedTokenizerBase | None) -> bool:
    return bool(getattr(tokenizer, "chat_template", None))


def encode_messages(
    tokenizer: PreTrainedTokenizerBase | None, prompt: Sequence[Mapping[str, str]]
) -> tuple[list[int], tuple[Message, ...]]:
    """Token ids of a conversation, and its messages with the token range of their content.

    The range is empty if the tokenizer has no offsets, or the template rewrites the content.

    Raises:
        PromptError: the messages are invalid, or there is no template that accepts them.
    """
    messages = checked_messages(prompt)
    if tokenizer is None:
        raise PromptError(
            "This pair has no tokenizer, so messages have no chat template: give token ids."
        )
    if not has_template(tokenizer):
        raise PromptError(
            "These models have no chat template: give the prompt as plain text, not as messages."
        )
    rendered = _rendered(tokenizer, messages)
    _check_roles(tokenizer, messages)
    fast = bool(getattr(tokenizer, "is_fast", False))
    encoded = tokenizer(
        rendered, add_special_tokens=False, return_offsets_mapping=fast, verbose=False
    )
    offsets = encoded["offset_mapping"] if fast else []
    starts = [start for start, _ in offsets]
    ends = [end for _, end in offsets]
    for index, (first, last) in _spans(rendered, _around(tokenizer, messages), messages).items():
        start = bisect_right(ends, first)
        stop = bisect_left(starts, last)
        if start < stop:
            messages[index] = replace(messages[index], start=start, stop=stop)
    return list(encoded["input_ids"]), tuple(messages)


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> str:
    last: dict[str, Any] = (
        {"continue_final_message": True}
        if messages[-1].role == "assistant"
        else {"add_generation_prompt": True}
    )
    plain = [{"role": message.role, "content": message.content} for message in messages]
    try:
        return str(tokenizer.apply_chat_template(plain, tokenize=False, **last))
    except (TemplateError, TypeError, ValueError) as error:
        raise _refused(str(error).partition("\n")[0][:110] or type(error).__name__) from None


def _around(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[str]:
    """The template's texts before, between and after the contents, alternating with the numbers of
    the messages.

    Raises:
        PromptError: it leaves out a message, as some do for a role they do not know.
    """
    marked = [
        replace(message, content=f"\ue0f1{index}\ue0f2") for index, message in enumerate(messages)
    ]
    try:
        pieces = _MARK.split(_rendered(tokenizer, marked))
    except PromptError:  # the template reads the content
        return [""]
    for index, message in enumerate(messages):
        if str(index) not in pieces[1::2]:
            raise _refused(f"it leaves out message {index + 1} with role {message.role!r}")
    return pieces


def _check_roles(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> None:
    """Rejects roles that the template does not mention, such as misspelt ones: it would copy them unchanged."""
    source = tokenizer.get_chat_template()
    for role in [message.role for message in messages]:
        if role not in _COMMON and not re.search(rf"""['"]{re.escape(role)}['"]""", source):
            raise _refused(f"it has no role {role!r}")


def _refused(why: str) -> PromptError:
    return PromptError(
        f"The chat template of these models does not accept these messages ({why}): change them, "
        "or use plain text."
    )


def _spans(
    rendered: str, pieces: Sequence[str], messages: Sequence[Message]
) -> dict[int, tuple[int, int]]:
    """The character range of each content in the rendered text, between `pieces`; empty if they do
    not match.

    Many templates strip contents.
    """
    spans: dict[int, tuple[int, int]] = {}
    position = len(pieces[0])
    if not rendered.startswith(pieces[0]):
        return {}
    for number, after in zip(pieces[1::2], pieces[2::2], strict=True):
        content = messages[int(number)].content
        variants = (content, content.strip(), content.rstrip(), content.lstrip())
        match = next(
            (text for text in variants if rendered.startswith(text + after, position)), None
        )
        if match is None:
            return {}
        spans[int(number)] = position, position + len(match)
        position += len(match) + len(after)
    return spans if position == len(rendered) else {}
