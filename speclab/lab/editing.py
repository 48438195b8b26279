"""Editing an iteration's tree by hand: children from a top-k or typed, prune, force, the mask, undo, and Verify."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from ipywidgets import HTML, Dropdown, HBox, Text, VBox

from speclab.analysis.whatif import in_force, what_if
from speclab.drafters.by_hand import ByHand, TreeEdit
from speclab.errors import NotRecordedError, PromptError, SettingsError, SpeclabError
from speclab.lab.actions import Actions, action
from speclab.lab.models import token_ids
from speclab.lab.state import LabState
from speclab.lab.widgets import button, on_change, set_if_changed, set_visible, toggle
from speclab.trace.metrics import Counts
from speclab.trace.records import Adaptation, NodeRecord, Step
from speclab.tree import DraftTree
from speclab.views.explain import percent, plural
from speclab.views.markup import escape, label, quoted, tag
from speclab.views.playback import PlaybackPosition
from speclab.views.registry import Frame

TREE, ROOT, NEXT = "this iteration's tree", "this iteration, from its root", "the next iteration, from its root"
NOTHING = -1
"""No choice, in a list: it cannot show an option whose value is None."""


class TreeEditor(VBox):
    """The button that opens it stands elsewhere: `toggle`. What is edited stays through errors and moves, until Verify.

    While a tree is edited, `state.frame.edited` is what the stage shows.
    """

    def __init__(self, state: LabState, actions: Actions) -> None:
        self._state, self._actions = state, actions
        self._edits: tuple[TreeEdit, ...] = ()
        self._place: tuple[object, ...] = ()
        """What the edits began from."""
        self._base: Step | None = None
        """The iteration that was decoded in this place, if one was."""
        self._index, self._texts = 0, dict[int, str]()
        self.toggle = toggle("edit", "Edit", "build this iteration's tree by hand", self._toggled)
        self.start = Dropdown(options=[TREE, ROOT, NEXT], description="begin with", tooltip="what the tree grows from")
        super().__init__(_dom_classes=["speclab-editor"])
        on_change(self.start, self._begun)
        set_visible(self, visible=False)

    def _build(self) -> None:
        """The controls: made when a tree is first edited."""
        ask = self._actions.ask
        self.child = Dropdown(options=[("–", NOTHING)], description="child", tooltip="what follows the selected node")
        self.typed = Text(placeholder="or a token: ␣the, #17", tooltip="one token, as its text or its id")
        self.add = button("edit-add", "Add", "as a child of the selected node", "", lambda: ask(self._add))
        self.prune = button("edit-prune", "Prune", "the selected node and all below", "", lambda: ask(self._prune))
        self.force = button("edit-force", "Force", "the text goes on from this token", "", lambda: ask(self._force))
        self.column = Dropdown(
            options=[("–", NOTHING)], description="row sees", tooltip="a cell of the selected node's row of the mask"
        )
        self.flip = button("edit-flip", "Show / hide", "flips this cell of the mask", "", lambda: ask(self._flip))
        self.undo = button("edit-undo", "Undo", "takes the last edit back", "", lambda: ask(self._undo))
        self.verify = button("edit-verify", "Verify", "one target pass", "", lambda: ask(self._verify), "primary")
        self.said = HTML()
        rows = [
            [self.start, self.child, self.typed, self.add, self.prune, self.force],
            [self.column, self.flip, self.undo, self.verify, self.said],
        ]
        self.children = [HBox(row).add_class("speclab-files") for row in rows]

    def update(self, frame: Frame) -> None:
        """Shows what can be done with the selected node; nothing where no tree is edited."""
        shown = frame.edited is not None and not frame.asked
        if self.toggle.disabled is not frame.asked:
            self.toggle.disabled = frame.asked
        if not shown and self.layout.display == "none":
            return
        if not self.children:
            self._build()
        set_if_changed(self.toggle, value=shown)
        set_visible(self, visible=shown)
        if not shown:
            return
        edit, node = self._edits[-1], frame.selected
        options = [("–", NOTHING)] if node is None else self._children(edit, node)
        set_if_changed(self.child, options=tuple(options))
        cells, column = tuple(self._cells(edit, node)), self.column.value
        set_if_changed(self.column, options=cells)
        set_if_changed(self.column, value=column if any(column == cell for _, cell in cells) else cells[0][1])
        set_if_changed(self.undo, disabled=len(self._edits) < 2)
        set_if_changed(self.said, value=tag("span", escape(self._counted(edit, node)), role="status"))

    @action()
    def flip_cell(self, row: int, column: int) -> None:
        """A cell of the mask, as it is clicked; of the prefix every row sees all."""
        if column < 0:
            raise SettingsError("Every row sees the whole prefix: only cells between nodes can be redrawn.")
        if self._state.frame.edited is not None and not self._state.frame.asked:
            self._changed(self._edits[-1].show(row, column), row)

    def _begun(self, start: str) -> None:
        if self.toggle.value:
            self._actions.ask(self._open, start)

    # What the controls do, on the worker's thread.

    def _toggled(self, wanted: bool) -> None:
        if wanted != (self._state.frame.edited is not None):
            self._actions.ask(self._open if wanted else self._close, self.start.value)

    @action(key="edit")
    def _open(self, start: str) -> None:
        """Begins, or goes on with what was edited here before."""
        frame = self._state.frame
        try:
            if not frame.trace.prompt_ids:
                raise SettingsError("There is no text yet: Step decodes the first iteration, then its tree is edited.")
            index = frame.cursor if start == NEXT else max(frame.cursor - 1, 0)
            base = frame.trace.steps[index] if index < frame.cursor else None
            text = frame.trace.token_ids(index)
            drafted = () if base is None else (*base.tree.token.tolist(), *base.tree.parent.tolist())
            place = start, index, text, drafted
            if place != self._place:
                known = base if base is not None and base.root_choice is None else None
                root = TreeEdit(DraftTree.root(text[-1]), step=known)
                self._edits = (TreeEdit.of(base) if start == TREE and base is not None else root,)
                self._place, self._base, self._index = place, base, index
            self._texts |= {**frame.trace.texts, **(base.texts if base is not None else {})}
            self._show(0)
        except SpeclabError:
            set_if_changed(self.toggle, value=frame.edited is not None)
            raise

    @action(key="edit")
    def _close(self, _: str = "") -> None:
        self._actions.controller.leave_edit()

    @action()
    def _add(self) -> None:
        node = self._selected()
        edit = self._edits[-1].add(node, self._token())
        self._changed(edit, node)

    @action()
    def _prune(self) -> None:
        node = self._selected()
        self._changed(self._edits[-1].prune(node), int(self._edits[-1].tree.parent[node]))

    @action()
    def _force(self) -> None:
        self._changed(self._edits[-1].force(self._token()), 0)

    @action()
    def _flip(self) -> None:
        if self.column.value == NOTHING:
            raise SettingsError("No cell is chosen: select a node for the row, and choose its cell from the list.")
        self.flip_cell(self._selected(), self.column.value)

    @action()
    def _undo(self) -> None:
        if len(self._edits) > 1:
            self._edits = self._edits[:-1]
            self._show(0)

    @action("verifying", "apply")
    def _verify(self) -> None:
        edit, base, frame = self._edits[-1], self._base, self._state.frame
        if frame.edited is None:
            raise SettingsError("No tree is edited: press Edit, then Verify.")
        try:
            step = self._actions.controller.verify(edit, self._index)
        except SpeclabError:
            self._show(frame.selected or 0)
            raise
        if base is None or self._state.frame.asked:
            return
        if base.root_choice is not None or base.tree.token[0] == step.tree.token[0]:
            self._state.status = comparison(step, base)

    def _selected(self) -> int:
        node = self._state.selected
        if node is None or self._state.frame.edited is None:
            raise SettingsError("No node is selected: click one in the tree, or go to it with the arrow keys.")
        return int(node)

    def _token(self) -> int:
        """The token that is typed, else the one chosen from the list."""
        written, pair = self.typed.value, self._actions.controller.loaded
        if not written:
            if self.child.value == NOTHING:
                raise PromptError("No token is chosen: take one from the list, or type its text, or its id as #17.")
            return int(self.child.value)
        if pair is None:
            raise PromptError("A recording holds no tokenizer: choose a child from the list, or press Run live first.")
        if not written.strip("#, "):
            raise PromptError("Nothing but spaces is typed: write a space that begins a token as ␣, or an id as #17.")
        ids = token_ids(pair, written)
        if len(ids) != 1:
            texts = ", ".join([repr(pair.token_text(one)) for one in ids[:6]])
            raise PromptError(f"{written!r} is {len(ids)} tokens, {texts}: add one after the other.")
        self._texts |= pair.token_texts(pair.encode(ids))
        return ids[0]

    # What is shown.

    def _changed(self, edit: TreeEdit, select: int) -> None:
        self._edits = (*self._edits, edit)
        set_if_changed(self.typed, value="")
        self._show(select)

    def _show(self, select: int) -> None:
        frame, edit = self._state.frame, self._edits[-1]
        tokens = len(frame.trace.prompt_ids) + len(frame.trace.token_ids(self._index))
        step = sketch(edit, self._index, tokens - 1, self._texts)
        drafted = PlaybackPosition("flatten")
        self._state.update(
            status=f"Iteration {self._index + 1} is edited by hand: nothing is verified yet.",
            frame=replace(frame, edited=step, position=drafted, selected=select, redone=None, draw=None),
        )

    def _children(self, edit: TreeEdit, node: int) -> list[tuple[str, int]]:
        """What the draft and the target found most probable after a node, as far as the iteration recorded it."""
        place = edit.recorded(node)
        if place is None or edit.step is None:
            return [("not recorded: type a token", NOTHING)]
        record, there = edit.step.nodes[place], {int(edit.tree.token[child]) for child in edit.tree.children[node]}
        tops = (("draft", record.draft_top), ("target", record.target_top))
        found = [
            (f"{who} {percent(prob)} {quoted(token, edit.step.texts)}", token)
            for who, top in tops for token, prob in top if token not in there
        ]  # fmt: skip
        return found or [("all of them are there: type a token", NOTHING)]

    def _cells(self, edit: TreeEdit, node: int | None) -> list[tuple[str, int]]:
        if node is None:
            return [("–", NOTHING)]
        mask = edit.tree.ancestor_mask() if edit.mask is None else edit.mask
        return [
            (f"{column} {label(int(token), self._texts)}: {'seen' if mask[node, column] else 'hidden'}", column)
            for column, token in enumerate(edit.tree.token)
        ]

    def _counted(self, edit: TreeEdit, node: int | None) -> str:
        said, base = plural(len(edit.tree), "node"), self._base
        if base is not None:
            said += f"; {base.settings.get('strategy')} had {len(base.tree)}"
        if edit.flipped:
            said += f"; {plural(len(edit.flipped), 'cell')} of the mask redrawn"
        return said + (f"; node {node} is selected." if node is not None else "; no node is selected.")


def sketch(edit: TreeEdit, index: int, prefix_length: int, texts: dict[int, str]) -> Step:
    """A tree that is not verified yet, as an iteration that ends where its mask is made."""
    tree, n = edit.tree, len(edit.tree)
    probs = zip(tree.token.tolist(), np.exp(tree.log_prob).tolist(), np.exp(tree.path_log_prob).tolist(), strict=True)
    nodes = tuple(
        NodeRecord(at, token, prob, path, None, token, "not reached" if at else "root", "", prefix_length + at, 0.0)
        for at, (token, prob, path) in enumerate(probs)
    )  # fmt: skip
    return Step(
        index=index, prefix_length=prefix_length, tree=tree, nodes=nodes, accepted=(), committed=(), bonus=None,
        root_choice=None, settings=ByHand().describe(), events=(), caches=(), seconds={}, adaptation=Adaptation(""),
        counts=Counts(drafted=n - 1), mask=tree.ancestor_mask() if edit.mask is None else edit.mask,
        prefix_seen=(prefix_length,) * n, texts={token: texts.get(token, f"#{token}") for token in tree.token.tolist()},
    )  # fmt: skip


def comparison(mine: Step, theirs: Step) -> str:
    """Tokens committed by hand against those of another iteration in its place, and at as many nodes where known."""
    name, nodes, others = theirs.settings.get("strategy"), len(mine.tree), len(theirs.tree)
    said = f"By hand {plural(len(mine.committed), 'token')} from {plural(nodes, 'node')}; {name} had "
    if nodes == others:
        return f"{said}{len(theirs.committed)} from as many."
    said += f"{len(theirs.committed)} from {others}"
    try:
        strategy = in_force(theirs)
        if "node_budget" not in type(strategy).model_fields:
            raise NotRecordedError("it has no budget")
        found = what_if(theirs, strategy.changed(node_budget=nodes))
    except SpeclabError:
        return f"{said}."
    if not found.settled or found.unknown:
        return f"{said}; what it would have had from {nodes} is not recorded."
    tokens = len(found.accepted) + (found.bonus is not None)
    return f"{said}, and would have had {tokens} with a budget of {nodes}."
