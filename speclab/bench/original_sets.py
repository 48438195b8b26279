"""The original evaluation sets through the `datasets` library, where there is a network; an optional extra."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from speclab.errors import MeasurementError, OfflineError

Row = tuple[str, str, str]
"""Id, kind and text of a prompt."""


@dataclass(frozen=True, slots=True)
class Original:
    """Where a set lies on the hub, and how a record of it becomes a prompt."""

    path: str
    config: str | None
    split: str
    prompt: Callable[[dict[str, Any]], str]


def _mbpp(record: dict[str, Any]) -> str:
    tests = "\n".join(record["test_list"][:1])
    return f'"""\n{record["text"]}\n{tests}\n"""\n'


def _question(record: dict[str, Any]) -> str:
    """GSM8K as GOOSE's authors ask it."""
    return f"Question: {record['question']}\n\nAnswer: Let me solve step by step.\n"


def _passage(record: dict[str, Any]) -> str:
    """Prose of some length; headings and short lines are no prompts."""
    text = str(record["text"]).strip()
    return text if len(text) >= 400 and not text.startswith("=") else ""


ORIGINALS = {
    "openai_humaneval": Original("openai/openai_humaneval", None, "test", lambda record: record["prompt"]),
    "gsm8k": Original("openai/gsm8k", "main", "test", lambda record: f"Question: {record['question']}\nAnswer:"),
    "goose-gsm8k": Original("openai/gsm8k", "main", "test", _question),
    "goose-mbpp": Original("google-research-datasets/mbpp", "full", "test", lambda record: f"# {record['text']}\n"),
    "classeval": Original("FudanSELab/ClassEval", None, "test", lambda record: str(record["skeleton"])),
    "mbpp": Original("google-research-datasets/mbpp", "full", "test", _mbpp),
    "wikitext": Original("Salesforce/wikitext", "wikitext-2-raw-v1", "test", _passage),
    "mt-bench": Original("HuggingFaceH4/mt_bench_prompts", None, "train", lambda record: record["prompt"][0]),
    "pg19": Original("emozilla/pg19-test", None, "test", lambda record: str(record["text"])[:8000]),
}
"""By the name of the workload. Each prompt is plain text: no chat template. Those of a paper's name have the wording of
its authors' code; so have classeval, openai_humaneval and mt-bench of GOOSE's."""


def original(name: str, limit: int | None = None) -> Iterator[Row]:
    """Prompts of an original set, the first `limit` of them.

    Raises:
        MeasurementError: `datasets` is not installed.
        OfflineError: the hub cannot be reached, or no longer has the set.
    """
    try:
        from datasets import load_dataset
    except ImportError:
        raise MeasurementError(
            f"The set {name} needs the datasets library and a network: pip install 'speclab[datasets]', or name a "
            "JSONL file of prompts."
        ) from None
    source = ORIGINALS[name]
    try:
        records = load_dataset(source.path, source.config, split=source.split, streaming=True)
        yield from islice(_rows(name, source, records), limit)
    except Exception as error:  # the library raises its own, the hub's and requests' errors
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OfflineError(
            f"The set {name} cannot be fetched ({reason}): check the network, or name a JSONL file of prompts."
        ) from error


def _rows(name: str, source: Original, records: Any) -> Iterator[Row]:
    for number, record in enumerate(records):
        text = source.prompt(record)
        if text:
            yield f"{name}-{number}", name, text
