"""Trees built by hand: parse nodes and tokens, and compare the result with the strategy's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from speclab.drafters.by_hand import TreeEdit
from speclab.errors import NotRecordedError, PromptError, SettingsError
from speclab.lab.state import LabState
from speclab.trace.records import Step
from speclab.views.preview import preview

if TYPE_CHECKING:
    from speclab.pair import ModelPair


class Editor:
    """The edits of the current tree, newest last, shown as a preview."""

    def __init__(self, state: LabState, pair: Callable[[], ModelPair | None]) -> None:
        self._state = state
        self._pair = pair
        self._edits: list[TreeEdit] = []
        self._step: Step | None = None

    def tree(self) -> tuple[TreeEdit, Step]:
        """The edited tree, and the iteration where the editing began."""
        step = self._state.step
        if step is None or not self._state.live:
            raise SettingsError("There is no tree to edit: Step decodes the first iteration.")
        if step.root_choice is not None:
            raise NotRecordedError(
                "The root of this tree was drafted; a tree built by hand starts at the newest "
                "token."
            )
        if not self._edits:
            self._edits = [TreeEdit.of(step)]
            self._step = step
        return self._edits[-1], step

    def add(self, node: int | str, token: int | None = None, text: str | None = None) -> None:
        """Add a child to a node, by token id or as typed."""
        edit, _ = self.tree()
        pair = self._pair()
        assert pair is not None
        self._show(edit.add(index_in(edit, node), token_of(pair, token, text)))

    def prune(self, node: int | str) -> None:
        """Remove a node and its descendants."""
        edit, _ = self.tree()
        self._show(edit.prune(index_in(edit, node)))

    def undo(self) -> None:
        """Undo the last edit."""
        if len(self._edits) > 2:
            self._edits.pop()
            self._show(self._edits.pop())
        else:
            self.leave()

    def place(self) -> None:
        """Drop the edits if another iteration is shown."""
        if self._step is not None and self._step is not self._state.step:
            self.leave()

    def leave(self) -> None:
        """Drop all edits."""
        if self._edits:
            self._edits = []
            self._step = None
            self._state.preview(None)

    def _show(self, edit: TreeEdit) -> None:
        pair = self._pair()
        step = self._step
        assert pair is not None
        assert step is not None
        self._edits.append(edit)
        words = f"By hand: {len(edit.tree)} nodes; {step.settings.get('strategy')} had {len(step.tree)}."
        named = replace(step, texts={**step.texts, **pair.token_texts(edit.tree.token.tolist())})
        sentence = f"{words} Nothing is verified yet."
        self._state.preview(preview(named, edit.tree, recorded_nodes(edit), sentence))


def recorded_nodes(edit: TreeEdit) -> list[int | None]:
    """For each node of the edited tree, the same node of the iteration; None if it is new."""
    return [edit.recorded(node) for node in range(len(edit.tree))]


def index_in(edit: TreeEdit, node: int | str) -> int:
    """Convert the page's name of a node, a number of the iteration or "new 3", to its number in the edited tree."""
    if isinstance(node, str):
        return int(node.removeprefix("new "))
    places = recorded_nodes(edit)
    if node not in places:
        raise SettingsError(f"Node {node} was pruned: choose another, or undo.")
    return places.index(node)


def token_of(pair: ModelPair, token: int | None, text: str | None) -> int:
    """Parse a token: an id, or a text as displayed (`␣the`, or `#17` for an id)."""
    if token is not None:
        return token
    written = text or ""
    if not written:
        raise PromptError("Choose a token from the list, or type one.")
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


def against(new: Step, old: Step) -> str:
    """Compare two iterations: `14 nodes instead of 24, 3 accepted`."""
    counts = (
        ("nodes", len(new.tree), len(old.tree)),
        ("accepted", len(new.accepted), len(old.accepted)),
    )
    return ", ".join(
        f"{now} {what}" + (f" instead of {was}" if now != was else "") for what, now, was in counts
    )
