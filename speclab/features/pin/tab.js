// The same iteration before its settings were changed, in one tree with the one decoded again: what
// was drafted before is struck out, what is new is marked.

import { WORDS } from "../../views/page/data.js";
import { button } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { WHOLE, shapeOf } from "../../views/page/phases.js";
import { overlayShown, stepShown } from "../../views/page/state.js";
import { attach, drawingAt } from "../../views/page/tree.js";
import PIN_WORDS from "./words.json" with { type: "json" };

/**
 * An iteration over the same one before.
 * @param {Step} before
 * @param {Step} step
 * @returns {Drawing}
 */
export function against(before, step) {
  const drawing = drawingAt(step, WHOLE);
  const { children } = shapeOf(step.tree);
  const { pathProb } = shapeOf(before.tree);
  const { token: tokens, parent: parents } = before.tree;
  /** @type {NodeId[]} */
  const places = []; // of each node before, the same node now, or one that is struck out
  tokens.forEach((token, node) => {
    const above = places[parents[node]] ?? -1;
    const same =
      above === -1 ? 0 : children[above]?.find(child => step.tree.token[child] === token);
    places[node] = same ?? `gone ${node}`;
    if (same !== undefined) return;
    attach(drawing.graph, places[node], token, before.texts, above, pathProb[node]);
    drawing.kinds[places[node]] = "gone";
  });
  for (const { index, verdict } of step.nodes)
    if (!places.includes(index) && verdict !== "accepted") drawing.kinds[index] = "new";
  return drawing;
}

register(
  {
    name: "pin",
    state: { against: true },
    overlay({ pinned, against: on }, step) {
      const other = pinned?.step;
      return on && other?.index === step.index && other !== step ? against(other, step) : null;
    },
    page: ({ dispatch }) => ({
      besideStory(state) {
        const { pinned, against: on } = state;
        if (pinned?.step?.index !== stepShown(state)?.index) return [];
        if (on && overlayShown(state)?.says) return []; // a preview
        const flip = () => dispatch({ type: "set", values: { against: !on } });
        const look = { ...WORDS.controls.against, "aria-pressed": String(on) };
        return [button(WORDS.pinned.against, look, flip)];
      }
    })
  },
  PIN_WORDS
);
