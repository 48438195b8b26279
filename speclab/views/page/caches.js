// The KV caches over an iteration: a strip for each, 64 slots a row, during the pass and after the
// commit.

import { LOOKS, WORDS } from "./data.js";
import { codeMap, frameAt, layoutOf, noteAt } from "./figure.js";
import { WHOLE, reached } from "./phases.js";
import { plotText } from "./text.js";
import { words } from "./words.js";

const CACHE_PITCH = 18;
const ORDER = "123456789abcdefghijklmnopqrstuvwxyz";

/**
 * The state of the slots from `first` on, during the pass or after the commit.
 * @param {DrawnCache} record
 * @param {number} prefix
 * @param {number} prompt
 * @param {number} first
 * @param {boolean} after
 * @returns {string[]}
 */
function slotStates(record, prefix, prompt, first, after) {
  const end = after ? record.after : record.before + record.written;
  const old = Math.min(record.before, prefix);
  const kept = new Set(record.kept);
  return Array.from({ length: Math.max(end - first, 0) }, (_, index) => {
    const slot = first + index;
    if (slot < old) return slot < prompt ? "prompt" : "committed";
    if (slot < prefix) return "written now";
    if (after) return kept.size ? "kept" : "rebuilt";
    if (record.open) return "passed";
    return kept.has(slot) ? "kept" : "dropped";
  });
}

/**
 * The first slot of a strip: what lies before was there and stays.
 * @param {DrawnCache} record
 * @param {number} prefix
 * @param {number} across
 */
function firstSlot(record, prefix, across) {
  const last = Math.max(Math.min(record.before, record.after, prefix) - 1, 0);
  return last - (last % across);
}

/**
 * The caches, null if none was recorded.
 * @param {Step} step
 * @param {number} promptLength
 * @param {number | null} selected
 * @param {Position} position
 * @param {number} across slots in a row
 */
export function cacheFigure(
  step,
  promptLength = 0,
  selected = null,
  position = WHOLE,
  across = 64
) {
  if (!step.caches.length) return null;
  /** @type {Strips} */
  const strips = { across, cells: [], labels: [], notes: [], signs: [], slides: [] };
  const caches = cachesAt(step, position);
  for (const record of caches) addStrip(strips, step, record, promptLength);
  const count = strips.cells.length;
  const framed = strips.signs.filter(sign => selected !== null && sign.node === selected);
  const [tickvals, ticktext] = [0, 1].map(part => strips.labels.map(label => label[part]));
  const layout = layoutOf("caches", cacheLines({ ...step, caches }).join(" "), {
    height: CACHE_PITCH * count + 16,
    xaxis: { range: [-0.5, across - 0.5] },
    yaxis: { range: [count - 0.5, -0.5], tickvals, ticktext },
    annotations: strips.notes,
    shapes: framed.map(({ x, y }) => frameAt(x - 0.5, x + 0.5, y - 0.5, y + 0.5))
  });
  return { data: cacheTraces(strips), layout, ...strips };
}

/**
 * The caches as far as a position has come: the target has the nodes' rows from verify on, and only
 * the commit keeps, drops and moves rows.
 * @param {Step} step
 * @param {Position} position
 * @returns {DrawnCache[]}
 */
function cachesAt(step, position) {
  if (reached(position, "commit")) return step.caches;
  /** @type {Pick<DrawnCache, "kept" | "moved" | "open">} */
  const undecided = { kept: [], moved: [], open: true };
  return step.caches.map(record => {
    const waits = record.name === "target" && !reached(position, "verify");
    return { ...record, written: waits ? 0 : record.written, ...undecided };
  });
}

/**
 * Whether each path ran on a copy of this cache, which then reads the accepted tokens itself.
 * @param {{paths: number[][]}} step
 * @param {DrawnCache} record
 */
function isCopied(step, record) {
  return record.name === "target" && step.paths.length > 0;
}

/**
 * The blocks of a cache's strip: label, states, and the nodes on the copy of a path.
 * @param {Step} step
 * @param {DrawnCache} record
 * @param {number} prompt
 * @param {number} first
 * @returns {[string, string[], number[]][]}
 */
