"""Token ids and their texts, and whether two tokenizers give the same ids."""

from __future__ import annotations

import numbers
import re
from collections.abc import Iterable, Sequence

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from speclab.errors import PromptError, TokenizerMismatchError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SAMPLES = (
    "The quick brown fox jumps over the lazy dog, twice.",
    "def area(r):\n    return 3.14159 * r**2  # in m²\n",
    "  Two  spaces,\ta tab,\r\n\r\nand numbers: 1234567890, 0.001, -42.",
    "Ünïcödé – naïve café, Ελληνικά, 日本語, русский, 🦊🌳.",
)


class TokenTexts:
    """Texts of single tokens for display, cached.

    Args:
        tokenizer: None gives "#123" for every token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self._tokenizer = tokenizer
        byte_level = tokenizer is not None and "Ġ" in "".join(tokenizer.tokenize("a b"))
        self._alphabet = (
            {char: byte for byte, char in bytes_to_unicode().items()} if byte_level else {}
        )
        self._texts: dict[int, str] = {}

    def __call__(self, tokens: Iterable[int]) -> dict[int, str]:
        """Token to text, in the order of `tokens`: " the"; "<0xE2>" for a part of a character;
        "#123" for an unknown id.
        """
        wanted = list(dict.fromkeys(tokens))
        new = [token for token in wanted if token not in self._texts]
        self._texts.update({token: f"#{token}" for token in new})
        if self._tokenizer is not None and new:
            added = self._tokenizer.added_tokens_decoder
            ids = [token for token in new if 0 <= token < len(self._tokenizer)]
            for token, piece in zip(ids, self._tokenizer.convert_ids_to_tokens(ids), strict=True):
                if isinstance(piece, str):  # else the id is unused
                    self._texts[token] = piece if token in added else self._text(piece)
        return {token: self._texts[token] for token in wanted}

    def _text(self, piece: str) -> str:
        if single := _BYTE_TOKEN.fullmatch(piece):
            data = bytes([int(single[1], 16)])
        elif self._alphabet.keys() >= set(piece):
            data = bytes(map(self._alphabet.__getitem__, piece))
        else:
            return piece.replace("▁", " ")
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in data)


def compare(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> None:
    """Checks that both give the same ids to the same text and the same special tokens.

    Raises:
        TokenizerMismatchError: they do not.
    """
    reason = _difference(target, draft)
    if reason:
        raise TokenizerMismatchError(
            f"The tokenizers of target and draft differ: {reason}; choose two models of one "
            "family, or pass tokenizer= if you know that their ids mean the same."
        )


def _difference(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> str:
    for role in ("bos", "eos"):
        first, second = (getattr(tokenizer, f"{role}_token_id") for tokenizer in (target, draft))
        if first != second:
            return f"their {role} ids are {first} and {second}"
    added = target.get_added_vocab(), draft.get_added_vocab()
    for text in sorted(added[0].keys() & added[1].keys()):
        if added[0][text] != added[1][text]:
            return f"{text} is {added[0][text]} in one and {added[1][text]} in the other"
    for sample in _SAMPLES:
        if target(sample)["input_ids"] != draft(sample)["input_ids"]:
            return f"they split {sample[:24]!r} differently"
    return ""


def whole_numbers(prompt: object) -> list[int]:
    """Token ids from a list, array or tensor; raises `PromptError` for anything else."""
    tokens = prompt.tolist() if hasattr(prompt, "tolist") else prompt  # an array or a tensor
    if not isinstance(tokens, Sequence) or isinstance(tokens, bytes | bytearray):
        raise PromptError(f"Expected a prompt as text, token ids or messages, got {prompt!r}.")
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, numbers.Integral):
            raise PromptError(
                f"Expected a prompt as text or token ids, but {token!r} is not a token id."
            )
    return [int(token) for token in tokens]
