// The tree that other settings would have drafted in a recorded step; the record answers for the
// draft model. As __init__.py, where no kernel answers.

import { accept, grow, rulesOf } from "../../live/grow.js";
import { register } from "../../views/page/features.js";
import { WHOLE, shapeOf } from "../../views/page/phases.js";
import { stepShown } from "../../views/page/state.js";
import { overlayOf, treeFigure } from "../../views/page/tree.js";

/**
 * The tree that other settings would have drafted in a step, from its record; null if it cannot
 * answer.
 * @param {Step} step
 * @param {Settings} wanted
 * @returns {Promise<WhatIf | null>}
 */
export async function whatIf(step, wanted) {
  const was = step.settings;
  const rules = rulesOf(
    wanted.node_budget === "auto" ? { ...wanted, node_budget: was.node_budget } : wanted
  );
  // the root would be another token
  const drafted = step.root_choice !== null || wanted.root === "drafted";
  if (
    !rules?.node_budget ||
    !rulesOf(was) ||
    drafted ||
    (wanted.head ?? null) !== (was.head ?? null) ||
    step.tree.candidate_sampling !== "deterministic"
  )
    return null;
  const { children } = shapeOf(step.tree);
  /**
   * @param {(number | null)[]} same of each node, the same node of the step
   * @param {{token: number[], parent: number[]}} tree
   * @param {number} node
   */
  const follow = (same, tree, node) => {
    same[node] ??=
      children[same[tree.parent[node]]]?.find(
        child => step.tree.token[child] === tree.token[node]
      ) ?? null;
    return same[node];
  };
  /** @type {(number | null)[]} */
  const growing = [0];
  /** @param {Growing} tree @param {number[]} nodes */
  const next = async (tree, nodes) =>
    nodes.map(node => step.nodes[follow(growing, tree, node)]?.draft_top ?? []);
  const bound =
    step.events.find(event => event.values.gate === "context")?.values.threshold ?? Infinity;
  const { tree, events, tops } = await grow(rules, next, step.tree.token[0], bound);
  const recorded = [0]; // without pruned nodes, the numbers are others
  tree.token.forEach((_, node) => follow(recorded, tree, node));
  return {
    tree,
    recorded,
    texts: {},
    by: "settings",
    ...answered(step, tree, events, tops, recorded)
  };
}

/**
 * Acceptance by the recorded choices, and where the record ends.
 * @param {Step} step
 * @param {Columns} tree
 * @param {NodeEvent[]} events
 * @param {Tops} tops
 * @param {(number | null)[]} recorded
 */
function answered(step, tree, events, tops, recorded) {
  /** @param {number} node @returns {Values} */
  const before = node =>
    step.events.find(event => event.node === (recorded[node] ?? 0) && event.kind !== "prune")
      ?.values ?? {};
  // a node lacks children if the record holds fewer tokens than it wants, unless the draft proposed
  // no more
  /** @param {NodeEvent} event */
  const lacks = ({ kind, node, values }) => {
    if (values.gate === "blank") return recorded[node] === null || before(node).gate !== "blank";
    const held = tops.get(node)?.length;
    return kind === "expand" && values.branches > held && held >= (before(node).branches ?? 0);
  };
  const unknown = [...new Set(events.filter(lacks).map(event => event.node))].sort((a, b) => a - b);
  const path = accept(tree, node => step.nodes[recorded[node]]?.target_choice ?? -1);
  const ended = step.bonus === null && path.accepted.length >= step.committed.length;
  const accepted = path.accepted.slice(0, ended ? step.committed.length : undefined);
  const last = accepted.at(-1) ?? 0;
  const settled =
    ended ||
    (!unknown.includes(last) && (recorded[last] !== null || !shapeOf(tree).children[last].length));
  return {
    accepted,
    unknown,
    settled,
    bonus: ended || path.bonus < 0 || !settled ? null : path.bonus
  };
}

/** A step, and over it the tree of a what-if. @param {Step} step @param {WhatIf} whatIf */
export function whatIfFigure(step, whatIf) {
  return treeFigure(step, WHOLE, { overlay: overlayOf(step, whatIf) });
}

/**
 * Says of each slider whether its ends draft the same tree as its value, so that it cannot act here.
 * @param {Record<string, any>} cells
 * @param {Values} values
 * @param {Step} step
 */
async function markIdle(cells, values, step) {
  for (const [name, { cell, values: offers }] of Object.entries(cells)) {
    if (!offers) continue;
    const ends = [values[name], offers.find(Number.isFinite), offers.at(-1)];
    const found = await Promise.all(
      ends.map(value => whatIf(step, { ...step.settings, ...values, [name]: value }))
    );
    const trees = new Set(found.map(one => JSON.stringify(one?.tree)));
    cell.classList.toggle("sl-idle", found[0] !== null && trees.size === 1);
  }
}

/**
 * Without a kernel the page itself previews settings, as far as the record answers.
 * @param {Context} context
 * @param {{do: string, strategy?: Wanted["strategy"]}} message
 */
async function previewHere({ state, dispatch, live }, { do: name, strategy }) {
  const step = stepShown(state());
  if (!step || !(strategy || name === "reset")) return;
  const { strategy: own, ...settings } = step.settings;
  const { wanted } = state().status;
  const next = strategy
    ? {
        ...strategy,
        settings: {
          ...(wanted.strategy.name === strategy.name ? wanted.strategy.settings : {}),
          ...strategy.settings
        }
      }
    : { name: own, settings };
  if (!live) dispatch({ type: "status", wanted: { strategy: next } });
  dispatch({
    type: "preview",
    index: step.index,
    what_if: strategy ? await whatIf(step, { strategy: next.name, ...next.settings }) : null
  });
}

register({
  name: "whatif",
  page: context => ({
    sent(message) {
      if (!context.kernel) previewHere(context, message);
    },
    settled: markIdle
  })
});
