// The mask of a verification pass: the prefix folded into a band, then the nodes, then rows that
// are no candidates.

import { LOOKS, WORDS } from "./data.js";
import { codeMap, frameAt, layoutOf, noteAt } from "./figure.js";
import { WHOLE, kindsAt, reached, shapeOf } from "./phases.js";
import { clip, labelOf, plotText } from "./text.js";
import { markOf, words } from "./words.js";

/** @type {Record<string, number>} */
const MASK = { hidden: 0, ancestor: 1, self: 2, missing: 3, extra: 4, seen: 5 };
const MASK_SIZE = LOOKS.mask.size; // pixels, and characters of a name

/** Bits of a hexadecimal row. @param {string} row @param {number} count @returns {boolean[]} */
function bitsOf(row, count) {
  return Array.from({ length: count }, (_, bit) =>
    Boolean((parseInt(row[bit >> 2], 16) >> (3 - (bit & 3))) & 1)
  );
}

/**
 * `[N][N]` codes: the nodes, then the rows that are not candidates.
 * @param {Step} step
 * @returns {number[][]}
 */
function maskCodes(step) {
  const count = step.nodes.length;
  const size = count + step.extra.length;
  const codes = step.mask.map((row, node) => {
    const expected = new Set([node]);
    for (let at = step.tree.parent[node]; at >= 0; at = step.tree.parent[at]) expected.add(at);
    const cells = bitsOf(row, count).map((given, column) => {
      if (given !== expected.has(column)) return given ? MASK.extra : MASK.missing;
      if (!given) return MASK.hidden;
      return column === node ? MASK.self : MASK.ancestor;
    });
    return [...cells, ...new Array(size - count).fill(MASK.hidden)];
  });
  step.extra.forEach((extra, index) => {
    const row = new Array(size).fill(MASK.hidden);
    for (const seen of extra.sees) row[seen] = MASK.seen;
    row[count + index] = MASK.self;
    codes.push(row);
  });
  return codes;
}

/**
 * The codes known at a position: before verify the expected ones, of the nodes drafted so far.
 * @param {Step} step
 * @param {Position} position
 */
function maskCells(step, position) {
  const codes = maskCodes(step);
  if (reached(position, "verify")) return codes;
  const kinds = kindsAt(step, position);
  const drafting = position.phase === "draft";
  const absent = codes.map((_, row) => drafting && (kinds[row] ?? null) === null);
  let count = codes.length;
  while (absent[count - 1]) count -= 1;
  /** @param {number} code */
  const expected = code =>
    code === MASK.missing ? MASK.ancestor : code === MASK.extra ? MASK.hidden : code;
  return codes
    .slice(0, count)
    .map((row, y) =>
      row.slice(0, count).map((code, x) => (absent[y] || absent[x] ? MASK.hidden : expected(code)))
    );
}

/** Whether the target received the expected mask. @param {Step} step */
function verdictOfMask(step) {
  const codes = maskCodes(step).slice(0, step.nodes.length).flat();
  const missing = codes.filter(code => code === MASK.missing).length;
  const extra = codes.filter(code => code === MASK.extra).length;
  return words("mask", missing || extra ? "differs" : "same", { missing, extra });
}

/** @param {Step} step */
function maskSentence(step) {
  const count = step.nodes.length;
  const low = Math.min(...step.prefix_seen);
  const high = Math.max(...step.prefix_seen);
  const newest = low === high ? "newest" : "newest range";
  const seen = step.mask.flatMap(row => bitsOf(row, count)).filter(Boolean).length;
  const values = {
    rows: count,
    prefix: words("mask", low === step.prefix_length ? "prefix" : newest, { low, high }),
    seen,
    cells: count * count,
    verdict: verdictOfMask(step),
    paths: step.paths.length // by paths there is no single mask
  };
  const sentence = words("mask", values.paths ? "paths" : "sentence", values);
  return step.extra.length
    ? `${sentence} ${words("mask", "extra", { rows: step.extra.length })}`
    : sentence;
}

