"""`speclab train …`: one command a phase, each option a field of that phase's config."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Make the mini family anew.")

Corpus = Annotated[Path | None, typer.Option(help="Folder of the training text; default: SPECLAB_CORPUS.")]
Out = Annotated[Path | None, typer.Option(help="Folder to write; default: under checkpoints/.")]
TokenizerFolder = Annotated[Path | None, typer.Option(help="Folder of the tokenizer.")]
Minutes = Annotated[float | None, typer.Option(help="Length in training time; default: the shipped recipe's.")]
Steps = Annotated[int | None, typer.Option(help="Length in steps instead.")]
Seed = Annotated[int | None, typer.Option(help="Seed; default: the shipped recipe's.")]


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _scheduled(config: Any, minutes: float | None, steps: int | None) -> Any:
    schedule = config.schedule.model_copy(update=_given(minutes=minutes, steps=steps))
    return config.model_copy(update={"schedule": schedule})


@app.command()
def tokenizer(corpus: Corpus = None, out: Out = None) -> None:
    """Train the tokenizer."""
    from speclab.training.tokenizer import TokenizerConfig, train_tokenizer

    train_tokenizer(TokenizerConfig(**_given(corpus=corpus, out=out)))


@app.command()
def pretrain(
    *,
    corpus: Corpus = None,
    out: Out = None,
    tokenizer: TokenizerFolder = None,
    minutes: Minutes = None,
    steps: Steps = None,
    seed: Seed = None,
) -> None:
    """Pretrain the target; called again, it goes on where it stopped."""
    from speclab.training.pretrain import PretrainConfig
    from speclab.training.pretrain import pretrain as train

    config = PretrainConfig(**_given(corpus=corpus, out=out, tokenizer=tokenizer, seed=seed))
    train(_scheduled(config, minutes, steps))


@app.command()
def unloop(
    *,
    corpus: Corpus = None,
    out: Out = None,
    tokenizer: TokenizerFolder = None,
    model: Annotated[Path | None, typer.Option(help="Folder of the pretrained target.")] = None,
    minutes: Minutes = None,
    steps: Steps = None,
    seed: Seed = None,
) -> None:
    """Teach the target not to loop; called again, it goes on where it stopped."""
    from speclab.training.unloop import UnloopConfig
    from speclab.training.unloop import unloop as train

    config = UnloopConfig(**_given(corpus=corpus, out=out, tokenizer=tokenizer, model=model, seed=seed))
    train(_scheduled(config, minutes, steps))


@app.command()
def distil(
    *,
    corpus: Corpus = None,
    out: Out = None,
    tokenizer: TokenizerFolder = None,
    target: Annotated[Path | None, typer.Option(help="Folder of the target.")] = None,
    start: Annotated[Path | None, typer.Option(help="Folder of a draft to go on from.")] = None,
    minutes: Minutes = None,
    steps: Steps = None,
    seed: Seed = None,
) -> None:
    """Distil the draft from the target; called again, it goes on where it stopped."""
    from speclab.training.distil import DistilConfig
    from speclab.training.distil import distil as train

    given = _given(corpus=corpus, out=out, tokenizer=tokenizer, target=target, start=start, seed=seed)
    train(_scheduled(DistilConfig(**given), minutes, steps))


@app.command()
def heads(
    subject: Annotated[str, typer.Argument(help="What the head is trained on: prose or code.")],
    *,
    corpus: Corpus = None,
    out: Out = None,
    tokenizer: TokenizerFolder = None,
    target: Annotated[Path | None, typer.Option(help="Folder of the target.")] = None,
    minutes: Minutes = None,
    steps: Steps = None,
    seed: Seed = None,
) -> None:
    """Train a draft head of the target; called again, it goes on where it stopped."""
    from speclab.training.heads import HeadsConfig, train_head

    given = _given(subject=subject, corpus=corpus, out=out, tokenizer=tokenizer, target=target, seed=seed)
    train_head(_scheduled(HeadsConfig(**given), minutes, steps))


@app.command()
def evaluate(
    *,
    corpus: Corpus = None,
    prompts: Annotated[Path | None, typer.Option(help="Folder of prompt files (*.jsonl).")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the figures (JSON).")] = None,
    tokenizer: TokenizerFolder = None,
    target: Annotated[Path | None, typer.Option(help="Folder of the target.")] = None,
    draft: Annotated[Path | None, typer.Option(help="Folder of the draft.")] = None,
) -> None:
    """Measure losses, loops and agreement, and print them."""
    from rich import print_json

    from speclab.training.evaluate import EvaluateConfig
    from speclab.training.evaluate import evaluate as measure

    given = _given(corpus=corpus, prompts=prompts, out=out, tokenizer=tokenizer, target=target, draft=draft)
    print_json(data=measure(EvaluateConfig(**given)))
