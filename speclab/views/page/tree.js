// The draft tree as a figure: leaves in tree order, a parent midway between its children, what does
// not fit folded.

import { LOOKS } from "./data.js";
import { layoutOf } from "./figure.js";
import {
  OWN,
  WHOLE,
  eventsUntil,
  findingsAt,
  fresh,
  kindsAt,
  lastOnPath,
  reached,
  shapeOf,
  verifiedRoot
} from "./phases.js";
import { clip, columnsOf, labelOf, percent, plotText } from "./text.js";
import { markOf, positionSentence, words } from "./words.js";

const NEVER_FOLDED = 4; // nodes with findings
/** @type {{second: Record<string, string>, kept: NodeId[], rings: Set<NodeId>, early: boolean}} */
const PLAIN = { second: {}, kept: [], rings: new Set(), early: false };

/**
 * @param {Columns} tree
 * @param {Texts} texts
 * @param {number[]} path
 * @returns {Graph}
 */
function graphOf(tree, texts, path) {
  const { pathProb } = shapeOf(tree);
  /** @type {Graph} */
  const graph = new Map();
  tree.token.forEach((token, id) => {
    const node = attach(graph, id, token, texts, tree.parent[id], pathProb[id]);
    node.accepted = path.includes(id);
  });
  return graph;
}

/** The graph of an iteration, with the target's own token. @param {Step} step @returns {Graph} */
export function stepGraph(step) {
  const graph = graphOf(step.tree, step.texts, step.accepted);
  step.nodes.forEach(({ target_prob, target_choice: choice }, node) =>
    Object.assign(graph.get(node), { targetProb: target_prob ?? 0, choice })
  );
  if (step.bonus !== null) attach(graph, OWN, step.bonus, step.texts, lastOnPath(step));
  return graph;
}

/**
 * Adds a node after another; after -1 it goes to the root's column.
 * @param {Graph} graph
 * @param {any} id
 * @param {number} token
 * @param {Texts} texts
 * @param {any} parent
 * @returns {GraphNode}
 */
export function attach(graph, id, token, texts, parent, pathProb = 1) {
  const above = graph.get(parent);
  above?.below.push(id);
  const depth = above ? above.depth + 1 : 0;
  const label = labelOf(token, texts);
  /** @type {Pick<GraphNode, "targetProb" | "choice" | "accepted" | "below">} */
  const later = { targetProb: 0, choice: -1, accepted: false, below: [] };
  graph.set(id, { id, token, label, parent, depth, pathProb, ...later });
  return graph.get(id);
}

/** A node, and all below it. @param {Graph} graph @param {NodeId} id @returns {NodeId[]} */
function subtree(graph, id) {
  const nodes = [id];
  for (const node of nodes) nodes.push(...graph.get(node).below);
  return nodes;
}

/**
 * The row of each node; leaves count from the top.
 * @param {Graph} graph
 * @returns {Map<any, number>}
 */
function leafRows(graph) {
  // depth first, without recursion: a chain of another tool may be deeper than the stack
  const open = [...graph.values()].filter(node => node.parent === -1).reverse();
  const order = [];
  while (open.length) {
    const node = open.pop();
    order.push(node);
    for (const child of [...node.below].reverse()) open.push(graph.get(child));
  }
  const leaves = order.filter(node => !node.below.length);
  const rows = new Map(leaves.map((leaf, row) => [leaf.id, row]));
  for (const { id, below } of order.reverse())
    if (below.length) rows.set(id, (rows.get(below[0]) + rows.get(below.at(-1))) / 2);
  return rows;
}

/**
 * At most `rows` leaves: the accepted path, its siblings and the most probable nodes stay, others
 * become stubs.
 * @param {Graph} graph
 * @param {number} rows
 * @param {any[]} first never folded
 * @returns {Graph}
 */