/**
 * Of each row that is no candidate the number of its group, such as a level of lookahead's window: the
 * depth rises within a group.
 * @param {Step} step
 * @returns {number[]}
 */
function groupsOf({ extra }) {
  let group = 0;
  return extra.map(({ depth }, row) => {
    if (!row || depth <= extra[row - 1].depth) group += 1;
    return group;
  });
}

/**
 * Pixels of a cell, and what is named.
 * @param {Step} step
 * @param {number | null} height that is to be filled; null: no more than can be read
 */
function maskSizes(step, height) {
  const size = step.nodes.length + step.extra.length;
  const { most, top } = MASK_SIZE;
  const bottom = step.extra.length ? MASK_SIZE.note : MASK_SIZE.bottom;
  const room = ((height ?? most) * MASK_SIZE.cells) / most;
  const wide = Math.min(height ? Infinity : 16, room / size);
  const high = Math.min(
    height ? Infinity : 22,
    ((height ?? most) - top - bottom) / size,
    1.5 * wide
  );
  const tokens = [...step.tree.token, ...step.extra.map(row => row.token)];
  const labels = tokens.map((token, row) =>
    high >= LOOKS.mask.named
      ? `${row} ${clip(labelOf(token, step.texts), MASK_SIZE.name)}`
      : String(row)
  );
  return {
    size,
    bottom,
    room,
    wide,
    high,
    labels,
    left: 10 + MASK_SIZE.char * (MASK_SIZE.name + 3), // and a number
    start: -0.5 - (MASK_SIZE.gap + MASK_SIZE.band) / wide
  };
}

/**
 * @param {Step} step
 * @param {Position} position
 * @param {{selected?: number | null, fill?: number | null}} options `fill`: a height to fill
 */
export function maskFigure(step, position = WHOLE, { selected = null, fill = null } = {}) {
  const { size, bottom, room, wide, high, left, labels, start } = maskSizes(step, fill);
  const cells = maskCells(step, position);
  const known = cells.length;
  /** @param {number} count */
  const multiples = count => [...Array(size).keys()].filter(row => row % count === 0);
  const candidates = step.nodes.length;
  const rows = multiples(LOOKS.mask.every.find(count => count * high >= LOOKS.mask.named)).filter(
    row => row < known && (row < candidates || high >= LOOKS.mask.named)
  );
  const ticktext = rows.map(row => plotText(labels[row]));
  const groups = high < LOOKS.mask.named && known > candidates ? groupsOf(step) : [];
  for (const group of new Set(groups)) {
    rows.push(candidates + (groups.indexOf(group) + groups.lastIndexOf(group)) / 2);
    ticktext.push(words("mask", "group", { group }));
  }
  const columns = multiples(
    LOOKS.mask.every.find(count => count * wide >= 8 * String(size).length + 6)
  );
  const gap = wide < 5 ? 0 : 1;
  const heat = { ...codeMap(cells, LOOKS.mask.colors), xgap: gap, ygap: gap };
  const shapes = maskRules(step, start, size, high);
  const end = size - 0.5;
  const { band, gap: free, right } = MASK_SIZE;
  if (selected !== null) {
    shapes.push(frameAt(start, end, selected - 0.5, selected + 0.5));
    shapes.push(frameAt(selected - 0.5, selected + 0.5, -0.5, end));
  }
  const layout = layoutOf("mask", maskSentence(step), {
    margin: { l: left, b: bottom },
    width: left + band + free + room + right, // of every mask: nothing moves from step to step
    height: MASK_SIZE.top + high * size + bottom,
    xaxis: { range: [start, room / wide - 0.5], tickvals: columns },
    yaxis: { range: [end, -0.5], tickvals: rows, ticktext },
    shapes,
    annotations: [
      ...maskNotes(step, size),
      ...(reached(position, "verify") ? maskFindings(step) : [])
    ]
  });
  const data = [prefixBand(step, start, wide, known), heat, ...maskMarks(cells)];
  return { data, layout, size, cells, start };
}

