// The distributions after a node, the draw where sampling stopped, what decided an iteration, and
// the trees it chose between.

import { LOOKS, WORDS } from "./data.js";
import { layoutOf, noteAt } from "./figure.js";
import { WHOLE, kindsAt, reached, shapeOf } from "./phases.js";
import { clip, labelOf, percent, plotText, quoted } from "./text.js";
import { columnWidths, graphOf, stepGraph, rowsOf, treeTable, treeTraces } from "./tree.js";
import {
  adaptationWords,
  formatted,
  nodeSentence,
  plainSentence,
  rankedTokens,
  verdictWords,
  words
} from "./words.js";

const BARS = 9; // most tokens: the children, the target's choice, then the most probable ones
const PANELS = ["p", "q", "residual", "plain"];

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

/**
 * Horizontal bars, one panel per distribution, the same tokens in each, the most probable first.
 * @param {Step} step
 * @param {{name: string, probs: Map<number, number>}[]} panels
 * @param {Map<number, string>} notes
 * @param {Map<number, number>} nodes
 * @param {string} sentence
 */
function barsFigure(step, panels, notes, nodes, sentence) {
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

/** The children that were rejected where sampling stopped, in order. @param {Step} step */
function rejections(step) {
  const parent = step.residual?.node ?? -1;
  return step.trials.filter(trial => !trial.accepted && step.tree.parent[trial.node] === parent);
}

/**
 * The children where sampling stopped, by token.
 * @param {Step} step
 * @returns {Map<number, number>}
 */
function stoppedAt(step) {
  const { node, tokens } = step.residual;
  const recorded = new Set(tokens.map(one => one.token));
  const children = node === null ? [0] : shapeOf(step.tree).children[node];
  return new Map(
    children
      .map(/** @returns {[number, number]} */ child => [step.nodes[child].token, child])
      .filter(([token]) => recorded.has(token))
  );
}

/**
 * The distributions where sampling stopped: p, q (if candidates were drawn) and the residual; null
 * at temperature 0.
 * @param {Step} step
 */
export function residualFigure(step) {
  if (!step.residual) return null;
  const { tokens } = step.residual;
  /** @param {string} name */
  const column = name =>
    new Map(tokens.filter(one => one[name] !== null).map(one => [one.token, one[name]]));
  const panels = Object.entries({ p: "target", q: "draft", residual: "residual" })
    .map(([name, field]) => ({ name, probs: column(field) }))
    .filter(panel => panel.probs.size);
  const nodes = stoppedAt(step);
  const notes = new Map([...nodes].map(([token, node]) => [token, `node ${node}`]));
  for (const trial of rejections(step))
    notes.set(step.nodes[trial.node].token, `node ${trial.node} ${WORDS.bars.rejected}`);
  if (step.bonus !== null) notes.set(step.bonus, WORDS.bars.drawn);
  return barsFigure(step, panels, notes, nodes, residualSentence(step));
}

/** @param {Step} step */
function residualSentence(step) {
  if (step.bonus === null) return "";
  const { node, tokens } = step.residual;
  const prob = tokens.find(one => one.token === step.bonus)?.target ?? 0;
  /** @type {Values} */
  const values = {
    token: step.bonus,
    prob,
    where: words("residual", node === null ? "root" : "node", { node })
  };
  const tried = rejections(step);
  if (tried.length) {
    values.tests = tried
      .map(trial =>
        words(
          "residual",
          trial.block === null ? "test" : "block",
          {
            ...trial,
            token: step.nodes[trial.node].token,
            ratio: trial.against ? Math.min(1, trial.target / trial.against) : 1
          },
          step.texts
        )
      )
      .join("; ");
    return words("residual", "tried", values, step.texts);
  }
  const names = [...stoppedAt(step).keys()].map(token => quoted(token, step.texts)).join(" or ");
  return words("residual", names ? "once" : "alone", { ...values, names }, step.texts);
}

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

/**
 * Trees side by side on the same columns, each below its title.
 * @param {{table: Entry[], title: string}[]} trees
 * @param {number} width
 */
function treesBeside(trees, width) {
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

/**
 * Every node as a row.
 * @param {Step} step
 * @returns {{columns: string[], data: (string | number)[][]}}
 */
export function nodeRows(step) {
  const { depth } = shapeOf(step.tree);
  const { parent, source } = step.tree;
  const rows = step.nodes.map((record, node) => {
    /** @type {Values} */
    const values = {
      ...record,
      depth: depth[node],
      parent: parent[node],
      source: source[node],
      verdict: verdictWords(step, node)
    };
    return WORDS.facts.map(([, name, form]) => {
      const value = values[name] ?? "";
      return form && value !== "" ? formatted(value, form, step.texts) : value;
    });
  });
  return { columns: WORDS.facts.map(([head]) => head), data: rows };
}
