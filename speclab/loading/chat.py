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

from transformers import PreTrainedTokenizerBase

from speclab.errors import PromptError, first_line
from speclab.loading.tokens import encoded
from speclab.prompts import Message, checked_messages

_MARK = re.compile("\ue0f1(\\d+)\ue0f2")
"""Replaces the content of a message, to find what the template writes around it; the characters are private."""


def encode_messages(
    tokenizer: PreTrainedTokenizerBase | None,
    prompt: Sequence[Mapping[str, Any]],
    template: Mapping[str, Any] | None,
) -> tuple[list[int], tuple[Message, ...]]:
    """Token ids of a conversation, and its messages with the token range of their content.

    The range is empty if the tokenizer has no offsets, the template rewrites the content, or a
    message is more than a role and a text.

    Args:
        template: arguments of `apply_chat_template`, such as `enable_thinking` or `tools`.

    Raises:
        PromptError: the messages are invalid, or there is no template that accepts them.
    """
    messages = checked_messages(prompt)
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        raise PromptError(
            "These models have no tokenizer with a chat template: give the prompt as plain text or "
            "token ids, not as messages."
        )
    rendered = _rendered(tokenizer, prompt, template)
    fast = bool(getattr(tokenizer, "is_fast", False))
    encoding = encoded(tokenizer, rendered, add_special_tokens=False, return_offsets_mapping=fast)
    plain = [{"role": message.role, "content": message.content} for message in messages]
    if fast and plain == list(map(dict, prompt)):
        starts = []
        ends = []
        for start, end in encoding["offset_mapping"]:
            starts.append(start)
            ends.append(end)
        pieces = _around(tokenizer, messages, template)
        for index, (first, last) in _spans(rendered, pieces, messages).items():
            start = bisect_right(ends, first)
            stop = bisect_left(starts, last)
            if start < stop:
                messages[index] = replace(messages[index], start=start, stop=stop)
    return list(encoding["input_ids"]), tuple(messages)


def _rendered(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    template: Mapping[str, Any] | None,
) -> str:
    last = "add_generation_prompt"
    if messages[-1]["role"] == "assistant":
        last = "continue_final_message"
    try:
        options: dict[str, Any] = {last: True}
        options.update(template or {}, tokenize=False)
        return str(tokenizer.apply_chat_template(list(map(dict, messages)), **options))
    except Exception as error:  # a template may raise anything
        raise _refused(first_line(error, 110) or type(error).__name__) from None


def _around(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Message],
    template: Mapping[str, Any] | None,
) -> list[str]:
    """The template's texts before, between and after the contents, alternating with the numbers of
    the messages.

    Raises:
        PromptError: it leaves out a message, as some do for a role they do not know.
    """
    marked = []
    for index, message in enumerate(messages):
        marked.append({"role": message.role, "content": f"\ue0f1{index}\ue0f2"})
    try:
        pieces = _MARK.split(_rendered(tokenizer, marked, template))
    except PromptError:  # the template reads the content
        return [""]
    for index, message in enumerate(messages):
        if str(index) not in pieces[1::2]:
            raise _refused(f"it leaves out message {index + 1} with role {message.role!r}")
    return pieces


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
        for text in (content, content.strip(), content.rstrip(), content.lstrip()):
            if rendered.startswith(text + after, position):
                spans[int(number)] = position, position + len(text)
                position += len(text) + len(after)
                break
        else:
            return {}
    if position < len(rendered):
        return {}
    return spans
