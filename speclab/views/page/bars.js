// Distributions over tokens as horizontal bars.

import { LOOKS, WORDS } from "./data.js";
import { layoutOf, noteAt } from "./figure.js";
import { clip, labelOf, percent, plotText } from "./text.js";

const BARS = 9; // most tokens: the children, the target's choice, then the most probable ones
const PANELS = ["p", "q", "residual", "plain"];

/**
 * Horizontal bars, one panel per distribution, the same tokens in each, the most probable first.
 * @param {Step} step
 * @param {{name: string, probs: Map<number, number>}[]} panels
 * @param {Map<number, string>} notes
 * @param {Map<number, number>} nodes
 * @param {string} sentence
 */
export function barsFigure(step, panels, notes, nodes, sentence) {
  const probs = panels.map(panel => panel.probs);
  const tokens = shownTokens(probs, notes);
  const y = tokens.map((_, place) => place);
  /** @type {Record<string, any>} */
  const axes = {};
  /** @type {Values[]} */
  const annotations = [];
  const data = panels.map(({ name, probs: values }, number) => {
    const key = number ? String(number + 1) : "";
    const start = number / panels.length;
    const end = (number + 0.8) / panels.length;
    axes[`xaxis${key}`] = { ...LOOKS.layouts.node.xaxis, domain: [start, end] };
    annotations.push(noteAt(WORDS.bars[name], start, 1));
    return {
      ...LOOKS.traces.bars,
      x: tokens.map(token => values.get(token) ?? null),
      y,
      xaxis: `x${key}`,
      text: tokens.map(token => (values.has(token) ? percent(values.get(token)) : "")),
      customdata: tokens.map(token => nodes.get(token) ?? null),
      marker: { color: LOOKS.sources[PANELS.indexOf(name)] }
    };
  });
  const yaxis = {
    tickvals: y,
    ticktext: tokens.map(token =>
      plotText(`${notes.get(token) ?? ""}  ${clip(labelOf(token, step.texts), 18)} `)
    ),
    range: [tokens.length - 0.5, -0.5]
  };
  return {
    data,
    layout: layoutOf("node", sentence, {
      height: 60 + 22 * tokens.length,
      annotations,
      yaxis,
      ...axes
    })
  };
}

/**
 * The tokens with notes, and the most probable others.
 * @param {Map<number, number>[]} probs
 * @param {Map<number, string>} notes
 * @returns {number[]}
 */
function shownTokens(probs, notes) {
  const every = new Set([...probs.flatMap(one => [...one.keys()]), ...notes.keys()]);
  /** @param {number} token */
  const most = token => Math.max(...probs.map(one => one.get(token) ?? 0));
  /** @param {number} token */
  const first = token => probs[0].get(token) ?? 0;
  const order = [...every].sort((a, b) => first(b) - first(a) || most(b) - most(a) || a - b);
  const others = order.filter(token => !notes.has(token)).slice(0, Math.max(BARS - notes.size, 3));
  return order.filter(token => notes.has(token) || others.includes(token));
}
