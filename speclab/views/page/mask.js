// The mask of a verification pass: the prefix folded into a band, then the nodes, then rows that
// are no candidates.

import { LOOKS, WORDS } from "./data.js";
import { codeMap, frameAt, layoutOf, noteAt } from "./figure.js";
import { WHOLE, kindsAt, reached, shapeOf } from "./phases.js";
import { clip, labelOf, plotText, quoted } from "./text.js";
import { markOf, words } from "./words.js";

/** @type {Record<string, number>} */
const MASK = { hidden: 0, ancestor: 1, self: 2, missing: 3, extra: 4, seen: 5, part: 6 };
const MASK_SIZE = LOOKS.mask.size; // pixels, and characters of a name

/** Bits of a hexadecimal row. @param {string} row @param {number} count @returns {boolean[]} */
function bitsOf(row, count) {
  return Array.from({ length: count }, (_, bit) =>
    Boolean((parseInt(row[bit >> 2], 16) >> (3 - (bit & 3))) & 1)
  );
}

/**
 * `[N][N]` codes: the nodes, then the rows that are not candidates.
 * @param {Masked} step
 * @returns {number[][]}
 */
function maskCodes(step) {
  const count = step.nodes.length;
  const size = count + step.extra.length;
  const codes = step.nodes.map((_, node) => {
    const expected = new Set([node]);
    for (let at = step.tree.parent[node]; at >= 0; at = step.tree.parent[at]) expected.add(at);
    /** @param {number} column */
    const wanted = column => expected.has(column);
    const row = step.mask ? bitsOf(step.mask[node], count) : step.nodes.map((_, at) => wanted(at));
    const cells = row.map((given, column) => {
      if (given !== wanted(column)) return given ? MASK.extra : MASK.missing;
      if (!given) return MASK.hidden;
      return column === node ? MASK.self : MASK.ancestor;
    });
    return [...cells, ...new Array(size - count).fill(MASK.hidden)];
  });
  step.extra.forEach((extra, index) => {
    const row = new Array(size).fill(MASK.hidden);
    for (const seen of extra.sees) row[seen] = MASK.seen;
    for (const seen of extra.part ?? []) row[seen] = MASK.part;
    row[count + index] = MASK.self;
    codes.push(row);
  });
  return codes;
}

/**
 * The codes known at a position: before verify the expected ones, of the nodes drafted so far.
 * @param {Masked} step
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

/**
 * Whether the target received the expected mask.
 * @param {Masked} step
 * @param {number[]} codes
 */
function verdictOfMask(step, codes) {
  if (!step.mask) return WORDS.mask.preview;
  const missing = codes.filter(code => code === MASK.missing).length;
  const extra = codes.filter(code => code === MASK.extra).length;
  return words("mask", missing || extra ? "differs" : "same", { missing, extra });
}