function blocksOf(step, record, prompt, first) {
  const { prefix_length: prefix, paths } = step;
  const copied = isCopied(step, record);
  const held = copied ? { ...record, written: 0, kept: [] } : record;
  /** @param {boolean} after */
  const states = after => slotStates(held, prefix, prompt, first, after);
  /** @type {[string, string[], number[]][]} */
  const blocks = [[copied ? "kept" : "during", states(false), []]];
  for (const path of copied && record.written ? paths : [])
    blocks.push([
      `path ${blocks.length}`,
      [...states(false).fill("copied"), ...path.map(() => "thrown")],
      path
    ]);
  return record.open ? blocks : [...blocks, ["after", states(true), []]];
}

/**
 * Adds the strip of a cache: its blocks of rows, and arrows from the pass to the commit.
 * @param {Strips} strips
 * @param {Step} step
 * @param {DrawnCache} record
 * @param {number} prompt
 */
function addStrip(strips, step, record, prompt) {
  const { prefix_length: prefix } = step;
  /** @param {string} text */
  const heading = text => {
    strips.notes.push(noteAt(plotText(text), -0.5, strips.cells.length, LOOKS.heading));
    strips.cells.push([]);
  };
  heading(cacheWords(step, record, "heading"));
  const { across } = strips;
  const first = firstSlot(record, prefix, across);
  if (first) heading(foldedWords(first - 1, prompt));
  const landed = new Map(
    record.kept.map((slot, index) => [slot, record.after - record.kept.length + index])
  );
  const origins = new Map([...landed].map(([slot, goal]) => [goal, slot]));
  const places = [new Map(), new Map()];
  for (const [label, states, path] of blocksOf(step, record, prompt, first)) {
    const after = label === "after";
    if (after) strips.cells.push([]); // room for arrows
    const used = Math.max(Math.ceil(states.length / across), 1) * across;
    const most = Math.max(states.length, Math.min(record.capacity - first, used));
    while (!isCopied(step, record) && states.length < most) states.push("free");
    for (let start = 0; start < states.length; start += across) {
      const y = strips.cells.length;
      const row = states.slice(start, start + across);
      strips.labels.push([y, start ? `from ${first + start}` : label]);
      strips.cells.push(row.map(state => Object.keys(LOOKS.caches).indexOf(state)));
      row.forEach((state, x) => {
        const slot = first + start + x;
        places[Number(after)].set(slot, [x, y]);
        let origin = after ? (origins.get(slot) ?? -1) : slot;
        if (state === "thrown") origin = prefix + path[slot - prefix];
        if (LOOKS.caches[state].sign)
          strips.signs.push({ x, y, ...slotSign(step, record, slot, state, origin, landed) });
      });
    }
  }
  if (isCopied(step, record)) return;
  for (const [from, to] of landed)
    if (places[0].has(from) && places[1].has(to))
      strips.slides.push([places[0].get(from), places[1].get(to)]);
}

/**
 * Which slots before the strip hold the prompt, if its length is known, and which text.
 * @param {number} last
 * @param {number} prompt
 */
function foldedWords(last, prompt) {
  let name = "folded";
  if (prompt) name = prompt > last ? "folded.prompt" : "folded.both";
  return words("cache", name, { last, end: prompt - 1, start: prompt });
}

/**
 * The sign of a slot, what it holds in words, its node.
 * @param {Step} step
 * @param {DrawnCache} record
 * @param {number} slot
 * @param {string} state
 * @param {number} origin
 * @param {Map<number, number>} landed
 */
