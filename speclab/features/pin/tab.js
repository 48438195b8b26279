// A pinned iteration beside the one shown.

import { register } from "../../views/page/features.js";
import { kindsAt } from "../../views/page/phases.js";
import { treesBeside } from "../../views/page/trees.js";
import { stepGraph, treeTable } from "../../views/page/tree.js";
import { words } from "../../views/page/words.js";

/**
 * An iteration and the same one decoded again, side by side.
 * @param {Step} before
 * @param {Step} after
 * @param {[string, string]} names
 */
export function pairFigure(before, after, names = ["before", "decoded again"], width = 1040) {
  const trees = [before, after].map((step, index) => {
    const values = { ...step.counts, name: names[index], accepted: step.accepted.length };
    const title = words("drafts", "pair", values);
    return { table: treeTable(stepGraph(step), kindsAt(step), 64), title };
  });
  return treesBeside(trees, width);
}

register({
  name: "pin",
  page: () => ({
    parts(tab, { pinned }, { step, width }) {
      const other = pinned?.step;
      if (!other || !step) return [];
      if (tab !== "compare" && !(tab === "settings" && other.index === step.index)) return [];
      return [pairFigure(other, step, ["before", "shown"], width)];
    }
  })
});
