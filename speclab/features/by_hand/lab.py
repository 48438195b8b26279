"""The tree built by hand in the lab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.drafters.by_hand import ByHand
from speclab.errors import PromptError, SettingsError
from speclab.lab._commands import command
from speclab.lab._parts import Part
from speclab.trace.edit import TreeEdit
from speclab.views.run_data import tree_data

if TYPE_CHECKING:
    from speclab.lab._runs import Runs
    from speclab.pair import ModelPair
    from speclab.trace.records import Step

_PLAIN = str.maketrans("␣⏎⇥", " \n\t")
"""How the page writes white space."""


class TreeByHand(Part):
    """The edits of the tree shown, newest last."""

    def __init__(self, runs: Runs) -> None:
        super().__init__(runs)
        self._edits: list[TreeEdit] = []

    @command()
    def on_add(self, node: int, token: int | None = None, text: str | None = None) -> None:
        """Add a child to a node of the edited tree, by token id or as typed."""
        edit = self._newest()
        assert self.runs.pair is not None
        self._take(edit.add(node, token_of(self.runs.pair, token, text)))

    @command()
    def on_prune(self, node: int) -> None:
        """Remove a node of the edited tree and its descendants."""
        self._take(self._newest().prune(node))

    @command()
    def on_undo(self) -> None:
        """Undo the last edit."""
        if len(self._edits) > 1:
            self._edits.pop()
            self._take(self._edits.pop())
        else:
            self._leave()

    @command("Verifying")
    def on_verify(self) -> Step:
        """Verify the tree built by hand in a fork; afterwards the strategy goes on."""
        if not self._edits:
            raise SettingsError("The tree was not edited: add or prune a node first.")
        edit = self._edits[-1]
        old = edit.step
        assert old is not None
        session, config = self.runs.live()
        by_hand = self.runs.working = session.fork(old.index, strategy=ByHand())
        try:
            step = by_hand.verify(edit)
        finally:
            self.runs.working = None
        fork = by_hand.fork(strategy=config.strategy)
        name = f"by hand, then {type(config.strategy).__name__}"
        self.runs.add(name, fork.trace, old.index, session=fork, config=config, cursor=fork.cursor)
        for part in self.runs.parts:
            part.decoded_again(old)
        return step

    def moved(self) -> None:
        """Another iteration has another tree."""
        if self._edits and self._edits[-1].step is not self.state.step:
            self._leave()

    def decoded(self) -> None:
        self._leave()

    def free(self) -> None:
        self._edits.clear()

    def _newest(self) -> TreeEdit:
        """The newest edit; at first the tree of the iteration shown."""
        self.runs.live()
        step = self.state.step
        if step is None:
            raise SettingsError("There is no tree to edit: go to an iteration.")
        if self._edits:
            return self._edits[-1]
        return TreeEdit.of(step)

    def _take(self, edit: TreeEdit) -> None:
        """Show an edited tree as a preview."""
        assert self.runs.pair is not None
        assert edit.step is not None
        self._edits.append(edit)
        self.state.by_hand = True
        texts = self.runs.pair.token_texts(edit.tree.token.tolist())
        recorded = [edit.recorded(row) for row in range(len(edit.tree))]
        data = tree_data(edit.tree, recorded)
        data["texts"] = {str(token): text for token, text in texts.items()}
        data["by"] = "hand"
        self.state.show("preview", index=edit.step.index, what_if=data)

    def _leave(self) -> None:
        """Drop the edits."""
        if self._edits:
            self._edits.clear()
            self.state.by_hand = False
            self.state.hide("preview")


PARTS = (TreeByHand,)


def token_of(pair: ModelPair, token: int | None, text: str | None) -> int:
    """Parse a token: an id, or a text as displayed (`␣the`, or `#17` for an id)."""
    if token is not None:
        return token
    if not text:
        raise PromptError("Choose a token from the list, or type one.")
    if text.startswith("#") and text[1:].isdecimal():
        return int(text[1:])
    ids = pair.plain_ids(text.translate(_PLAIN))
    if len(ids) != 1:
        pieces = ", ".join(map(repr, pair.token_texts(ids[:6]).values()))
        raise PromptError(f"{text!r} is {len(ids)} tokens ({pieces}): add one after the other.")
    return int(ids[0])
