"""Our strategies on what an engine was asked and wrote, where its models are on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.analysis.replay import Replay, Replayer
from speclab.engine.session import KnownText, Session
from speclab.errors import PromptError, named
from speclab.settings import SessionSettings

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.models.pair import ModelPair
    from speclab.prompts import PromptInput

FEWEST, MOST = 2, 256
"""Tokens of an output that can be replayed at least, and that are decoded where neither log nor user has the output."""


def on_text(
    pair: ModelPair, strategy: Strategy, prompt: PromptInput, output: str, tokens: int | None
) -> tuple[Session | Replay, str]:
    """Replays `output` after `prompt`; without an output, decodes greedily. The run, and a sentence on what it is of.

    Args:
        tokens: to decode, where there is no output; by default `MOST`.

    Raises:
        PromptError: there is no prompt, the pair has no tokenizer, or the output is too short.
        SpeclabError: the strategy does not fit the pair, or the text not its context.
    """
    if not prompt:
        raise PromptError(
            "The log does not say what was asked: give the prompt, and the output if you have it, as in "
            'log.compare(pair, strategy, prompt="…", output="…").'
        )
    if not output:
        session = Session(pair, strategy, prompt, max_new_tokens=tokens or MOST)
        session.run()
        decoded = f"{len(session.token_ids)} tokens"
        return session, f"The log holds no output, so ours is decoded from the prompt, greedily: {decoded}."
    if not isinstance(output, str):
        raise PromptError(f"{named(output)} is no output: give the text that was written.")
    ids = pair.encode(prompt)
    if pair.tokenizer is None:
        raise PromptError("This pair has no tokenizer, so an output cannot be replayed: pass tokenizer= to load_pair.")
    written = list(pair.tokenizer(output, add_special_tokens=False, verbose=False)["input_ids"])
    if len(written) < FEWEST:
        raise PromptError(f"The output has fewer than {FEWEST} tokens, too few to replay: give all of it.")
    settings = SessionSettings(max_new_tokens=len(written), stop_at_eos=False)
    replayer = Replayer(KnownText(pair, (*ids, *written), len(ids), settings, (), ()))
    replayed, others = replayer.replay(strategy), replayer.others
    said = f"Ours is replayed on their text of {len(written)} tokens"
    if others:
        said += (
            f"; at {len(others)} of them, first at {others[0]}, our target chooses another: it was sampled, rounded "
            "otherwise, or written by another checkpoint"
        )
    return replayed, f"{said}." + (f" Not exact: {replayed.inexact}." if replayed.inexact else "")
