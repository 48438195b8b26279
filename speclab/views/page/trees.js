// Several trees side by side.

import { LOOKS } from "./data.js";
import { layoutOf, noteAt } from "./figure.js";
import { plotText } from "./text.js";
import { columnWidths, rowsOf, treeTraces } from "./tree.js";

/**
 * Trees side by side on the same columns, each below its title.
 * @param {{table: Entry[], title: string}[]} trees
 * @param {number} width
 */
export function treesBeside(trees, width) {
  const [gap, pitch, top] = [24, 24, 44];
  const room = Math.floor((width - gap * (trees.length - 1)) / trees.length);
  const every = trees.flatMap(tree => tree.table);
  const rows = rowsOf(every);
  const widths = columnWidths(every);
  /** @type {Values[]} */
  const data = [];
  /** @type {Values} */
  const axes = {};
  const annotations = trees.map(({ table, title }, number) => {
    const key = number ? String(number + 1) : "";
    const own = treeTraces(table, { width: room, height: pitch * rows, widths });
    data.push(...own.data.map(trace => ({ ...trace, xaxis: `x${key}`, yaxis: `y${key}` })));
    const start = (number * (room + gap)) / width;
    const domain = [start, start + room / width];
    const { xaxis, yaxis } = LOOKS.layouts.trees;
    axes[`xaxis${key}`] = { ...xaxis, ...own.axes.xaxis, domain, anchor: `y${key}` };
    axes[`yaxis${key}`] = { ...yaxis, range: [rows - 0.5, -0.5], anchor: `x${key}` };
    return noteAt(`<b>${plotText(title)}</b>`, start, 1, { yshift: 6 });
  });
  const sentence = `${trees.map(tree => tree.title).join("; ")}.`;
  return {
    data,
    layout: layoutOf("trees", sentence, {
      width,
      height: pitch * rows + top + 4,
      annotations,
      ...axes
    })
  };
}