function fold(graph, rows, first) {
  const nodes = [...graph.values()];
  if (nodes.filter(node => !node.below.length).length <= rows) return graph;
  const path = nodes
    .filter(node => node.parent === -1 || node.accepted || node.id === OWN)
    .map(node => node.id);
  const shown = new Set();
  for (const id of [...path, ...first])
    for (let at = id; at !== -1 && graph.has(at); at = graph.get(at).parent) shown.add(at);
  const siblings = new Set(path.flatMap(id => graph.get(id).below));
  const order = [...nodes].sort(
    (a, b) => Number(siblings.has(b.id)) - Number(siblings.has(a.id)) || b.pathProb - a.pathProb
  );
  const hidden = new Map(
    [...shown].map(id => [id, graph.get(id).below.filter(child => !shown.has(child)).length])
  );
  let used = [...shown].filter(id => hidden.get(id) > 0 || !graph.get(id).below.length).length;
  for (const { id, parent, below } of order) {
    // a parent is at least as probable as its children, so it comes first
    // or it takes the row of its parent's stub
    const wider = used + Number((hidden.get(parent) ?? 0) > 1);
    if (shown.has(id) || !shown.has(parent) || wider > rows) continue;
    shown.add(id);
    hidden.set(id, below.length);
    hidden.set(parent, hidden.get(parent) - 1);
    used = wider;
  }
  return withStubs(graph, shown);
}

/** @param {Graph} graph @param {Set<any>} shown @returns {Graph} */
function withStubs(graph, shown) {
  const gone = new Set();
  const stubs = new Map();
  for (const { id, below } of graph.values()) {
    if (!shown.has(id)) continue;
    const folded = below.filter(child => !shown.has(child)).flatMap(child => subtree(graph, child));
    if (folded.length < 2) continue; // a single node needs no more room than its stub
    folded.forEach(node => gone.add(node));
    stubs.set(id, folded);
  }
  /** @type {Graph} */
  const small = new Map();
  for (const node of graph.values())
    if (!gone.has(node.id))
      small.set(node.id, { ...node, below: node.below.filter(child => !gone.has(child)) });
  for (const [id, folded] of stubs)
    Object.assign(attach(small, `+${id}`, -1, {}, id, 0), { label: `+${folded.length}`, folded });
  return small;
}

/**
 * The drawing of a graph: an entry per node or stub.
 * @param {Graph} graph
 * @param {Kinds} kinds
 * @param {number} rows
 * @param {any[]} first
 * @returns {Entry[]}
 */
function treeTable(graph, kinds, rows, first = []) {
  const small = fold(graph, rows, first);
  const places = leafRows(small);
  const index = new Map([...small.keys()].map((id, place) => [id, place]));
  return [...small.values()].map(node => ({
    ...node,
    parent: index.get(node.parent) ?? -1,
    row: places.get(node.id),
    size: node.id === OWN ? 14 : 7 + 10 * Math.sqrt(Math.min(node.pathProb, 1)),
    border: 0.75 + 2.5 * node.targetProb,
    choice: node.token >= 0 && small.get(node.parent)?.choice === node.token,
    kind: node.folded?.some(folded => kinds[folded]) ? "folded" : kinds[node.id]
  }));
}

/** Rows of a table. @param {Entry[]} table */
function rowsOf(table) {
  return Math.round(Math.max(...table.map(entry => entry.row))) + 1;
}

/** Characters of the widest label at each depth. @param {Entry[]} table @returns {number[]} */
function columnWidths(table) {
  /** @type {number[]} */
  const widths = [];
  for (const entry of table)
    widths[entry.depth] = Math.max(widths[entry.depth] ?? 0, columnsOf(entry.label));
  return widths;
}

/**
 * Pixels of a tree whose labels have at most `most` characters, and the least gaps between columns.
 * @param {number[]} widths characters of each column
 * @param {number} most
 */
function widthOf(widths, most) {
  const { mark, char, left, right, gaps } = LOOKS.tree;
  const labels = widths.reduce((total, width) => total + Math.min(width, most), 0);
  return left + right + mark * widths.length + gaps[0] * (widths.length - 1) + char * labels;
}

