"""The training text and its tokenizer: reading, tokenising, packing, and sampling batches from a
mixture of sources.

A corpus is a folder of `<source>.txt.xz` files in UTF-8, documents parted by a line
`<|endoftext|>`. Each source becomes two flat `uint16` files of token ids, one for training and a
small one held out, every document closed by the end-of-text id.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from speclab.errors import SpeclabError

EOT = "<|endoftext|>"
TOKENS_DTYPE = np.uint16

Tokens = NDArray[np.uint16]


class CorpusError(SpeclabError):
    """The training text is missing or unreadable."""


# Shares of the training tokens. Plain prose has the largest part: small models read best there.
MIXTURE: dict[str, float] = {
    "books_simple": 0.29,
    "books": 0.22,
    "wikitext2_train": 0.20,
    "python_stdlib": 0.14,
    "gsm8k_train": 0.08,
    "tinystories": 0.05,
    "tinyshakespeare": 0.01,
    "mbpp_train": 0.01,
}

# Every HELD_OUT_EVERY-th document is held out; a source of fewer documents gives the end of its
# last one.
HELD_OUT_EVERY = 60


class Packed(BaseModel):
    """One packed source: its token files, and the bytes of held-out text (for losses per byte)."""

    model_config = ConfigDict(frozen=True)

    name: str
    train: Path
    held_out: Path
    held_out_bytes: int

    def train_tokens(self) -> Tokens:
        """The training tokens, mapped from disk."""
        return np.memmap(self.train, dtype=TOKENS_DTYPE, mode="r")

    def held_out_tokens(self) -> Tokens:
        """The held-out tokens, mapped from disk."""
        return np.memmap(self.held_out, dtype=TOKENS_DTYPE, mode="r")


def corpus_folder(given: Path | None) -> Path:
    """The folder given, else the one named by SPECLAB_CORPUS; raises `CorpusError` if there is none."""
    folder = given or (
        Path(os.environ["SPECLAB_CORPUS"]) if os.environ.get("SPECLAB_CORPUS") else None
    )
    if folder is None:
        raise CorpusError(
            "No training text given: name its folder with --corpus or the variable SPECLAB_CORPUS."
        )
    if not folder.is_dir():
        raise CorpusError(
            f"The corpus folder {folder} does not exist: pass an existing folder with --corpus."
        )
    return folder


def read_documents(folder: Path, source: str) -> list[str]:
    """All documents of one source, in file order, with mojibake fixed."""
    path = folder / f"{source}.txt.xz"
    if not path.is_file():
        raise CorpusError(
            f"{path} is missing: put it there, or leave {source!r} out of the mixture."
        )
    try:
        text = lzma.decompress(path.read_bytes()).decode()
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise CorpusError(
            f"{path} is not readable as xz-packed UTF-8 text ({error}): fetch it again."
        ) from error
    return [
        document.strip("\n")
        for document in fix_mojibake(text).split(f"\n{EOT}\n")
        if document.strip()
    ]


def split(documents: list[str]) -> tuple[list[str], list[str]]:
    """Training and held-out documents; a source of few documents is cut near the end of its last one."""
    if len(documents) >= HELD_OUT_EVERY:
        held = [d for i, d in enumerate(documents) if i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1]
        return [
            d for i, d in enumerate(documents) if i % HELD_OUT_EVERY != HELD_OUT_EVERY - 1
        ], held
    *rest, last = documents
    cut = last.rfind("\n", 0, int(len(last) * 0.97)) + 1 or int(len(last) * 0.97)
    return [*rest, last[:cut]], [last[cut:]]


def training_documents(folder: Path, mixture: dict[str, float]) -> Iterator[str]:
    """Every training document of the mixture (for the tokenizer)."""
    for source in mixture:
        yield from split(read_documents(folder, source))[0]


def pack(folder: Path, mixture: dict[str, float], tokenizer: Tokenizer, out: Path) -> list[Packed]:
    """Tokenise every source into `out`; sources packed earlier with the same tokenizer are reused."""
    out.mkdir(parents=True, exist_ok=True)
    stamp = hash_of(tokenizer)
    packed = []
    for source in mixture:
        note = out / f"{source}.json"
        if note.is_file() and json.loads(note.read_text())["tokenizer"] == stamp:
            packed.append(Packed(**json.loads(note.read_text())["packed"]))
            continue
        train, held = split(read_documents(folder, source))
        result = Packed(
            name=source,
            train=_write(out / f"{source}.train.bin", train, tokenizer),
            held_out=_write(out / f"{source}.held_out.bin", held, tokenizer),
            held_out_bytes=sum(len(d.encode()) for d in held),
        )
        note.write_text(
            json.dumps({"tokenizer": stamp, "packed": json.loads(result.model_dump_json())})
        )
        packed.append(result)
    return packed


def hash_of(tokenizer: Tokenizer) -> str:
    """A short fingerprint of a tokenizer."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:16]


def _write(path: Path, documents: list[str], tokenizer: Tokenizer) -> Path:
    eot = tokenizer.token_to_id(EOT)
    encoded = tokenizer.encode_batch(documents, add_special_tokens=False)
    ids = np.concatenate([np.array([*e.ids, eot], dtype=TOKENS_DTYPE) for e in encoded])
    ids.tofile(path)
    return path


