"""Token ids and their texts, and whether two tokenizers give the same ids."""

from __future__ import annotations

import numbers
import re
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from speclab.errors import PromptError, TokenizerMismatchError, first_line

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenTexts:
    """Texts of single tokens for display, cached.

    Args:
        tokenizer: None gives "#123" for every token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self.tokenizer = tokenizer
        self._alphabet: dict[str, int] = {}
        if "Ġ" in "".join(_asked(tokenizer, "tokenize", "a b") or ()):  # byte-level
            for byte, char in bytes_to_unicode().items():
                self._alphabet[char] = byte
        self._texts: dict[int, str] = {}

    def __call__(self, tokens: Iterable[int]) -> dict[int, str]:
        """Token to text, in the order of `tokens`: " the"; "<0xE2>" for a part of a character;
        "#123" for an unknown id.
        """
        wanted = dict.fromkeys(tokens)
        new = wanted.keys() - self._texts.keys()
        if new:
            added = getattr(self.tokenizer, "added_tokens_decoder", ())
            for token in new:
                piece = _asked(self.tokenizer, "convert_ids_to_tokens", token)
                text = f"#{token}"
                if isinstance(piece, str) and token >= 0:  # else the id is unused
                    text = piece
                    if token not in added:
                        text = self._text(piece)
                self._texts[token] = text
        return {token: self._texts[token] for token in wanted}

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a sequence, special tokens shown; "#123" for each id without a text."""
        texts = self(ids)
        if self.tokenizer is None:
            return " ".join([texts[token] for token in ids])
        parts = []
        for unknown, run in groupby(ids, lambda token: texts[token] == f"#{token}"):
            tokens = list(run)
            text = None
            if not unknown:
                options = {"clean_up_tokenization_spaces": False}
                text = _asked(self.tokenizer, "decode", tokens, **options)
            if text is None:
                text = "".join([texts[token] for token in tokens])
            parts.append(text)
        return "".join(parts)

    def _text(self, piece: str) -> str:
        if single := _BYTE_TOKEN.fullmatch(piece):
            data = bytes([int(single[1], 16)])
        elif self._alphabet.keys() >= set(piece):
            data = bytes([self._alphabet[char] for char in piece])
        else:
            return piece.replace("▁", " ")
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "".join([f"<0x{byte:02X}>" for byte in data])


def _asked(tokenizer: object, name: str, *arguments: object, **options: object) -> Any:
    """What a method of a tokenizer returns; None if it raises an error, as a foreign one may."""
    with suppress(Exception):
        return getattr(tokenizer, name)(*arguments, **options)


def encoded(tokenizer: PreTrainedTokenizerBase, text: str, **options: Any) -> Any:
    """The encoding of a text.

    Raises:
        PromptError: the tokenizer cannot encode it.
    """
    try:
        text.encode()  # not with Python's placeholders for bytes that are no UTF-8
        return tokenizer(text, verbose=False, **options)
    except Exception as error:  # a foreign tokenizer may raise anything
        reason = first_line(error, 100)
        raise PromptError(
            f"The tokenizer cannot encode {text[:40]!r} ({type(error).__name__}: {reason}): write "
            "another text, or give token ids."
        ) from None


def compare(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> bool:
    """Checks that every text that is a token of both has the same id in both; warns and returns
    False if no text is.

    Raises:
        TokenizerMismatchError: they do not.
    """
    first = _asked(target, "get_vocab") or {}
    second = _asked(draft, "get_vocab") or {}
    for text in sorted(first.keys() & second.keys(), key=first.__getitem__):
        if first[text] != second[text]:
            raise TokenizerMismatchError(
                f"The tokenizers of target and draft differ: {text!r} is {first[text]} in one and "
                f"{second[text]} in the other; choose two models of one family, or pass tokenizer= "
                "if you know that their ids mean the same."
            )
    if not first or not second or not first.keys().isdisjoint(second):
        return True
    warnings.warn(
        "The tokenizers of target and draft share no token text, so drafted tokens mean "
        "something else to the target: choose two models of one family.",
        stacklevel=2,
    )
    return False


def whole_numbers(prompt: object) -> list[int]:
    """Token ids from a list, array or tensor; raises `PromptError` for anything else."""
    tokens = prompt
    if hasattr(prompt, "tolist"):  # an array or a tensor
        tokens = prompt.tolist()
    if not isinstance(tokens, list | tuple | range | str):
        raise PromptError(f"Expected a prompt as text, token ids or messages, got {prompt!r}.")
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, numbers.Integral):
            raise PromptError(
                f"Expected a prompt as text or token ids, but {token!r} is not a token id."
            )
    return [int(token) for token in tokens]