/**
 * For each depth where its nodes stand and how many characters its labels have; the longest labels
 * are cut first, and only if they do not fit.
 * @param {number[]} widths
 * @param {number} room pixels
 */
function columnPlaces(widths, room) {
  const { mark, char, left, gaps } = LOOKS.tree;
  let most = Math.max(...widths);
  while (most > 4 && room < widthOf(widths, most)) most -= 1;
  const chars = widths.map(width => Math.min(width, most));
  const free = (room - widthOf(widths, most)) / Math.max(widths.length - 1, 1);
  const gap = Math.min(gaps[0] + Math.max(free, 0), gaps[1]);
  let place = left;
  const x = chars.map(count => {
    const start = place;
    place += mark + char * count + gap;
    return start;
  });
  return { x, chars };
}

/**
 * A curve from each parent's label to its child, one trace for each kind of link.
 * @param {Entry[]} table
 * @param {Places} places
 */
function linkTraces(table, { x, chars }) {
  const { mark, char, bend } = LOOKS.tree;
  /** @type {Record<string, {x: number[], y: number[]}>} */
  const lines = {};
  for (const entry of table) {
    const parent = table[entry.parent];
    if (!parent || !entry.kind) continue;
    const line = (lines[linkKind(entry)] ??= { x: [], y: [] });
    const from = x[parent.depth] + mark + char * chars[parent.depth] + 2;
    const to = x[entry.depth] - entry.size / 2 - 3;
    const start =
      x[parent.depth] + mark + char * columnsOf(clip(parent.label, chars[parent.depth])) + 3;
    line.x.push(start, ...bend.map(share => from + share * (to - from)), null);
    const drop = entry.row - parent.row;
    line.y.push(
      parent.row,
      ...bend.map(share => parent.row + (3 * share ** 2 - 2 * share ** 3) * drop),
      null
    );
  }
  return Object.entries(LOOKS.links)
    .filter(([kind]) => lines[kind])
    .map(([kind, line]) => ({ ...LOOKS.traces.links, ...lines[kind], line }));
}

/** @param {Entry} entry */
function linkKind({ kind, choice }) {
  if (kind in LOOKS.links) return kind;
  if (LOOKS.committed.includes(kind)) return "path";
  return choice ? "choice" : "link";
}

/**
 * The traces and axes of a table, and where its nodes can be hit.
 * @param {Entry[]} table
 * @param {{width: number, height: number, second: Record<string, string>, rings: Set<any>}} options
 */
function treeTraces(table, { width, height, second, rings }) {
  const columns = columnPlaces(columnWidths(table), width);
  const { x, chars } = columns;
  const { mark, char, below, pitch: pitches } = LOOKS.tree;
  const rows = rowsOf(table);
  const pitch = Math.min(Math.max((height - 2 * below) / rows, pitches[0]), pitches[1]);
  const shown = table.filter(entry => entry.kind);
  const data = linkTraces(table, columns);
  data.push(markTrace(shown, x, rings), labelTrace(shown, columns, width));
  const signs = Object.values(LOOKS.signs);
  /** @param {Entry} entry */
  const line = entry => {
    const text = second[entry.id];
    const share = signs.includes(text[0]) ? 0.85 : LOOKS.tree.free; // a finding may cross links
    return clip(text, roomAt(entry, columns, width, share));
  };
  const noted = shown
    .filter(({ id, kind }) => second[id] && kind !== "gone")
    .filter(
      // what is cut to a sign or two says nothing
      entry => columnsOf(line(entry)) > 3 || line(entry) === second[entry.id]
    );
  if (noted.length) {
    const texts = noted.map(line);
    const color = texts.map(text =>
      signs.includes(text[0]) ? "var(--sl-ink)" : "var(--sl-muted)"
    );
    const y = noted.map(entry => entry.row + 11.5 / pitch);
    data.push(textTrace(noted, x, y, texts.map(plotText), { family: LOOKS.mono, size: 11, color }));
  }
  const half = height / pitch / 2;
  const middle = (rows - 1) / 2;
  const ends = x[x.length - 1] + mark + char * chars[chars.length - 1];
  const ticktext = x.map((_, depth) => (depth ? `${depth}` : "depth 0"));
  const xaxis = { tickvals: x, ticktext, range: [0, Math.max(width, ends)] };
  const axes = { xaxis, yaxis: { range: [middle + half, middle - half] } };
  return { data, axes, hits: hitsOf(shown, columns, pitch, second) };
}

