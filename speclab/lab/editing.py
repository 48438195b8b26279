"""A tree built by hand: which node is meant, which token was typed, and how it did beside the strategy's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.drafters.by_hand import TreeEdit
from speclab.errors import NotRecordedError, PromptError, SettingsError
from speclab.trace.records import Step

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


def edit_of(step: Step) -> TreeEdit:
    """The tree of an iteration, to be edited."""
    if step.root_choice is not None:
        raise NotRecordedError("The root of this tree was drafted; by hand a tree grows from the text's newest token.")
    return TreeEdit.of(step)


def recorded_nodes(edit: TreeEdit) -> list[int | None]:
    """For each node of the edited tree, its node in the iteration; None where it is new."""
    return [edit.recorded(node) for node in range(len(edit.tree))]


def index_in(edit: TreeEdit, node: int | str) -> int:
    """The number in the edited tree of a node as the page names it: of the iteration, or "new 3"."""
    if isinstance(node, str):
        return int(node.removeprefix("new "))
    places = recorded_nodes(edit)
    if node not in places:
        raise SettingsError(f"Node {node} was pruned: choose another, or take that back.")
    return places.index(node)


def token_of(pair: ModelPair, token: int | None, text: str | None) -> int:
    """A token chosen by its id, or typed as it is shown: `␣the`, or `#17` for an id."""
    if token is not None:
        return token
    written = text or ""
    if not written:
        raise PromptError("No token is chosen: choose one from the list, or type it.")
    if written.startswith("#") and written[1:].isdecimal():
        return int(written[1:])
    if pair.tokenizer is None:
        raise PromptError("These models have no tokenizer: type a token id such as #17.")
    plain = written.replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t")
    ids = list(pair.tokenizer(plain, add_special_tokens=False)["input_ids"])
    if len(ids) != 1:
        pieces = ", ".join(repr(pair.token_text(piece)) for piece in ids[:6])
        raise PromptError(f"{written!r} is {len(ids)} tokens ({pieces}): add one after the other.")
    return int(ids[0])


def comparison(mine: Step, theirs: Step) -> str:
    """`By hand 1 token from 14 nodes; DynaTree had 3 from 24.`"""
    count = len(mine.committed)
    tokens = "1 token" if count == 1 else f"{count} tokens"
    name = theirs.settings.get("strategy")
    return f"By hand {tokens} from {len(mine.tree)} nodes; {name} had {len(theirs.committed)} from {len(theirs.tree)}."
