// The tree built by hand: its controls in the tab Settings.

import { WORDS } from "../../views/page/data.js";
import { asks, button, div, made, shows, span } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { OWN } from "../../views/page/phases.js";
import { stepShown } from "../../views/page/state.js";
import { labelOf } from "../../views/page/text.js";
import BY_HAND_WORDS from "./words.json" with { type: "json" };

/** The row of the node picked in the tree being edited; -1 without one. @param {State} state */
function editedRow({ node, preview, status }) {
  if (node === null || node === OWN) return -1;
  if (typeof node === "string") return Number(node.slice(4)); // new 12
  return status.by_hand ? preview.what_if.recorded.indexOf(node) : node;
}

/**
 * What the draft proposed after the selected node and is not its child yet, best first.
 * @param {State} state
 */
export function freeTokens(state) {
  const step = stepShown(state);
  const { tree } = state.status.by_hand ? state.preview.what_if : step;
  const row = editedRow(state);
  const taken = tree.token.filter((_, node) => tree.parent[node] === row);
  const top = step.nodes[state.node]?.draft_top ?? [];
  return top.map(([token]) => token).filter(token => !taken.includes(token));
}

/** @param {Context} context */
function byHandOf({ state, send }) {
  const child = made("select", WORDS.controls.child);
  const typed = made("input", WORDS.controls.token);
  const hint = span("sl-muted");
  /** @param {{do: "add", token: number | null, text: string | null} | {do: "prune"}} message */
  const tell = message => send({ ...message, node: editedRow(state()) });
  const add = button("Add", {}, () =>
    tell(
      child.value && !typed.value
        ? { do: "add", token: Number(child.value), text: null }
        : { do: "add", token: null, text: typed.value }
    )
  );
  const prune = button("Prune", {}, () => tell({ do: "prune" }));
  const undo = asks(send, "Undo", { do: "undo" });
  const verify = asks(send, "Verify", { do: "verify" }, WORDS.controls.verify);
  const name = made("b", {}, "By hand");
  const element = div("sl-byhand", name, hint, child, typed, add, prune, undo, verify);
  /** @param {State} now */
  const update = now => {
    const step = stepShown(now);
    const off = !step || Boolean(now.status.busy || now.gone);
    const picked = editedRow(now) >= 0;
    const top = picked ? freeTokens(now) : [];
    hint.textContent = picked
      ? `a child of node ${now.node}:`
      : "Select a node of the tree, then add a child or prune it.";
    if (!shows(child, [now.node, top.join()]))
      child.replaceChildren(
        ...top.map(token => made("option", { value: token }, labelOf(token, step.texts)))
      );
    child.hidden = !top.length;
    typed.hidden = !picked;
    add.disabled = prune.disabled = !picked || off;
    undo.disabled = verify.disabled = off || !now.status.by_hand;
  };
  return { element, update };
}

/** @param {Context} context @returns {Partial<FeaturePage>} */
function byHandPage(context) {
  if (!context.live) return {};
  const { element, update } = byHandOf(context);
  return { update, parts: tab => (tab === "settings" ? [element] : []) };
}

register({ name: "by_hand", page: byHandPage }, BY_HAND_WORDS);
