"""Why is acceptance so low? A draft head measured on its target's own text, as it is loaded and every other way.

    report = speclab.check_head(pair, "prose")
    print(report)

Nothing is guessed from a config: a cause is named where another way to run the same head gives more right first guesses
on the same text, or where the states of another place would do as well. vllm-project/speculators #751 and
sgl-project/SpecForge #455 are the question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os import PathLike

import numpy as np
from torch import Tensor

from speclab.analysis.head_report import Bin, Finding, HeadReport, Share, Tried, percent
from speclab.analysis.head_trials import DEPTH, Guesses, States, Text, Way, guesses, row_offset
from speclab.analysis.head_ways import ALIGNMENT, DTYPE, LAYERS, MAP, NORM, ROPE, other_ways
from speclab.drafters.chain import Autoregressive
from speclab.engine.generate import generate
from speclab.errors import ModelNotFoundError, NoDraftError, PromptError, SettingsError
from speclab.models.checkpoint import folder_of
from speclab.models.head_files import HeadSource, bare, holds_head, load_head
from speclab.models.heads import HeadRunner
from speclab.models.loading import Loader, Report, silent
from speclab.models.pair import ModelPair, checked_pair
from speclab.prompts import Prompt, PromptInput, as_messages, examples, is_conversation
from speclab.tree import Bools, Floats

TARGET, COVERAGE, TEMPLATE, POSITIONS = "another target", "vocabulary coverage", "template", "positions"
LEAST_GAIN, LEAST_NATS = 0.03, 0.03
"""Of right first guesses, or nats of the target's tokens: what another way must gain to be named (speclab default)."""
SURE, SURE_NATS = 3.0, 4.0
"""How many standard errors the gain must be; nats differ on every place, so small differences are soon sure."""
_SYSTEM = "You are a helpful assistant."
_FEW_PLACES = 40
_LEAST_STATES = 0.05
"""Of right first guesses that a head must owe to the states of the right place (speclab default)."""
_LEAST_OUTSIDE, _LEAST_TEMPLATE, _SURE_TEMPLATE = 0.15, 0.05, 2.0
"""Share of the target's tokens outside a draft vocabulary; right first guesses that another form of the prompts brings,
and the standard errors, over prompts, that it must be: to be named (speclab default)."""
_LOOPING = 0.3
"""Share of repeated 4-grams from which on a text flatters a head (speclab default)."""
_BINS = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0001)


def check_head(
    pair: ModelPair,
    head: int | HeadSource = 0,
    prompts: Sequence[PromptInput | Text] | None = None,
    *,
    max_new_tokens: int = 64,
    report: Report = silent,
) -> HeadReport:
    """Measures a draft head on its target's own greedy text, as it is loaded and in other ways.

    Args:
        pair: with the target; its draft model is not used.
        head: number or name of one of the pair's heads, the head itself, a folder, or a hub id.
        prompts: by default two shipped ones of each kind; what a user asks where the target has a chat template. A
            `Text` is taken as it is, without decoding.
        max_new_tokens: of each text; nearly as many places are measured.
        report: hears what is being done.

    Raises:
        NoDraftError: the pair has no such head, or it is a whole model.
        ModelNotFoundError: a folder that is not there, or holds no head.
        HeadMismatchError: the head has other sizes than the target, or its vocabulary map is damaged.
        PromptError: there are no prompts, or the target's texts are too short to measure on.
    """
    checked_pair(pair)
    if isinstance(prompts, str):
        raise PromptError("prompts is a list of them, and a single text was given: put it in brackets.")
    if max_new_tokens < 8:
        raise SettingsError(f"max_new_tokens is {max_new_tokens}: a text needs at least 8 to be measured on.")
    runner = _head_of(pair, head)
    texts = _texts(pair, prompts, max_new_tokens, report)
    ways = [Way("", "", runner), *other_ways(runner, pair.target), Way(TARGET, "states of other places", runner, _far)]
    found: list[list[Guesses]] = [[] for _ in ways]
    offset: int | None = 0
    for number, text in enumerate(texts):
        report(f"Measuring text {number + 1} of {len(texts)} in {len(ways)} ways…")
        states = States(pair.target, runner.config.layers, text.tokens)
        for place, way in enumerate(ways):
            found[place].append(guesses(way, text, states, way.depth if place else DEPTH))
        offset = offset if number else row_offset(runner, text, states)
    loaded, *others = map(Guesses.joined, found)
    tried = tuple(_compared(way, loaded, other, others[-1]) for way, other in zip(ways[1:], others, strict=True))
    first = [_share(each.right[:, 0]) for each in found[0]]
    findings = (
        *_of_ways(tried[:-1]),
        _of_positions(offset),
        _of_target(tried, loaded, runner),
        *_of_coverage(runner, texts, loaded),
        *_of_template(pair, runner, _asked(pair, prompts), first, max_new_tokens, report),
    )
    return HeadReport(
        head=runner.name, target=pair.target.name, facts=_facts(runner), texts=len(texts), places=len(loaded.right),
        accepted=_accepted(loaded), guessed=_guessed(loaded), calibration=_calibration(loaded),
        kinds=_kinds(texts, first), tried=tried, findings=findings, notes=_notes(texts),
    )  # fmt: skip


