// Parts of figures: what does not change stands in looks.json.

import { LOOKS } from "./data.js";

/**
 * The layout of a figure: what looks.json says, with changes.
 * @param {string} name
 * @param {string} sentence for screen readers
 * @param {Record<string, any>} changes
 * @returns {Record<string, any>}
 */
export function layoutOf(name, sentence, changes) {
  const layout = { ...LOOKS.layouts[name], meta: { name, sentence } };
  for (const [key, value] of Object.entries(changes)) {
    const merges = layout[key] && typeof layout[key] === "object";
    layout[key] = merges ? { ...layout[key], ...value } : value;
  }
  return layout;
}

/**
 * A text of a figure, without an arrow.
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {object} more
 */
export function noteAt(text, x, y, more = {}) {
  return { ...LOOKS.note, text, x, y, ...more };
}

/**
 * A heatmap of whole numbers, each in its own colour.
 * @param {number[][]} z
 * @param {string[]} colors
 */
export function codeMap(z, colors) {
  const count = colors.length;
  const colorscale = colors.flatMap((color, code) => [
    [code / count, color],
    [(code + 1) / count, color]
  ]);
  return { ...LOOKS.traces.cells, z, colorscale, zmax: count - 0.5 };
}

/**
 * A frame around a part of a figure.
 * @param {number} x0
 * @param {number} x1
 * @param {number} y0
 * @param {number} y1
 */
export function frameAt(x0, x1, y0, y1) {
  return { type: "rect", x0, x1, y0, y1, line: LOOKS.frame };
}

/**
 * Where a value is between those of a slider, 0 to 1.
 * @param {any[]} values words first, then numbers
 * @param {any} value
 */
export function shareOf(values, value) {
  const over =
    typeof value === "number" ? values.findIndex(one => one >= value) : values.indexOf(value);
  const index = over < 0 ? values.length - 1 : over;
  const below = values[index - 1];
  const part = typeof below === "number" ? (values[index] - value) / (values[index] - below) : 0;
  return (index - Math.min(Math.max(part, 0), 1)) / (values.length - 1);
}

/** Only the traces that have a value. @param {{y: (number | null)[]}[]} traces */
export function withValues(traces) {
  return traces.filter(trace => trace.y.some(value => value !== null));
}

/**
 * A figure with roles replaced by colours; texts stay.
 * @param {any} value
 * @param {Record<string, string>} colors
 * @param {string} key
 * @returns {any}
 */
export function themed(value, colors, key = "") {
  if (["text", "hovertext", "customdata", "ticktext", "x", "y", "z"].includes(key)) return value;
  if (typeof value === "string") return colors[value] ?? value;
  if (Array.isArray(value)) return value.map(one => themed(one, colors));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, part]) => [name, themed(part, colors, name)])
  );
}

/**
 * A figure for a notebook, light or dark: the page takes its colours from the page around it.
 * @param {{data: any[], layout: Record<string, any>}} figure
 * @param {string} theme
 */
export function inTheme({ data, layout }, theme) {
  const roles = Object.entries(LOOKS.themes[theme]);
  const colors = Object.fromEntries(roles.map(([role, color]) => [`var(--sl-${role})`, color]));
  const paper = "var(--sl-paper)";
  const looks = { template: LOOKS.template, paper_bgcolor: paper, plot_bgcolor: paper };
  return themed({ data, layout: { ...layout, ...looks } }, colors);
}
