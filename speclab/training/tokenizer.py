"""The mini family's tokenizer: byte-level BPE, digits one by one, any bytes of UTF-8 text round-trip."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from speclab.errors import SpeclabError
from speclab.training.corpus import EOT, MIXTURE, corpus_folder, training_documents


class TokenizerConfig(BaseModel):
    """The shipped recipe of the tokenizer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: Path | None = Field(None, description="Folder of the training text; default: SPECLAB_CORPUS.")
    out: Path = Field(Path("checkpoints/tokenizer"), description="Folder to write.")
    vocab_size: int = Field(4096, ge=257, le=65535, description="Entries, the end-of-text token included.")
    mixture: dict[str, float] = Field(default_factory=lambda: dict(MIXTURE), description="Sources read.")


def train_tokenizer(config: TokenizerConfig) -> Tokenizer:
    """Train on the training documents of the corpus and save a folder that `AutoTokenizer` loads."""
    tokenizer = learn(training_documents(corpus_folder(config.corpus), config.mixture), config.vocab_size)
    save(tokenizer, config.out)
    return tokenizer


def learn(documents: Iterable[str], vocab_size: int) -> Tokenizer:
    """Byte-level BPE over `documents`; id 0 is the end-of-text token."""
    tokenizer = Tokenizer(models.BPE())
    # Single digits make numbers regular: a model this small cannot learn 1,000 number tokens.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
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


def save(tokenizer: Tokenizer, out: Path, context: int = 1024) -> None:
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
        raise SpeclabError(f"There is no tokenizer in {folder}: run `speclab train tokenizer`, or pass --tokenizer.")
    return Tokenizer.from_file(str(path))
