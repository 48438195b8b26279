"""Trees built by hand: add and prune nodes of the tree shown, and verify the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.drafters.by_hand import ByHand, TreeEdit
from speclab.errors import NotRecordedError, PromptError, SettingsError
from speclab.lab.messages import to_page
from speclab.lab.runs import Runs
from speclab.trace.records import Step
from speclab.views.run_data import tree_data

if TYPE_CHECKING:
    from speclab.pair import ModelPair


class Editor:
    """The edits of the current tree, newest last, shown as a preview."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._state = runs.state
        self._edits: list[TreeEdit] = []
        self._step: Step | None = None

    @property
    def edit(self) -> TreeEdit | None:
        """The edited tree; None while nothing is edited."""
        return self._edits[-1] if self._edits else None

    def add(self, node: int | str, token: int | None = None, text: str | None = None) -> None:
        """Add a child to a node, by token id or as typed."""
        edit = self._begin()
        assert self._runs.pair is not None
        self._show(edit.add(index_in(edit, node), token_of(self._runs.pair, token, text)))

    def prune(self, node: int | str) -> None:
        """Remove a node and its descendants."""
        edit = self._begin()
        self._show(edit.prune(index_in(edit, node)))

    def undo(self) -> None:
        """Undo the last edit."""
        if len(self._edits) > 2:
            self._edits.pop()
            self._show(self._edits.pop())
        else:
            self.leave()

    def verify(self) -> Step:
        """Verify the tree built by hand in a fork; afterwards the strategy goes on."""
        if not self._state.edited:
            raise SettingsError("The tree was not edited: add or prune a node first.")
        edit = self._begin()
        old = self._step
        session = self._runs.session
        config = self._state.applied
        assert old is not None
        assert session is not None
        assert config is not None
        by_hand = self._runs.working = session.fork(old.index, strategy=ByHand())
        try:
            step = by_hand.verify(edit)
        finally:
            self._runs.working = None
        name = type(config.strategy).__name__
        fork = by_hand.fork(strategy=config.strategy)
        self._runs.take(fork, config, old.index, f"by hand, then {name}")
        self.leave()
        self._state.message = comparison(step, old)
        return step

    def place(self) -> None:
        """Drop the edits if another iteration is shown."""
        if self._step is not None and self._step is not self._state.step:
            self.leave()

    def leave(self) -> None:
        """Drop all edits."""
        if self._edits:
            self._edits = []
            self._step = None
            self._state.edited = False
            self._state.hide("preview")

    def _begin(self) -> TreeEdit:
        """The edited tree; at first the tree of the iteration shown."""
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
        return self._edits[-1]

    def _show(self, edit: TreeEdit) -> None:
        pair = self._runs.pair
        assert pair is not None
        assert self._step is not None
        self._edits.append(edit)
        self._state.edited = True
        texts = pair.token_texts(edit.tree.token.tolist())
        data = {
            **tree_data(edit.tree, recorded_nodes(edit)),
            "texts": {str(token): text for token, text in texts.items()},
            "by": "hand",
        }
        self._state.show(to_page("preview", index=self._step.index, what_if=data))


def recorded_nodes(edit: TreeEdit) -> list[int | None]:
    """For each node of the edited tree, the same node of the iteration; None if it is new."""
    return [edit.recorded(node) for node in range(len(edit.tree))]


def index_in(edit: TreeEdit, node: int | str) -> int:
    """Convert the page's name of a node, a number of the iteration or "new 3", to its number in the edited tree."""
    if isinstance(node, str):
        number = node.removeprefix("new ")
        if not number.isdecimal() or int(number) >= len(edit.tree):
            raise SettingsError("Select a node of the tree first.")
        return int(number)
    nodes = recorded_nodes(edit)
    if node not in nodes:
        raise SettingsError(f"Node {node} was pruned: choose another, or undo.")
    return nodes.index(node)


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
    """`By hand 1 token from 13 drafted nodes; DynaTree had 3 from 23.`"""
    count = len(mine.committed)
    tokens = "1 token" if count == 1 else f"{count} tokens"
    name = theirs.settings.get("strategy")
    return (
        f"By hand {tokens} from {len(mine.tree) - 1} drafted nodes; {name} had "
        f"{len(theirs.committed)} from {len(theirs.tree) - 1}."
    )