def _far(states: States) -> Tensor:
    return states.given.roll(len(states.given) // 2, 0)


def _head_of(pair: ModelPair, head: int | HeadSource) -> HeadRunner:
    if isinstance(head, str) and head in pair.head_names:
        head = pair.head_names.index(head)
    if isinstance(head, int):
        if not 0 <= head < len(pair.heads):
            there = f"one of {', '.join(pair.head_names)}, or a folder" if pair.heads else "a folder"
            raise NoDraftError(f"{pair.name} has no draft head {head}: name {there}.")
        found = pair.heads[head]
    else:
        head = bare(head)
        folder = folder_of(head) if isinstance(head, str | PathLike) else None
        if folder is not None and not holds_head(folder):
            raise ModelNotFoundError(
                f"{folder.name} holds no draft head (no head.json, and no weights with a joining matrix fc): check the "
                "path."
            )
        found = load_head(head, pair.target, Loader())
        found.vocab_size = pair.vocab_size
    if not isinstance(found, HeadRunner):
        raise NoDraftError(f"{found.name} is a whole model and no draft head: name a folder that holds a head.")
    return found


def _asked(pair: ModelPair, prompts: Sequence[PromptInput | Text] | None) -> list[tuple[str, PromptInput | Text]]:
    """Prompts and their kinds."""
    if prompts is not None:
        return [(each.kind if isinstance(each, Text) else "prompts", each) for each in prompts]
    kinds = dict.fromkeys(one.kind for one in examples(chat=pair.chats))
    shipped: list[Prompt] = [each for kind in kinds for each in examples(kind, chat=pair.chats)[:2]]
    return [(each.kind, as_messages(each.text) if pair.chats else each.text) for each in shipped]


def _texts(
    pair: ModelPair, prompts: Sequence[PromptInput | Text] | None, max_new_tokens: int, report: Report
) -> list[Text]:
    """The target's greedy continuations of prompts."""
    asked = _asked(pair, prompts)
    if not asked:
        raise PromptError("There are no prompts to measure on: give some, or leave prompts out for the shipped ones.")
    texts = []
    for number, (kind, prompt) in enumerate(asked, 1):
        if isinstance(prompt, Text):
            texts.append(prompt)
            continue
        report(f"The target continues prompt {number} of {len(asked)}…")
        texts.append(_continued(pair, prompt, max_new_tokens, kind))
    places = sum(max(len(text.own) - 1, 0) for text in texts)
    if places < _FEW_PLACES:
        raise PromptError(
            f"The target's texts have {places} places to measure on, and {_FEW_PLACES} is the least: give more "
            "prompts, or more new tokens."
        )
    return [text for text in texts if len(text.own) > 1]


def _continued(pair: ModelPair, prompt: PromptInput, max_new_tokens: int, kind: str) -> Text:
    ids = pair.encode(prompt)
    own = generate(pair, Autoregressive(), ids, max_new_tokens=max_new_tokens).token_ids
    return Text((*ids, *own), len(ids), kind)


# Figures.


def _share(right: Bools) -> Share:
    return Share(int(right.sum()), len(right))


def _depths(loaded: Guesses) -> Iterator[tuple[int, Bools]]:
    """Every depth that some text goes on for, and the places where it does."""
    for depth in range(loaded.known.shape[1]):
        if loaded.known[:, depth].any():
            yield depth, loaded.known[:, depth]


def _guessed(loaded: Guesses) -> tuple[Share, ...]:
    return tuple(_share(loaded.right[known, depth]) for depth, known in _depths(loaded))


def _accepted(loaded: Guesses) -> tuple[Share, ...]:
    before = np.concatenate([np.ones((len(loaded.right), 1), np.bool_), loaded.alive], axis=1)
    return tuple(_share(loaded.right[known & before[:, depth], depth]) for depth, known in _depths(loaded))


def _calibration(loaded: Guesses) -> tuple[Bin, ...]:
    place = np.digitize(loaded.confidence[:, 0], _BINS[1:-1])
    bins = [place == number for number in range(len(_BINS) - 1)]
    return tuple(
        Bin(float(loaded.confidence[own, 0].mean()), float(loaded.target[own, 0].mean()), _share(loaded.right[own, 0]))
        for own in bins
        if own.any()
    )


def _kinds(texts: Sequence[Text], first: Sequence[Share]) -> dict[str, Share]:
    kinds = [text.kind for text in texts]
    return {kind: _sum([share for each, share in zip(kinds, first, strict=True) if each == kind]) for kind in kinds}


def _facts(runner: HeadRunner) -> dict[str, str]:
    config, ids = runner.config, runner.model.token_ids
    return {
        "trained for": config.target or getattr(config, "verifier", "") or "not recorded",
        "layers read": ", ".join(map(str, config.layers)) + " (as hidden_states counts them; 0 the embeddings)",
        **({"layers named by its folder": config.layer_ids} if config.layer_ids else {}),
        "draft vocabulary": "every token" if ids is None else f"{len(ids):,} of {config.vocab_size:,} tokens",
        "output layer": "the target's" if runner.model.lm_head is None else "its own",
        "rotary base": f"{config.rope_theta:,.0f}",
        "parameters": f"{sum(weights.numel() for weights in runner.model.parameters()):,}",
        "dtype": str(runner.dtype).removeprefix("torch."),
    }


def _compared(way: Way, loaded: Guesses, other: Guesses, far: Guesses) -> Tried:
    """`far`: with the states of other places; a way that is right makes more of the states than that."""
    at = way.depth - 1
    known = loaded.known[:, at]
    more = other.right[known, at].astype(float) - loaded.right[known, at]
    less = loaded.nats[known, at] - other.nats[known, at]
    (gain, sure), (nats, sure_nats) = ((float(each.mean()), _errors(each)) for each in (more, less))
    better = (gain >= LEAST_GAIN and sure >= SURE) or (nats >= LEAST_NATS and sure_nats >= SURE_NATS)
    better = better and other.right[:, 0].mean() >= far.right[:, 0].mean() + _LEAST_STATES
    shares = _share(other.right[known, at]), _share(loaded.right[known, at])
    return Tried(way.cause, way.how, *shares, way.depth, gain, sure, nats, sure_nats, bool(better), way.out)


def _errors(differences: Floats) -> float:
    """The mean, in standard errors of it."""
    spread = float(differences.std()) / len(differences) ** 0.5
    return float(differences.mean()) / spread if spread else 0.0


def _repeats(texts: Sequence[Text]) -> float:
    """Share of the target's tokens that end a 4-gram which it wrote before in the same text."""
    again: list[bool] = []
    for text in texts:
        before: set[tuple[int, ...]] = set()
        for end in range(4, len(text.own) + 1):
            gram = text.own[end - 4 : end]
            again.append(gram in before)
            before.add(gram)
    return sum(again) / max(len(again), 1)


def _notes(texts: Sequence[Text]) -> tuple[str, ...]:
    share = _repeats(texts)
    if share < _LOOPING:
        return ()
    return (f"The target repeats itself: {share:.0%} of its tokens end a 4-gram that it wrote before, which is easy.",)


# Findings.

_HEALTHY = {
    MAP: "No other meaning of its output columns does better",
    LAYERS: "No other layer does better",
    NORM: "No other place of the norms does better",
    ALIGNMENT: "States one place off do no better",
    ROPE: "No other base does better",
    DTYPE: "Float32 does no better",
}


def _of_ways(tried: Sequence[Tried]) -> Iterator[Finding]:
    """Of each kind of way the best: a cause where it does better than the head as it is loaded.

    Where one way gives far more than another, the other is no cause: anything helps a head that is run wrongly.
    """
    most = max((one.gain for one in tried if one.better), default=0.0)
    for cause in dict.fromkeys(one.cause for one in tried):
        own = [one for one in tried if one.cause == cause]
        best = max(own, key=lambda one: (one.better, one.gain, one.nats))
        guess = "first" if best.depth == 1 else "second"
        text = f"{best.how} gives {percent(best.right)} right {guess} guesses instead of {percent(best.instead)}"
        if best.better and best.gain >= most / 2:
            text = f"Trying {text}, and {best.nats:.2f} nats less per token of the target."
            yield Finding(cause, True, text, best.out, max(best.gain, 0.0) + 0.01 * best.nats)
        elif best.better:
            yield Finding(cause, False, f"{text[0].upper()}{text[1:]}, much less than another way does.")
        else:
            yield Finding(cause, False, f"{_HEALTHY[cause]}: {len(own)} tried; at best {text}.")


def _of_positions(offset: int | None) -> Finding:
    if offset == 0:
        return Finding(POSITIONS, False, "Drafted rows answer as committed ones do: they stand at the right positions.")
    if offset is None:
        text = "Drafted rows answer otherwise than committed ones at the same place, whatever position is tried."
        return Finding(POSITIONS, True, text, "Hand drafted rows what committed ones read.", 0.01)
    way = "back" if offset > 0 else "further on"
    text = f"Drafted rows answer as committed ones do if they stand {abs(offset)} {way}, and not where they stand."
    out = "Count the positions of drafted rows on from the newest committed token, one a level."
    return Finding(POSITIONS, True, text, out, 1.0)


def _of_target(tried: Sequence[Tried], loaded: Guesses, runner: HeadRunner) -> Finding:
    """A head that does as well with the states of other places makes nothing of them."""
    far, right, name = tried[-1], _share(loaded.right[:, 0]), runner.config.target
    text = (
        f"With the states of other places {percent(far.right)} of first guesses are right, and {percent(right)} with "
    )
    if -far.gain >= _LEAST_STATES:
        return Finding(TARGET, False, text + "those of the right ones: the head reads this target's states.")
    if any(one.better for one in tried):
        return Finding(TARGET, False, text + "the right ones; run another way it does make use of them.")
    out = "Load a head that was trained for this very target, or train it further; its weights may also be damaged."
    recorded = f" It was recorded for {name}." if name else ""
    return Finding(
        TARGET, True, f"{text}the right ones: it makes nothing of this target's states.{recorded}", out, 0.02
    )


def _of_coverage(runner: HeadRunner, texts: Sequence[Text], loaded: Guesses) -> Iterator[Finding]:
    ids = runner.model.token_ids
    if ids is None:
        return
    known = set(ids.tolist())
    own = [token in known for text in texts for token in text.own[1:]]
    share, right = Share(sum(own), len(own)), float(loaded.right[:, 0].mean())
    text = f"{percent(share)} of the target's own tokens are in the draft vocabulary; the others are never proposed."
    out = "Train with a larger draft vocabulary, or one counted on text like this."
    lost = right / max(share.value, 1e-9) * (1 - share.value)
    yield Finding(COVERAGE, 1 - share.value >= _LEAST_OUTSIDE, text, out, lost)


def _of_template(
    pair: ModelPair,
    runner: HeadRunner,
    asked: Sequence[tuple[str, PromptInput | Text]],
    first: Sequence[Share],
    max_new_tokens: int,
    report: Report,
) -> Iterator[Finding]:
    """The same prompts with the target's chat template and without, and with a system message."""
    said = [_user_text(prompt) for _, prompt in asked]
    if not pair.chats or None in said or len(said) != len(first):
        return
    given = is_conversation(asked[0][1])
    ways: dict[str, Callable[[str], PromptInput]] = {"a system message": lambda text: as_messages(text, _SYSTEM)}
    ways |= {"plain text": str} if given else {"the target's chat template": as_messages}
    found: list[tuple[float, float, Share, str]] = []
    for how, written in ways.items():
        report(f"The target answers prompts with {how}…")
        try:
            texts = [_continued(pair, written(text or ""), max_new_tokens, how) for text in said]
        except PromptError:  # a template that takes no system message
            continue
        if _repeats(texts) >= _LOOPING or min(len(text.own) for text in texts) < 2:
            continue
        shares = [_first_share(pair, runner, text) for text in texts]
        gain = np.array([after.value - before.value for after, before in zip(shares, first, strict=True)])
        found.append((float(gain.mean()), _errors(gain), _sum(shares), how))
    if not found:
        return
    mean, errors, share, how = max(found)
    text = (
        f"Prompts with {how}: {percent(share)} right first guesses on what follows, instead of {percent(_sum(first))} "
    )
    text += f"as they were given, {'in the chat template' if given else 'as plain text'}."
    cause = mean >= _LEAST_TEMPLATE and errors >= _SURE_TEMPLATE
    yield Finding(TEMPLATE, cause, text, "Give prompts as the head was trained on them.", mean)


def _user_text(prompt: PromptInput | Text) -> str | None:
    """What the user says, where that is all there is."""
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, Text) and is_conversation(prompt) and len(prompt) == 1:
        return prompt[0]["content"]
    return None


def _first_share(pair: ModelPair, runner: HeadRunner, text: Text) -> Share:
    states = States(pair.target, runner.config.layers, text.tokens)
    return _share(guesses(Way("", "", runner), text, states).right[:, 0])


def _sum(shares: Sequence[Share]) -> Share:
    return Share(sum(share.right for share in shares), sum(share.places for share in shares))
