"""Two iterations side by side: their difference in words, from their records alone, then both trees on one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from speclab.trace.records import Step, Trace
from speclab.views import explain
from speclab.views.explain import plural, summary
from speclab.views.markup import cards, escape, labelled, quoted, tag
from speclab.views.palette import SANS, css
from speclab.views.proposals import verified
from speclab.views.tree_small import Small, columns, small_svg

SAME = "Both drafted the same tree."
Path = tuple[int, ...]


def runs_words(one: Trace, other: Trace, cursor: int) -> tuple[str, ...]:
    """Sentences on `one` ("this run") and `other` after `cursor` iterations of each: figures, texts, then trees."""
    if not cursor:
        return ("Before the first iteration: nothing is drafted yet.",)
    if cursor > len(other.steps):
        return (f"The other run has {plural(len(other.steps), 'iteration')}: switch to it and Step to go on there.",)
    mine, theirs = one.steps[cursor - 1], other.steps[cursor - 1]
    figures = figures_words(mine, theirs)
    if one.prompt_ids != other.prompt_ids:
        return figures, "The prompts differ: texts and trees do not compare."
    so_far = texts_words(one, other, cursor)
    before = one.token_ids(cursor - 1), other.token_ids(cursor - 1)
    if before[0] == before[1]:
        return figures, so_far, *trees_words(mine, theirs)
    places = f"this after token {len(before[0])}, the other after token {len(before[1])}"
    return figures, so_far, f"The two trees stand at different places of the text: {places}."


def steps_words(one: Step, other: Step) -> tuple[str, ...]:
    """Sentences on two iterations: figures, and trees where both have the same root at the same place."""
    same = one.prefix_length == other.prefix_length and one.tree.token[0] == other.tree.token[0]
    place = f"The two trees stand at different places of the text: behind {one.prefix_length} and {other.prefix_length}"
    return figures_words(one, other), *(trees_words(one, other) if same else (f"{place} tokens.",))


def figures_words(one: Step, other: Step) -> str:
    """One sentence, such as: Nodes drafted: 14 against 24; accepted: 3 against 4; tokens committed: 4 each."""
    drafted = _against(one.counts.drafted, other.counts.drafted)
    accepted = _against(len(one.accepted), len(other.accepted))
    committed = _against(len(one.committed), len(other.committed))
    return f"Nodes drafted: {drafted}; accepted: {accepted}; tokens committed: {committed}."


def texts_words(one: Trace, other: Trace, cursor: int) -> str:
    """How far the two texts are the same, generated tokens counted from 1."""
    mine, theirs = one.token_ids(cursor), other.token_ids(cursor)
    same = common(mine, theirs)
    if mine == theirs:
        return f"Same text so far: {plural(same, 'token')}."
    if same == min(len(mine), len(theirs)):
        ahead = "this run" if len(mine) > same else "the other"
        return f"Same text up to token {same}; {ahead} is {plural(abs(len(mine) - len(theirs)), 'token')} ahead."
    texts = {**one.texts, **other.texts}
    up_to = f"Same text up to token {same}; then" if same else "The texts differ from the first token:"
    return f"{up_to} {quoted(mine[same], texts)} against {quoted(theirs[same], texts)}."


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def trees_words(one: Step, other: Step) -> tuple[str, ...]:
    """The first node that one tree expanded and the other did not, and the first one with other children; why."""
    mine, theirs = _nodes(one), _nodes(other)
    if mine.keys() == theirs.keys():
        return (SAME,)
    shared = [(node, theirs[path]) for path, node in mine.items() if path in theirs]
    if not shared:
        return ("The trees have no node in common: their roots differ.",)
    found = (next(_grown(one, other, shared), ""), next(_children(one, other, shared), ""))
    return tuple([sentence for sentence in found if sentence])


def _nodes(step: Step) -> dict[Path, int]:
    """Every path of tokens from the root, and the node where it ends; of twins the first."""
    found: dict[Path, int] = {}
    paths: list[Path] = []
    for node, (token, parent) in enumerate(zip(step.tree.token.tolist(), step.tree.parent.tolist(), strict=True)):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
        found.setdefault(paths[-1], node)
    return found


def _grown(one: Step, other: Step, shared: list[tuple[int, int]]) -> Iterator[str]:
    for mine, theirs in shared:
        this = _expanded(one, mine)
        if this == _expanded(other, theirs):
            continue
        who, whose = ("This run", "the other") if this else ("The other", "this run")
        left, at = (other, theirs) if this else (one, mine)
        children = one.tree.children[mine] if this else other.tree.children[theirs]
        into = f" into {len(children)}" if children else ", though none of its children stayed"
        stop = next((f": {event.reason}" for event in left.events if event.kind == "stop" and event.node == at), "")
        yield f"{who} expanded {_name(one, mine)}{into}, where {whose} stopped{stop}."


def _expanded(step: Step, node: int) -> bool:
    return bool(step.tree.children[node]) or any(e.kind == "expand" and e.node == node for e in step.events)


def _children(one: Step, other: Step, shared: list[tuple[int, int]]) -> Iterator[str]:
    for mine, theirs in shared:
        if _expanded(one, mine) and _expanded(other, theirs):
            yield from _extra("The other", other, theirs, "this run", one, mine)
            yield from _extra("This run", one, mine, "the other", other, theirs)


def _extra(who: str, more: Step, at: int, whose: str, less: Step, there: int) -> Iterator[str]:
    """What `more` drafted after a node and `less` did not."""
    lacking = _tokens(less, there)
    extra = [token for token in _tokens(more, at) if token not in lacking]
    if extra:
        rest = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        drafted = f"{quoted(extra[0], more.texts)}{rest} after {_name(more, at)}"
        yield f"{who} drafted {drafted}; {whose} {_why(less, there, extra[0])}."


def _tokens(step: Step, node: int) -> list[int]:
    return list(dict.fromkeys(int(step.tree.token[child]) for child in step.tree.children[node]))


def _name(step: Step, node: int) -> str:
    return quoted(int(step.tree.token[node]), step.texts)


def _why(step: Step, node: int, token: int) -> str:
    own = [event for event in step.events if event.node == node]
    for event in own:
        if event.kind == "prune" and event.values.get("token") == token:
            return f"pruned it: {event.reason}"
    for event in own:
        asked, added = event.values.get("branches"), event.values.get("added")
        if event.kind == "expand" and isinstance(asked, int):
            if added is None:  # grown best first: all it looked at were candidates, and the best of all were kept
                return _not_kept(step, node, token, asked)
            return f"had room for {added} of {asked}" if added != asked else f"asked for {asked}: {event.reason}"
    return "did not"


def _not_kept(step: Step, node: int, token: int, asked: int) -> str:
    """Of the candidates dropped behind a node the record names the first, and all their probabilities."""
    record = step.nodes[node]
    prob = dict(record.draft_top[:asked]).get(token)
    least = [e.values.get("least_kept") for e in step.events if e.kind == "prune" and e.node == node]
    if prob is None or not least:
        return f"looked at its {plural(asked, 'most probable token')} alone"
    return f"pruned it: path probability {record.path_prob * prob:.2g}, and the nodes kept have {least[0]:.2g} and more"


def _against(one: int, other: int) -> str:
    return f"{one} each" if one == other else f"{one} against {other}"


@dataclass(frozen=True, slots=True)
class Beside:
    """A run kept beside the one shown, to follow its cursor. `number`: of the fork; `name`: what it is called."""

    number: int
    name: str
    trace: Trace


def beside_html(trace: Trace, cursor: int, beside: Beside | None, pinned: Step | None, brief: bool = False) -> str:
    """Whatever is kept beside the iteration at `cursor`: a run, an iteration, both; empty where nothing is."""
    of_run = run_html(trace, beside, cursor, brief=brief) if beside is not None else ""
    step = trace.steps[cursor - 1] if cursor else None
    return of_run + (step_html(step, pinned) if pinned is not None and not brief else "")


def run_html(trace: Trace, other: Beside, cursor: int, *, brief: bool = False) -> str:
    """The iteration at `cursor` of both runs.

    `brief`: for a page that says everything of this run anyway: no tooltips, and no trees where they are the same.
    """
    words = runs_words(trace, other.trace, cursor)
    runs = [("This run", trace), (other.name, other.trace)]
    steps = [(name, run.steps[cursor - 1]) for name, run in runs if 0 < cursor <= len(run.steps)]
    if brief and (SAME in words or len(steps) < 2):
        steps = []
    return _page(f"Beside {other.name}", words, steps, tooltips=not brief)


def step_html(step: Step | None, pinned: Step) -> str:
    """The iteration shown and the pinned one; the pinned one alone where they are the same."""
    if step is None or step is pinned:
        return _page("Pinned", (), [("Pinned", pinned)])
    return _page("Beside the pinned iteration", steps_words(step, pinned), [("Shown", step), ("Pinned", pinned)])


def _page(label: str, words: tuple[str, ...], steps: list[tuple[str, Step]], *, tooltips: bool = True) -> str:
    colors = css()
    smalls = [Small(step.tree, verified(step), explain.tooltips(step) if tooltips else ()) for _, step in steps]
    texts = {token: text for _, step in steps for token, text in step.texts.items()}
    xs = columns(smalls, texts) if smalls else ()
    panels = []
    for (name, step), small in zip(steps, smalls, strict=True):
        heading = tag("div", tag("b", escape(f"{name}. ")), escape(summary(step)))
        svg = small_svg(small, xs, step.texts, f"{name}. {summary(step)}", colors)
        panels.append(tag("div", heading, svg, style=f"font:13px/1.5 {SANS}"))
    return tag("div", labelled(label, " ".join(words)) if words else "", cards(*panels), class_="speclab-beside-view")
