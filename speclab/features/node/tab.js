// The tab Node: the most probable next tokens after the selected node.

import { LOOKS, WORDS } from "../../views/page/data.js";
import { barsFigure } from "../../views/page/bars.js";
import { register } from "../../views/page/features.js";
import { shapeOf } from "../../views/page/phases.js";
import { nodeSentence, plainSentence } from "../../views/page/words.js";
import NODE_WORDS from "./words.json" with { type: "json" };

/**
 * The panels of a node: the target, the plain run if there was a check, the draft if it is
 * recorded.
 * @param {Step} step
 */
function panelsOf(step) {
  return [
    "p",
    ...(step.plain.length ? ["plain"] : []),
    ...(step.missing.includes("log_prob") ? [] : ["q"])
  ];
}

/**
 * The most probable next tokens after a node, for the target and for the draft.
 * @param {Step} step
 * @param {number} node
 */
export function nodeFigure(step, node) {
  const record = step.nodes[node];
  const target = new Map(record.target_top);
  const draft = new Map(record.draft_top);
  const children = new Map();
  for (const child of [...shapeOf(step.tree).children[node]].reverse())
    children.set(step.nodes[child].token, child);
  for (const [token, child] of children) {
    const { draft_prob, target_prob } = step.nodes[child];
    if (!step.missing.includes("log_prob") && !draft.has(token)) draft.set(token, draft_prob);
    if (target_prob !== null && !target.has(token)) target.set(token, target_prob);
  }
  const notes = new Map();
  for (const [token, child] of children)
    notes.set(token, `node ${child} ${LOOKS.nodes[step.nodes[child].verdict].sign}`);
  if (record.target_choice !== -1) {
    const chosen = `${notes.get(record.target_choice) ?? ""} ${WORDS.bars.chosen}`.trim();
    notes.set(record.target_choice, chosen);
  }
  /** @type {Record<string, Map<number, number>>} */
  const known = { p: target, plain: new Map(step.plain[node] ?? []), q: draft };
  const panels = panelsOf(step).map(name => ({ name, probs: known[name] }));
  const sentence = [nodeSentence(step, node), plainSentence(step, node)].filter(Boolean).join(" ");
  return barsFigure(step, panels, notes, children, sentence);
}

register(
  {
    name: "node",
    page: () => ({
      tab: true,
      parts(tab, state, { step }) {
        if (tab !== "node" || !step) return [];
        const node = state.node ?? 0;
        return [nodeSentence(step, node), Number.isInteger(node) ? nodeFigure(step, node) : null];
      }
    })
  },
  NODE_WORDS
);
