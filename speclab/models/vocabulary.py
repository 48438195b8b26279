"""Token ids and their texts, and whether tokenizers and models share them."""

from __future__ import annotations

import numbers
import re
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from speclab.errors import PromptError, TokenizerMismatchError
from speclab.models.runner import Runner

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SAMPLES = (
    "The quick brown fox jumps over the lazy dog, twice.",
    "def area(r):\n    return 3.14159 * r**2  # in m²\n",
    "  Two  spaces,\ta tab,\r\n\r\nand numbers: 1234567890, 0.001, -42.",
    "Ünïcödé – naïve café, Ελληνικά, 日本語, русский, 🦊🌳.",
)


def _byte_alphabet() -> dict[str, int]:
    """Characters by which byte-level BPE writes bytes: printable Latin-1 stands for itself, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


class TokenTexts:
    """Text of one token at a time, for display; remembers what it was asked.

    Args:
        tokenizer: None gives "#123" for every token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self.tokenizer = tokenizer
        self._alphabet = _byte_alphabet() if _is_byte_level(tokenizer) else {}
        self._known: dict[int, str] = {}

    def __call__(self, token: int) -> str:
        """Its text, as in " the"; bytes that are no text by themselves as "<0xE2>"; "#123" for what has no text."""
        text = self._known.get(token)
        if text is None:
            text = self._known[token] = self._text(token)
        return text

    def _text(self, token: int) -> str:
        if self.tokenizer is None or not 0 <= token < len(self.tokenizer):
            return f"#{token}"
        piece = self.tokenizer.convert_ids_to_tokens(token)
        if not isinstance(piece, str):  # a gap in the numbering
            return f"#{token}"
        if token in self.tokenizer.added_tokens_decoder:
            return piece
        data = self._bytes(piece)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in data)

    def _bytes(self, piece: str) -> bytes:
        single = _BYTE_TOKEN.fullmatch(piece)
        if single:
            return bytes([int(single[1], 16)])
        if self._alphabet and all(char in self._alphabet for char in piece):
            return bytes(self._alphabet[char] for char in piece)
        return piece.replace("▁", " ").encode()


def _is_byte_level(tokenizer: PreTrainedTokenizerBase | None) -> bool:
    return tokenizer is not None and "Ġ" in "".join(tokenizer.tokenize("a b"))


def compare(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> None:
    """Checks that both give the same ids to the same text, and number their special tokens alike.

    Raises:
        TokenizerMismatchError: they do not.
    """
    for role in ("bos", "eos"):
        ids = [getattr(tokenizer, f"{role}_token_id") for tokenizer in (target, draft)]
        if ids[0] != ids[1]:
            raise _mismatch(f"their {role} ids are {ids[0]} and {ids[1]}")
    added = [tokenizer.get_added_vocab() for tokenizer in (target, draft)]
    for text in sorted(added[0].keys() & added[1].keys()):
        if added[0][text] != added[1][text]:
            raise _mismatch(f"{text} is {added[0][text]} in one and {added[1][text]} in the other")
    for sample in _SAMPLES:
        if target(sample)["input_ids"] != draft(sample)["input_ids"]:
            raise _mismatch(f"they split {sample[:24]!r} differently")


def _mismatch(what: str) -> TokenizerMismatchError:
    return TokenizerMismatchError(
        f"The tokenizers of target and draft differ: {what}; choose two models of one family, or pass tokenizer= "
        "if you know that their ids mean the same."
    )


def whole_numbers(prompt: object) -> list[int]:
    """Token ids from a list, an array or a tensor of them; raises `PromptError` for anything else."""
    tokens = prompt.tolist() if hasattr(prompt, "tolist") else prompt  # an array or a tensor
    if not isinstance(tokens, Sequence):
        raise PromptError(f"A prompt is text or a list of token ids, and {prompt!r} is neither.")
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, numbers.Integral):
            raise PromptError(f"A prompt is text or a list of token ids, and {token!r} is no token id.")
    return [int(token) for token in tokens]


def share_vocabulary(runners: Sequence[Runner], tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Cuts logits to the ids that all models have; what is cut off is padding that no text produces."""
    smallest = min(runners, key=lambda runner: runner.vocab_size)
    largest = max(runners, key=lambda runner: runner.vocab_size)
    if tokenizer is None and smallest.vocab_size != largest.vocab_size:
        raise TokenizerMismatchError(
            f"{smallest.name} has {smallest.vocab_size} token ids and {largest.name} {largest.vocab_size}: choose "
            "models of one vocabulary, or pass tokenizer= if they differ in padding alone."
        )
    if tokenizer is not None and len(tokenizer) > smallest.vocab_size:
        raise TokenizerMismatchError(
            f"The tokenizer has {len(tokenizer)} ids and {smallest.name} knows {smallest.vocab_size}: pass the "
            "tokenizer that belongs to the model."
        )
    for runner in runners:
        runner.vocab_size = smallest.vocab_size
