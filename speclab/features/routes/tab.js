// The trees that two drafts proposed and that were not verified as they are, beside the tree.

import { register } from "../../views/page/features.js";
import { WHOLE, reached, shapeOf } from "../../views/page/phases.js";
import { treesBeside } from "../../views/page/trees.js";
import { graphOf, treeTable } from "../../views/page/tree.js";
import { words } from "../../views/page/words.js";

/**
 * The proposed trees that were not verified as they are, side by side; null without any. From the
 * commit on, nodes that the text follows count as accepted, others as rejected or not reached.
 * @param {Step} step
 * @param {Position} position
 */
export function draftsFigure(step, position = WHOLE, width = 1040) {
  const trees = step.proposals
    .filter(({ chosen, tree }) => !chosen || tree.token.length !== step.nodes.length)
    .map(({ name, confidence, tree }) => {
      const followed = reached(position, "commit") ? step.committed : [];
      const kinds = followedKinds(followed, tree);
      const path = Object.keys(kinds)
        .map(Number)
        .filter(node => kinds[node] === "accepted");
      const title = words("drafts", "other", { name, confidence });
      return { table: treeTable(graphOf(tree, step.texts, path), kinds, 16), title };
    });
  return trees.length ? treesBeside(trees, width) : null;
}

/**
 * Verdicts of a tree that was not verified, as far as the committed text tells.
 * @param {number[]} committed
 * @param {Columns} tree
 * @returns {Kinds}
 */
function followedKinds(committed, tree) {
  const { depth } = shapeOf(tree);
  /** @type {Record<string, string>} */
  const kinds = { 0: "root" };
  tree.parent.forEach((parent, node) => {
    if (parent < 0) return;
    const reachedHere =
      ["root", "accepted"].includes(kinds[parent]) && depth[node] <= committed.length;
    kinds[node] = "not reached";
    if (reachedHere)
      kinds[node] = tree.token[node] === committed[depth[node] - 1] ? "accepted" : "rejected";
  });
  return kinds;
}

register({ name: "routes", page: () => ({ second: draftsFigure }) });