/**
 * What is at a point of the mask: a row, and what it may see there; null outside of the rows that
 * are drawn. Left of the prefix there is no column.
 * @param {Step} step
 * @param {{cells: number[][], start: number}} figure
 * @param {Point} point
 * @returns {{node: number, column?: number | null, sentence?: string} | null}
 */
export function cellAt(step, { cells, start }, { x, y }) {
  const row = Math.round(y);
  const code = cells[row]?.[Math.round(x)];
  if (!cells[row] || (code === undefined && x > 0)) return null;
  if (x < start) return { node: row }; // its name
  const before = code === undefined;
  const column = before ? null : Math.round(x);
  const tokens = [...step.tree.token, ...step.extra.map(extra => extra.token)];
  const seen = [...step.prefix_seen, ...step.extra.map(extra => extra.prefix_seen)];
  const name = before ? "before" : Object.keys(MASK)[code];
  const values = { row: tokens[row], column: tokens[column], before: seen[row] };
  return { node: row, column, sentence: words("mask", `sees ${name}`, values, step.texts) };
}

/** Squares and crosses where the mask differs from the expected one. @param {number[][]} cells */
function maskMarks(cells) {
  return Object.entries(LOOKS.mask.marks).flatMap(([name, { symbol, color }]) => {
    const points = cells.flatMap((row, y) =>
      row.flatMap((code, x) => (code === MASK[name] ? [[x, y]] : []))
    );
    if (!points.length) return [];
    const marker = { symbol, size: 5, color, line: { width: 1.5, color } };
    const [x, y] = [0, 1].map(part => points.map(point => point[part]));
    return [{ ...LOOKS.traces.marks, x, y, marker }];
  });
}

/**
 * The folded prefix: a bar per row for its visible share, newest tokens to the right.
 * @param {Step} step
 * @param {number} start
 * @param {number} wide
 * @param {number} known rows
 */
function prefixBand(step, start, wide, known) {
  const seen = [...step.prefix_seen, ...step.extra.map(row => row.prefix_seen)].slice(0, known);
  const length = Math.max(step.prefix_length, 1);
  const x = seen.map(count => ((MASK_SIZE.band / wide) * count) / length);
  const end = start + MASK_SIZE.band / wide;
  return {
    ...LOOKS.traces.band,
    y: seen.map((_, row) => row),
    x,
    base: x.map(share => end - share)
  };
}

/**
 * Lines between levels, and between groups of rows that are not candidates.
 * @param {Step} step
 * @param {number} start
 * @param {number} size
 * @param {number} high
 */
function maskRules(step, start, size, high) {
  if (high < 3) return [];
  const depth = [...shapeOf(step.tree).depth, ...groupsOf(step).map(group => -group)];
  const look = LOOKS.rule;
  return depth.flatMap((level, row) => {
    const edge = row - 0.5;
    if (!row || level === depth[row - 1]) return [];
    return [
      { ...look, x0: edge, x1: edge, y0: -0.5, y1: size - 0.5 },
      { ...look, x0: start, x1: size - 0.5, y0: edge, y1: edge }
    ];
  });
}

/**
 * The length of the prefix, and what the rows are that are no candidates.
 * @param {Step} step
 * @param {number} size
 */
function maskNotes(step, size) {
  const looks = LOOKS.mask.notes;
  // above the ticks, so that a long prefix never covers one
  const text = words("mask", "prefix note", { length: step.prefix_length });
  const notes = [noteAt(text, -0.5, -0.5, looks.prefix)];
  const extra = (step.nodes.length + size - 1) / 2;
  if (step.extra.length)
    notes.push(noteAt(WORDS.mask["no candidates"], extra, size - 0.5, looks.extra));
  return notes;
}

/** A sign on the prefix band of each row with a finding. @param {Step} step */
function maskFindings(step) {
  const signs = new Map();
  for (const finding of step.findings)
    if (finding.node !== null && !signs.has(finding.node))
      signs.set(finding.node, markOf(finding)[0]);
  const look = LOOKS.mask.notes.finding;
  return [...signs].sort((a, b) => a[0] - b[0]).map(([row, sign]) => noteAt(sign, -0.5, row, look));
}