function slotSign(step, record, slot, state, origin, landed) {
  const { sign, label } = LOOKS.caches[state];
  const row = origin - step.prefix_length;
  // a draft's slots are not recorded per node
  const node = record.name === "target" && row >= 0 && row < step.nodes.length ? row : null;
  const held =
    node === null
      ? ""
      : words("cache", "node", { node, token: step.nodes[node].token }, step.texts);
  const goal = landed.get(slot);
  const moved =
    origin === slot && goal !== undefined && goal !== slot ? words("cache", "moved", { goal }) : "";
  const order = record.kept.indexOf(origin);
  return {
    sign: state === "kept" && order >= 0 ? (ORDER[order] ?? "•") : sign,
    tip: plotText(words("cache", "slot", { slot, held, label, moved })),
    strong: ["kept", "rebuilt"].includes(state),
    node
  };
}

/** @param {Strips} strips */
function cacheTraces({ cells, signs, slides }) {
  const colors = Object.values(LOOKS.caches).map(look => look.color);
  const traces = [{ ...codeMap(cells, colors), ygap: 2 }];
  /** @param {keyof Slot} name */
  const column = name => signs.map(sign => sign[name]);
  if (signs.length)
    traces.push({
      ...LOOKS.traces.signs,
      x: column("x"),
      y: column("y"),
      text: column("sign"),
      hovertext: column("tip"),
      customdata: column("node"),
      textfont: {
        size: 11,
        family: LOOKS.mono,
        color: column("strong").map(strong => (strong ? "#FFFFFF" : "var(--sl-ink)"))
      }
    });
  const moves = slides.filter(([from, to]) => from[0] !== to[0]);
  if (moves.length) {
    const points = moves.flatMap(
      /** @returns {number[][]} */ ([from, to]) => [from, to, [null, null]]
    );
    const size = moves.flatMap(() => [0, 9, 0]);
    traces.push({
      ...LOOKS.traces.moves,
      x: points.map(point => point[0]),
      y: points.map(point => point[1]),
      marker: { symbol: "arrow", angleref: "previous", size, color: "var(--sl-muted)" }
    });
  }
  return traces;
}

/**
 * The legend of the states that a figure shows.
 * @param {{cells: number[][]} | null} figure
 * @returns {{label: string, color: string, sign: string}[]}
 */
export function cacheKey(figure) {
  const used = new Set(figure?.cells.flat());
  return Object.values(LOOKS.caches).filter((_, code) => used.has(code));
}

/** @param {DrawnCache} record */
function cacheValues(record) {
  // a head has its own name, such as "chat"
  const name = record.name in WORDS.title ? record.name : `${record.name} draft head`;
  return {
    ...record,
    name: `${name[0].toUpperCase()}${name.slice(1)}`,
    full: record.before + record.written,
    memory: ((record.after * record.slot_bytes) / 2 ** 20).toFixed(1),
    kept: record.kept.length,
    moved: record.moved.length,
    checks: Object.entries(cacheChecks(record))
      .map(([name, passed]) => `${passed ? "✓" : "✗"} ${name}`)
      .join(" ")
  };
}

/**
 * What happens to a cache, in a heading or a line; before the commit always in a heading.
 * @param {{paths: number[][]}} step
 * @param {DrawnCache} record
 * @param {string} form
 */
function cacheWords(step, record, form) {
  const name = `${record.open ? "open" : form}${isCopied(step, record) ? " paths" : ""}`;
  return words("cache", name, { ...cacheValues(record), paths: step.paths.length });
}

/** A line per cache. @param {{caches: DrawnCache[], paths: number[][]}} step @returns {string[]} */
export function cacheLines(step) {
  return step.caches.map(record => cacheWords(step, record, "line"));
}

/**
 * Whether each check of a cache after a commit passed.
 * @param {DrawnCache} record
 * @returns {Record<string, boolean>}
 */
function cacheChecks(record) {
  /** @param {number[]} values */
  const rising = values => values.every((value, index) => !index || value > values[index - 1]);
  return {
    length:
      record.name === "target"
        ? record.after === record.committed
        : record.after <= record.committed,
    positions: rising(record.kept),
    moves:
      record.moved.every(([from, to]) => from > to && record.kept.includes(from)) &&
      rising(record.moved.map(move => move[1])),
    space: Math.max(record.before + record.written, record.after) <= record.capacity
  };
}