/**
 * The characters that fit beside a node, and below its word: up to where the links to its children
 * bend, if it has any.
 * @param {Entry} entry
 * @param {Places} columns
 * @param {number} width
 * @param {number} free share of the gap between the columns
 */
function roomAt({ depth, below }, { x, chars }, width, free) {
  const { mark, char } = LOOKS.tree;
  const from = x[depth] + mark + char * chars[depth];
  const end = below.length ? from + free * (x[depth + 1] - from) : width;
  return Math.max(Math.floor((end - x[depth] - mark) / char + 0.01), 1);
}

/**
 * Of each node the box of its circle, its word and its second line, at least 24 pixels high.
 * @param {Entry[]} shown
 * @param {Places} columns
 * @param {number} pitch
 * @param {Record<string, string>} second
 * @returns {Hit[]}
 */
function hitsOf(shown, { x, chars }, pitch, second) {
  const { mark, char, least } = LOOKS.tree;
  const under = Math.min(Math.max(least, pitch - least), 19); // no box covers the next one's
  return shown.map(({ id, depth, row, label, size, below }) => {
    const words = below.length ? Math.min(columnsOf(label), chars[depth]) : columnsOf(label);
    const wide = mark + char * Math.max(words, columnsOf(second[id] ?? ""), 2);
    const end = below.length ? x[depth + 1] - least : Infinity;
    return {
      id,
      x0: x[depth] - Math.max(size / 2, least),
      x1: Math.min(x[depth] + wide, end),
      y0: row - least / pitch,
      y1: row + (second[id] ? under : least) / pitch
    };
  });
}

/**
 * The symbols; plotly shows no hover boxes, the page's node line says more.
 * @param {Entry[]} shown
 * @param {number[]} x
 * @param {Set<NodeId>} rings
 */
function markTrace(shown, x, rings) {
  const looks = shown.map(({ kind }) => LOOKS.nodes[kind]);
  const ringed = shown.map(entry => rings.has(entry.id));
  return {
    ...LOOKS.traces.nodes,
    x: shown.map(entry => x[entry.depth]),
    y: shown.map(entry => entry.row),
    customdata: shown.map(entry => entry.id),
    marker: {
      symbol: looks.map(look => look.symbol),
      size: shown.map(entry => entry.size),
      opacity: 1,
      color: looks.map(look => (look.filled ? look.color : "var(--sl-paper)")),
      line: {
        color: looks.map((look, place) =>
          look.filled || ringed[place] ? "var(--sl-ink)" : look.color
        ),
        width: shown.map((entry, place) => Math.max(entry.border, ringed[place] ? 2.5 : 0))
      }
    }
  };
}

/** @param {Entry[]} shown @param {Places} columns @param {number} width */
function labelTrace(shown, columns, width) {
  const { x } = columns;
  const bold = shown.map(({ kind }) => LOOKS.committed.includes(kind));
  const texts = shown.map(entry => {
    const text = plotText(clip(entry.label, roomAt(entry, columns, width, 0)));
    return entry.kind === "gone" ? `<s>${text}</s>` : text;
  });
  return textTrace(
    shown,
    x,
    shown.map(entry => entry.row),
    texts,
    {
      family: LOOKS.mono,
      size: 12,
      color: bold.map(one => (one ? "var(--sl-ink)" : "var(--sl-muted)")),
      weight: bold.map(one => (one ? 600 : 400))
    }
  );
}

/**
 * @param {Entry[]} shown
 * @param {number[]} x
 * @param {number[]} y
 * @param {string[]} text
 * @param {Values} textfont
 */
