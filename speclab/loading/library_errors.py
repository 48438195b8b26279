"""What transformers, the hub and other libraries raise during a load, as one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError

from speclab.errors import (
    ModelNotFoundError,
    OfflineError,
    OutOfMemoryError,
    SpeclabError,
    UnsupportedModelError,
)
from speclab.models.transfers import is_out_of_memory


@contextmanager
def one_sentence(name: str, what: str) -> Iterator[None]:
    """Turns an error of the libraries into one sentence, with their own way out.

    Args:
        name: what the user gave. `what`: "model", "tokenizer" or "draft head".

    Raises:
        SpeclabError: OutOfMemoryError, OfflineError, ModelNotFoundError (it is not there, or
            damaged) or UnsupportedModelError.
    """
    try:
        yield
        return
    except SpeclabError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        kind: type[SpeclabError] = UnsupportedModelError
        if is_out_of_memory(error):
            kind = OutOfMemoryError
            text = "it does not fit in memory: choose a smaller model or half precision"
        elif "No space left" in text:
            kind = ModelNotFoundError
            text = "the disk is full: free some space, or set SPECLAB_CACHE to another disk"
        elif "trust_remote_code" in text:
            text = "it needs its own code, which speclab does not run: choose another model"
        elif "model_type" in text:
            text = "it has no config.json of a model: name the folder into which it was saved"
        elif isinstance(error, ConnectionError) or re.search("connect to|internet|outgoing", text):
            kind = OfflineError
        elif isinstance(error, OSError | SafetensorError):
            kind = ModelNotFoundError
    raise kind(f"The {what} of {name[:100]} does not load ({text[:300].rstrip('.')}).") from None
