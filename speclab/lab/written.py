"""What a person wrote, as token ids: a token to look up, and a prompt for models without a tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.errors import PromptError
from speclab.lab.choices import Prompt

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


def written_tokens(pair: ModelPair, written: str) -> list[int]:
    """Ids of a text as the pictures show it (`␣the`), or those written as #17 #4."""
    words = written.replace("#", " ").replace(",", " ").split()
    if all(word.isdecimal() for word in words) and words and ("#" in written or pair.tokenizer is None):
        return [int(word) for word in words]
    if pair.tokenizer is None:
        raise PromptError("This pair has no tokenizer: write token ids, such as #17.")
    text = written.replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t")
    return list(pair.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) or pair.encode("")


def written_prompt(pair: ModelPair, prompt: Prompt) -> Prompt:
    """Text as it is; for a pair without a tokenizer, numbers written in it."""
    if pair.tokenizer is not None or not isinstance(prompt, str):
        return prompt
    words = prompt.replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        raise PromptError("This pair has no tokenizer: write the prompt as token ids, such as 5 17 3.")
    return [int(word) for word in words]