/** @param {Masked} step */
function maskSentence(step) {
  const count = step.nodes.length;
  const low = Math.min(...step.prefix_seen);
  const high = Math.max(...step.prefix_seen);
  const newest = low === high ? "newest" : "newest range";
  const codes = maskCodes(step).slice(0, count).flat();
  const seen = codes.filter(code => ![MASK.hidden, MASK.missing].includes(code)).length;
  const values = {
    rows: count,
    prefix: words("mask", low === step.prefix_length ? "prefix" : newest, { low, high }),
    seen,
    cells: count * count,
    verdict: verdictOfMask(step, codes),
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
 * @param {Masked} step
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
 * A step with one row for each group of rows that are no candidates, where these cannot be read.
 * @param {Masked} step
 * @returns {Masked}
 */
function byGroups(step) {
  const groups = groupsOf(step);
  const count = step.nodes.length;
  const places = [...step.nodes.keys(), ...groups.map(group => count + group - 1)];
  const extra = [...new Set(groups)].map(group => {
    const rows = step.extra.filter((_, row) => groups[row] === group);
    const seen = rows.flatMap(row => row.sees).map(column => places[column]);
    const columns = [...new Set(seen)];
    /** @param {number[]} list @param {number} column */
    const times = (list, column) => list.filter(one => one === column).length;
    /** @param {number} column */
    const whole = column => times(seen, column) === rows.length * times(places, column);
    const sees = columns.filter(whole);
    const part = columns.filter(column => !whole(column));
    return { ...rows[0], depth: 0, group, sees, part };
  });
  return { ...step, extra };
}

/**
 * The name of a row: of a group its number.
 * @param {Masked} step
 * @param {number} row
 * @param {(token: number, texts: Texts) => string} nameOf
 */
function rowName({ tree, extra, texts }, row, nameOf) {
  const more = extra[row - tree.token.length];
  if (more?.group) return words("mask", "group", more);
  return nameOf(more ? more.token : tree.token[row], texts);
}

/**
 * Pixels of a cell, and what is named.
 * @param {Masked} step
 * @param {number | null} height that is to be filled; null: no more than can be read
 * @param {number} most
 */
function maskSizes(step, height, most) {
  const size = step.nodes.length + step.extra.length;
  const { top } = MASK_SIZE;
  const bottom = step.extra.length ? MASK_SIZE.note : MASK_SIZE.bottom;
  const room = ((height ?? MASK_SIZE.most) * MASK_SIZE.cells) / MASK_SIZE.most;
  const wide = Math.min(height ? Infinity : 16, room / size);
  const high = Math.min(
    height ? Infinity : 22,
    ((height ?? most) - top - bottom) / size,
    1.5 * wide
  );
  return {
    size,
    bottom,
    room,
    wide,
    high,
    left: 10 + MASK_SIZE.char * (MASK_SIZE.name + 3), // and a number
    start: -0.5 - (MASK_SIZE.gap + MASK_SIZE.band) / wide
  };
}

/**
 * @param {Masked} whole
 * @param {Position} position
 * @param {{selected?: NodeId, fill?: number | null, most?: number}} options `fill`: a height to fill
 */
export function maskFigure(
  whole,
  position = WHOLE,
  { selected = null, fill = null, most = MASK_SIZE.most } = {}
) {
  const { named, every } = LOOKS.mask;
  const folds = whole.extra.length && maskSizes(whole, fill, most).high < named;
  const step = folds ? byGroups(whole) : whole;
  const { size, bottom, room, wide, high, left, start } = maskSizes(step, fill, most);
  const cells = maskCells(step, position);
  const known = cells.length;
  /** @param {number} count */
  const multiples = count => [...Array(size).keys()].filter(row => row % count === 0);
  const rows = multiples(every.find(count => count * high >= named)).filter(row => row < known);
  /** @param {number} row */
  const labelAt = row => {
    const name = clip(rowName(step, row, labelOf), MASK_SIZE.name);
    if (step.extra[row - step.nodes.length]?.group) return name;
    return high >= named ? `${row} ${name}` : String(row);
  };
  const columns = multiples(every.find(count => count * wide >= 8 * String(size).length + 6));
  const gap = wide < 5 ? 0 : 1;
  const heat = { ...codeMap(cells, LOOKS.mask.colors), xgap: gap, ygap: gap };
  const shapes = maskRules(step, start, known, high);
  const end = size - 0.5;
  const { band, gap: free, right } = MASK_SIZE;
  const names = step.names ?? [...step.nodes.keys()];
  const row = names.indexOf(selected);
  if (row >= 0) {
    shapes.push(frameAt(start, end, row - 0.5, row + 0.5));
    shapes.push(frameAt(row - 0.5, row + 0.5, -0.5, end));
  }
  const layout = layoutOf("mask", maskSentence(whole), {
    margin: { l: left, b: bottom },
    width: left + band + free + room + right, // of every mask: nothing moves from step to step
    height: MASK_SIZE.top + high * size + bottom,
    xaxis: { range: [start, room / wide - 0.5], tickvals: columns },
    yaxis: {
      range: [end, -0.5],
      tickvals: rows,
      ticktext: rows.map(row => plotText(labelAt(row)))
    },
    shapes,
    annotations: [
      ...maskNotes(step, size),
      ...(reached(position, "verify") ? maskFindings(step) : [])
    ]
  });
  const data = [prefixBand(step, start, wide, known), heat, ...maskMarks(cells)];
  return { data, layout, size, cells, start, step, names };
}

/**
 * What is at a point of the mask: a row, its node, and what it may see there; null outside of the
 * rows that are drawn. Left of the prefix there is no column.
 * @param {{cells: number[][], start: number, step: Masked, names: NodeId[]}} figure
 * @param {Point} point
 * @returns {{node?: NodeId, row: number, column?: number | null, sentence?: string} | null}
 */
export function cellAt({ cells, start, step, names }, { x, y }) {
  const row = Math.round(y);
  const code = cells[row]?.[Math.round(x)];
  if (!cells[row] || (code === undefined && x > 0)) return null;
  const node = names[row];
  if (x < start) return { node, row }; // its name
  const before = code === undefined;
  const column = before ? null : Math.round(x);
  const seen = [...step.prefix_seen, ...step.extra.map(extra => extra.prefix_seen)];
  const name = before ? "before" : Object.keys(MASK)[code];
  const values = {
    row: rowName(step, row, quoted),
    column: rowName(step, column ?? row, quoted),
    before: seen[row]
  };
  return { node, row, column, sentence: words("mask", `sees ${name}`, values) };
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
 * @param {Masked} step
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
 * @param {Masked} step
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
    if (!row || row >= size || level === depth[row - 1]) return [];
    return [
      { ...look, x0: edge, x1: edge, y0: -0.5, y1: size - 0.5 },
      { ...look, x0: start, x1: size - 0.5, y0: edge, y1: edge }
    ];
  });
}

/**
 * The length of the prefix, and what the rows are that are no candidates.
 * @param {Masked} step
 * @param {number} size
 */
function maskNotes(step, size) {
  const looks = LOOKS.mask.notes;
  // above the ticks, so that a long prefix never covers one
  const text = words("mask", "prefix note", { length: step.prefix_length });
  const notes = [noteAt(text, -0.5, -0.5, looks.prefix)];
  const [first] = step.extra;
  const name = first?.group ? "levels" : "no candidates";
  if (first) notes.push(noteAt(WORDS.mask[name], size - 0.5, size - 0.5, looks.extra));
  return notes;
}

/** A sign on the prefix band of each row with a finding. @param {Masked} step */
function maskFindings(step) {
  const signs = new Map();
  for (const finding of step.findings)
    if (finding.node !== null && !signs.has(finding.node))
      signs.set(finding.node, markOf(finding)[0]);
  const look = LOOKS.mask.notes.finding;
  return [...signs].sort((a, b) => a[0] - b[0]).map(([row, sign]) => noteAt(sign, -0.5, row, look));
}