class Batches:
    """Draws batches of token windows from the sources in exact proportion to their weights.

    Each source is cut into windows of `length + 1` tokens, taken in an order shuffled by (seed,
    source, length, pass), each pass with another offset. The state is the number of windows taken
    per source and length, so a run resumes where it stopped.
    """

    def __init__(self, sources: list[Packed], mixture: dict[str, float], seed: int) -> None:
        self._tokens = {s.name: s.train_tokens() for s in sources}
        total = sum(mixture.values())
        self._weights = {name: weight / total for name, weight in mixture.items()}
        self._seed = seed
        self._orders: dict[tuple[str, int, int], tuple[int, NDArray[np.int64]]] = {}
        self.taken: dict[str, int] = {}  # "source/length" -> windows taken
        self.tokens_of: dict[str, int] = dict.fromkeys(mixture, 0)

    def state(self) -> dict[str, dict[str, int]]:
        """The data position, for a checkpoint."""
        return {"taken": dict(self.taken), "tokens_of": dict(self.tokens_of)}

    def restore(self, state: dict[str, dict[str, int]]) -> None:
        """Go to a position that `state` gave."""
        self.taken = dict(state["taken"])
        self.tokens_of = dict(state["tokens_of"])

    def next(self, sequences: int, length: int) -> NDArray[np.int64]:
        """`[sequences, length + 1]` ids: inputs are all but the last column, targets all but the first."""
        return np.stack([self._window(self._due(length), length) for _ in range(sequences)]).astype(
            np.int64
        )

    def _due(self, length: int) -> str:
        after = sum(self.tokens_of.values()) + length
        return max(
            self._weights, key=lambda name: self._weights[name] * after - self.tokens_of[name]
        )

    def _window(self, source: str, length: int) -> Tokens:
        tokens = self._tokens[source]
        key = f"{source}/{length}"
        count = self.taken.get(key, 0)
        windows = max((len(tokens) - 1) // length - 1, 1)
        offset, order = self._order(source, length, count // windows, windows)
        start = offset + int(order[count % windows]) * length
        self.taken[key] = count + 1
        self.tokens_of[source] += length
        window = tokens[start : start + length + 1]
        if len(window) < length + 1:
            raise CorpusError(
                f"The source {source!r} has fewer than {length + 1} tokens: add text or leave it "
                "out."
            )
        return window

    def _order(
        self, source: str, length: int, epoch: int, windows: int
    ) -> tuple[int, NDArray[np.int64]]:
        key = (source, length, epoch)
        if key not in self._orders:
            rng = np.random.default_rng([self._seed, *source.encode(), length, epoch])
            spare = max(len(self._tokens[source]) - 1 - windows * length, 0)
            self._orders = {k: v for k, v in self._orders.items() if k[:2] != key[:2]}
            self._orders[key] = (int(rng.integers(spare + 1)), rng.permutation(windows))
        return self._orders[key]


# Mojibake: UTF-8 read as cp1252, and written as UTF-8 again. General punctuation alone (E2 80 and a
# third byte): other letters and marks meet in true text, as in “café…”.
_THIRD = bytes(range(0x80, 0xC0)).decode("cp1252", errors="ignore")
_TWICE = re.compile(f"â€[{re.escape(_THIRD)}]")
# The last byte of ” is no character of cp1252, and such text has lost it: it is known by what it
# closes.
_CLOSING = re.compile("(“[^“”\n]*?)â€")


def fix_mojibake(text: str) -> str:
    """`text` with quotation marks and dashes restored that were encoded twice (UTF-8 read as
    cp1252).

    What does not decode to one mark of punctuation stays, and so does a last half that closes
    nothing on its line.
    """
    once = _TWICE.sub(lambda mark: mark[0].encode("cp1252").decode(), text)
    return _CLOSING.sub(r"\1”", once)


class TokenizerConfig(BaseModel):
    """The shipped recipe of the tokenizer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: Path | None = Field(
        None, description="Folder of the training text; default: SPECLAB_CORPUS."
    )
    out: Path = Field(Path("checkpoints/tokenizer"), description="Folder to write.")
    vocab_size: int = Field(
        4096, ge=257, le=65535, description="Entries, the end-of-text token included."
    )
    mixture: dict[str, float] = Field(
        default_factory=lambda: dict(MIXTURE), description="Sources read."
    )


def train_tokenizer(config: TokenizerConfig) -> Tokenizer:
    """Train the tokenizer on the training documents of the corpus and save a folder that `AutoTokenizer` loads."""
    tokenizer = learn_bpe(
        training_documents(corpus_folder(config.corpus), config.mixture), config.vocab_size
    )
    save_tokenizer(tokenizer, config.out)
    return tokenizer


def learn_bpe(documents: Iterable[str], vocab_size: int) -> Tokenizer:
    """Byte-level BPE over `documents`; id 0 is the end-of-text token."""
    tokenizer = Tokenizer(models.BPE())
    # Single digits make numbers regular: a model this small cannot learn 1,000 number tokens.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, out: Path, context: int = 1024) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` into `out`."""
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=EOT,
        eos_token=EOT,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    fast.save_pretrained(out)


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer saved in `folder`; raises `SpeclabError` if there is none."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise SpeclabError(
            f"There is no tokenizer in {folder}: run `python -m training tokenizer`, or pass "
            "--tokenizer."
        )
    return Tokenizer.from_file(str(path))
