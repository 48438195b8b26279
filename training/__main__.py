"""`python -m training PHASE`: one command per phase, one option per field of its recipe."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel
from rich import print_json

from speclab.errors import SpeclabError
from training.answers import AnswersConfig, write_answers
from training.blocks import ChatBlockConfig, MiniBlockConfig, train_chat_block, train_mini_block
from training.data import TokenizerConfig, train_tokenizer
from training.draft import DistilConfig, distil
from training.evaluate import EvaluateConfig, evaluate
from training.head_export import ExportConfig, export
from training.head_figures import HeadFiguresConfig, head_figures
from training.heads import HeadsConfig, train_head
from training.loop import Recipe
from training.smollm2 import ChatHeadConfig, WholeRecipe, make_heads, train_chat_head
from training.target import PretrainConfig, UnlikelihoodConfig, pretrain, unlikelihood

PHASES: dict[str, tuple[type[BaseModel], Callable[[Any], object]]] = {
    "tokenizer": (TokenizerConfig, train_tokenizer),
    "pretrain": (PretrainConfig, pretrain),
    "unlikelihood": (UnlikelihoodConfig, unlikelihood),
    "distil": (DistilConfig, distil),
    "heads": (HeadsConfig, train_head),
    "export-head": (ExportConfig, export),
    "evaluate": (EvaluateConfig, evaluate),
    "block-head": (MiniBlockConfig, train_mini_block),
    "smollm2": (WholeRecipe, make_heads),
    "smollm2-answers": (AnswersConfig, write_answers),
    "smollm2-head": (ChatHeadConfig, train_chat_head),
    "smollm2-block-head": (ChatBlockConfig, train_chat_block),
    "smollm2-figures": (HeadFiguresConfig, head_figures),
}
STRUCTURED = {
    "mixture",
    "prefix_mixture",
    "lengths",
    "prefix_lengths",
    "weights",
    "temperatures",
    "shape",
    "schedule",
}
STRUCTURED |= {"layers", "kept", "texts", "folders"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a phase; a second call continues where the first stopped."""
    given = {
        name: value
        for name, value in vars(_parser().parse_args(arguments)).items()
        if value is not None
    }
    kind, run = PHASES[given.pop("phase")]
    length = {name: given.pop(name) for name in ("minutes", "steps") if name in given}
    try:
        recipe = kind(**given)
        if length:
            schedule = recipe.schedule.model_copy(update=length)  # type: ignore[attr-defined]
            recipe = recipe.model_copy(update={"schedule": schedule})
        result = run(recipe)
    except SpeclabError as error:
        raise SystemExit(str(error)) from None
    if isinstance(result, dict):
        print_json(data=result)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training", description="Train the shipped models and heads."
    )
    phases = parser.add_subparsers(dest="phase", required=True)
    for phase, (kind, run) in PHASES.items():
        summary = (run.__doc__ or "").partition(";")[0].partition("\n")[0]
        command = phases.add_parser(phase, help=summary, description=summary)
        for name, field in kind.model_fields.items():
            base = Recipe.model_fields.get(name, field)
            text = (field.description or base.description or "").replace("%", "%%")
            if field.is_required() and name != "out":
                command.add_argument(name, help=text)
            elif name not in STRUCTURED and not isinstance(field.default, dict):
                default = "" if field.default is None else f" Default: {field.default}."
                command.add_argument(
                    f"--{name.replace('_', '-')}", metavar="VALUE", help=text + default
                )
        if "schedule" in kind.model_fields:
            command.add_argument("--minutes", type=float, help="Length in training time.")
            command.add_argument(
                "--steps", type=int, help="Length in steps instead (exactly repeatable)."
            )
    return parser


if __name__ == "__main__":
    main()
