// The trees that two drafts proposed and that were not verified as they are, beside the tree.

import { register } from "../../views/page/features.js";
import { shapeOf } from "../../views/page/phases.js";
import { anyTreeFigure } from "../../views/page/tree.js";
import { words } from "../../views/page/words.js";

/**
 * The proposed trees that were not verified as they are, one below the other; null without any. The
 * target has judged none of them.
 * @param {Step} step
 */
export function draftsFigure(step, width = 500) {
  const others = step.proposals.filter(
    ({ chosen, tree }) => !chosen || tree.token.length !== step.nodes.length
  );
  if (!others.length) return null;
  /** @type {OtherNode[]} */
  const nodes = [];
  for (const { name, tree } of others) {
    const { pathProb } = shapeOf(tree);
    tree.token.forEach((token, node) => {
      const [id, parent] = [node, tree.parent[node]].map(one => (one < 0 ? -1 : `${name} ${one}`));
      const kind = node ? "not reached" : "root";
      const text = step.texts[token];
      nodes.push({ id, parent, text, path_prob: pathProb[node], kind, accepted: false });
    });
  }
  const figure = anyTreeFigure(nodes, { width });
  figure.layout.meta.caption = others
    .map(other => words("drafts", other.chosen ? "merged" : "other", other))
    .join("; ");
  return figure;
}

register({ name: "routes", page: () => ({ second: draftsFigure }) });
