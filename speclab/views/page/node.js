// What decided an iteration, and its nodes as a table.

import { COLUMNS, WORDS } from "./data.js";
import { shapeOf } from "./phases.js";
import { adaptationWords, formatted, rankedTokens, verdictWords, words } from "./words.js";

/**
 * The most probable tokens of each depth of a block, and how many nodes they became; null without a
 * block.
 * @param {Step} step
 * @returns {Table | null}
 */
export function blockTable(step) {
  const block = step.events.filter(event => event.kind === "marginal");
  if (!block.length) return null;
  const { depth } = shapeOf(step.tree);
  const rows = block.map((event, index) => [
    index + 1,
    rankedTokens(event, step).join(", "),
    depth.filter(one => one === index + 1).length
  ]);
  return { sentence: WORDS.block.caption, head: WORDS.block.head, rows };
}

/**
 * The adaptive values before and after an iteration; null if the strategy adapts nothing.
 * @param {Step} step
 * @returns {Table | null}
 */
export function decidedRows({ index, adaptation }) {
  const { before, after } = adaptation;
  const rows = Object.keys({ ...before, ...after }).map(name => [
    name.replaceAll("_", " "),
    settingText(before[name] ?? null),
    settingText(after[name] ?? null)
  ]);
  const values = { number: index + 1, reasons: adaptationWords(adaptation) };
  const sentence = words("decided", "sentence", values);
  return rows.length ? { sentence, head: WORDS.decided.head, rows } : null;
}

/** A value of a setting. @param {any} value */
export function settingText(value) {
  if (value === null) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(typeof value === "number" ? Number(value.toPrecision(4)) : value);
}

/**
 * Every node as a row. A page that decodes shows the columns that follow from records and tree alone.
 * @param {Step} step
 * @returns {{columns: string[], data: (string | number)[][]}}
 */
export function nodeRows(step) {
  const { depth } = shapeOf(step.tree);
  const { parent, source } = step.tree;
  const rows = step.nodes.map((record, node) => {
    const verdict = verdictWords(step, node);
    /** @type {Values} */
    const row = {
      ...record,
      node,
      depth: depth[node],
      parent: parent[node],
      source: source[node],
      verdict
    };
    for (const [name, values] of Object.entries(step.columns ?? {})) row[name] = values[node];
    return row;
  });
  const shown = COLUMNS.filter(({ name }) => name in rows[0]);
  const data = rows.map(row =>
    shown.map(({ name, format }) => cell(row[name], format, step.texts))
  );
  return { columns: shown.map(({ head }) => head), data };
}

/** A value of a column. @param {any} value @param {string} format @param {Texts} texts */
function cell(value, format, texts) {
  if (value == null) return "";
  if (typeof value === "boolean") return settingText(value);
  return format ? formatted(value, format, texts) : value;
}