function textTrace(shown, x, y, text, textfont) {
  return {
    ...LOOKS.traces.labels,
    x: shown.map(entry => x[entry.depth] + LOOKS.tree.mark - 2),
    y,
    text,
    textfont
  };
}

/**
 * The second lines of nodes: the drafting decision; from verify on findings and the target's choice
 * (→).
 * @param {Step} step
 * @param {Position} position
 * @returns {Record<string, string>}
 */
function secondLines(step, position) {
  /** @type {Record<string, string>} */
  const lines = {};
  step.nodes.forEach((record, node) => {
    /** @type {string[]} */
    let parts = [];
    if (reached(position, "verify")) {
      parts = findingsAt(step, node).map(markOf);
      if (["verify", "accept"].includes(position.phase))
        parts.push(`→${labelOf(record.target_choice, step.texts)}`);
    } else if (position.phase === "draft") {
      parts = decidedParts(eventsUntil(step, position).filter(event => event.node === node));
    }
    if (parts.length) lines[node] = parts.join(" ");
  });
  return lines;
}

/**
 * `62 % ×3 −1`: confidence, children, pruned children; `■ stop` if a gate closed; `#5 2.1 %`: its
 * number in a heap.
 * @param {TreeEvent[]} events
 */
function decidedParts(events) {
  /** @param {string} kind */
  const of = kind => events.filter(event => event.kind === kind).map(event => event.values);
  const [popped] = of("pop");
  if (popped) return [`#${popped.order}`, percent(popped.path_prob ?? 0)];
  const grown = of("expand");
  if (!grown.length) return of("stop").length ? ["■ stop"] : [];
  const sure = grown.map(values => values.confidence).filter(value => typeof value === "number");
  const children = grown.reduce((sum, values) => sum + (values.added ?? values.branches ?? 0), 0);
  const pruned = of("prune").reduce((sum, values) => sum + (values.dropped || 1), 0);
  const parts = sure.length ? [percent(Math.max(...sure))] : [];
  if (children) parts.push(`×${children}`);
  if (pruned) parts.push(`−${pruned}`);
  return parts;
}

/**
 * The tree at a position. `overlay`: another tree, which is drawn in its place.
 * @param {Step} step
 * @param {Position} position
 * @param {TreeOptions & {overlay?: Drawing | null}} options
 */
export function treeFigure(step, position = WHOLE, { overlay = null, ...options } = {}) {
  return drawnTree(overlay ?? drawingAt(step, position), options);
}

/** @param {Step} step @param {Position} position @returns {Drawing} */
export function drawingAt(step, position) {
  const marked = step.findings.map(finding => finding.node).filter(node => node !== null);
  return {
    graph: stepGraph(step),
    kinds: kindsAt(step, position),
    second: secondLines(step, position),
    sentence: `Draft tree. ${positionSentence(step, position)}`,
    kept: marked.slice(0, NEVER_FOLDED),
    rings: fresh(step, position),
    early: !reached(position, "verify")
  };
}

/**
 * The figure is wider than `width` where labels would be cut to nothing.
 * @param {Drawing} drawing
 * @param {TreeOptions} options
 */
function drawnTree(
  { graph, kinds, second, sentence, kept, rings: marked, early },
  {
    width: room = 900,
    height = LOOKS.tree.heights[1],
    selected = null,
    first = [],
    fill = false
  } = {}
) {
  const { top, bottom, below, pitch, row, heights, read, after } = LOOKS.tree;
  const lines = Math.floor((height - top - bottom) / pitch[0]);
  const table = treeTable(graph, kinds, lines, [...kept, ...first]);
  if (early) for (const entry of table) Object.assign(entry, { choice: false, border: 1 });
  const width = Math.max(room, Math.ceil(widthOf(columnWidths(table), read)) + after);
  const rings = new Set(marked);
  if (selected !== null) rings.add(selected);
  const own = Math.max(heights[0], top + bottom + below + rowsOf(table) * row);
  const high = fill ? height : Math.min(height, own);
  const size = { width, height: high - top - bottom };
  const { data, axes, hits } = treeTraces(table, { ...size, second, rings });
  const layout = layoutOf("tree", sentence, { width, height: high, ...axes });
  return { data, layout, table, hits };
}

/**
 * The tree of another tool.
 * @param {OtherNode[]} nodes parents first
 * @param {TreeOptions} options
 */
export function anyTreeFigure(nodes, options) {
  /** @type {Graph} */
  const graph = new Map();
  nodes.forEach(({ id, parent, text, path_prob, accepted }, row) => {
    attach(graph, id, row, { [row]: text }, parent, path_prob).accepted = accepted;
  });
  const kinds = Object.fromEntries(nodes.map(({ id, kind }) => [id, kind]));
  const accepted = nodes.filter(node => node.accepted).length;
  const sentence = words("any tree", "sentence", { nodes: nodes.length, accepted });
  return drawnTree({ ...PLAIN, graph, kinds, sentence }, options);
}

/**
 * The tree of a what-if, or one built by hand, over the step's own: nodes that would go are struck
 * out, new ones marked.
 * @param {Step} step
 * @param {WhatIf} whatIf as the kernel sends it
 * @returns {Drawing}
 */
export function overlayOf(step, whatIf) {
  const { tree, recorded, accepted, bonus, unknown } = whatIf;
  const texts = { ...step.texts, ...whatIf.texts };
  const names = recorded.map((same, node) => same ?? `new ${node}`);
  const path = new Set((accepted ?? []).map(node => names[node]));
  const graph = stepGraph({ ...step, bonus: null });
  /** @type {Kinds} */
  const kinds = {};
  for (const node of graph.values()) {
    node.accepted = path.has(node.id);
    kinds[node.id] = step.nodes[node.id].verdict;
    if (!names.includes(node.id)) kinds[node.id] = "gone";
    else if (path.has(node.id)) kinds[node.id] = "accepted";
    else if (accepted === null && kinds[node.id] !== "root") kinds[node.id] = "drafted";
  }
  const { children, pathProb } = shapeOf(tree);
  names.forEach((name, node) => {
    if (graph.has(name)) return;
    kinds[name] = path.has(name) ? "accepted" : "new";
    const parent = names[tree.parent[node]];
    const added = attach(graph, name, tree.token[node], texts, parent, pathProb[node]);
    added.accepted = path.has(name);
  });
  if (bonus !== null && accepted !== null) {
    const node = accepted.at(-1) ?? 0;
    const last = accepted.length || verifiedRoot(step) ? names[node] : -1;
    kinds[OWN] = last !== -1 && !children[node].length ? "bonus" : "corrected";
    attach(graph, OWN, bonus, texts, last);
  }
  const second = Object.fromEntries(unknown.map(node => [names[node], "→ ?"]));
  const sentence = whatIf.sentence ?? whatIfSentence(step, whatIf);
  const kept = [...graph.keys()].filter(id => !Number.isInteger(id)); // the new ones
  const prefix_seen = names.map(() => step.prefix_length);
  const masked = { ...step, ...LOOKS.preview, nodes: names, tree, texts, names, prefix_seen };
  return { ...PLAIN, graph, kinds, second, sentence, says: sentence, kept, masked };
}

/**
 * `Preview: 18 drafted (now 19), 2 accepted (now 2).` and what the record does not contain.
 * @param {Step} step
 * @param {WhatIf} whatIf
 */
function whatIfSentence(step, { tree, accepted, unknown, settled, texts }) {
  const values = {
    drafted: tree.token.length - 1,
    own: step.nodes.length - 1,
    accepted: accepted?.length,
    was: step.accepted.length,
    token: tree.token[unknown[0]],
    others: unknown.length - 1
  };
  const names = ["drafted"];
  if (accepted) names.push(settled || unknown.length ? "accepted" : "least");
  if (unknown.length) names.push(values.others ? "unknowns" : "unknown");
  const known = { ...step.texts, ...texts };
  return names.map(name => words("preview", name, values, known)).join("");
}
