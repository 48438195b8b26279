// Runs over iterations: timeline, metrics, the payoff, the text.

import { LOOKS, WORDS } from "./data.js";
import { layoutOf, noteAt, withValues } from "./figure.js";
import { decisions, ownKind, shapeOf } from "./phases.js";
import { joinedBytes } from "./text.js";
import { filled, markOf, words } from "./words.js";

const MOST = 120; // iterations in a picture
const LEAST = 16; // iterations that an axis has room for

/**
 * How many of the first iterations a picture leaves out.
 * @param {number} count
 * @param {number} cursor
 */
export function firstShown(count, cursor) {
  return Math.max(Math.min(cursor - MOST / 2, count - MOST), 0);
}

/** Accepted tokens that were committed. @param {Step} step */
function gainedByDraft(step) {
  return Math.min(step.accepted.length, step.committed.length);
}

/**
 * Ticks at iterations that exist; few iterations still get the room of LEAST.
 * @param {number} first
 * @param {number} count
 */
function iterationAxis(first, count, least = LEAST) {
  const every = [1, 2, 5, 10].find(step => count <= 25 * step || step === 10);
  const numbers = Array.from({ length: count }, (_, index) => first + index + 1).filter(
    number => number % every === 0
  );
  return { range: [first + 0.4, first + Math.max(count, least) + 0.6], tickvals: numbers };
}

/**
 * One bar per iteration, a frame around that of the cursor, a sign above findings. The result of
 * iteration `hidden` is not shown.
 * @param {Step[]} steps all of the run
 * @param {number} first left out
 * @param {number | null} hidden its index
 * @param {number} cursor
 * @param {number} least iterations that have room
 * @param {number} fork iterations before a fork; -1: it is none
 */
export function timelineFigure(
  steps,
  first = 0,
  hidden = null,
  cursor = steps.length,
  least = LEAST,
  fork = -1
) {
  const shown = steps.slice(first, first + MOST);
  const x = shown.map(step => step.index + 1);
  /** @template T @param {Step} step @param {T} value */
  const known = (step, value) => (step.index === hidden ? null : value);
  const accepted = shown.map(step => known(step, gainedByDraft(step)));
  /** @param {string} kind */
  const own = kind =>
    shown.map(step => known(step, step.bonus !== null && ownKind(step) === kind ? 1 : null));
  /** @param {string} name @param {(number | null)[]} y */
  const bars = (name, y, more = {}) => {
    const looks = { ...LOOKS.traces.iterations, ...LOOKS.timeline[name] };
    return { ...looks, x, y, customdata: x, ...more };
  };
  const data = withValues([
    bars(
      "drafted",
      shown.map(step => step.counts.longest_path + 1)
    ),
    bars("accepted", accepted),
    bars("bonus", own("bonus"), { base: accepted }),
    bars("corrected", own("corrected"), { base: accepted })
  ]);
  const above = { xref: "x", xanchor: "center", yanchor: "top" };
  const signs = shown
    .filter(step => step.findings.length)
    .map(step => noteAt(markOf(step.findings[0])[0], step.index + 1, 1, above));
  const shapes = [{ ...LOOKS.cursor, x0: cursor - 0.5, x1: cursor + 0.5 }];
  if (fork >= first) shapes.push({ ...LOOKS.fork, x0: fork + 0.5, x1: fork + 0.5 });
  const end = first + shown.length;
  if (cursor < end) shapes.push({ ...LOOKS.veil, x0: cursor + 0.5, x1: end + 0.5 });
  if (first)
    signs.push(
      noteAt(words("timeline", "earlier", { count: first }), 0, 1, {
        yanchor: "top",
        font: { size: 11 }
      })
    );
  const sentence = words("timeline", "sentence", { count: steps.length, cursor });
  const xaxis = iterationAxis(first, shown.length, least);
  return { data, layout: layoutOf("timeline", sentence, { annotations: signs, shapes, xaxis }) };
}

/**
 * Tokens per iteration above milliseconds by phase.
 * @param {Step[]} steps up to the cursor
 * @param {number} first left out
 */
export function metricsFigure(steps, first = 0) {
  const shown = steps.slice(first);
  const x = shown.map(step => step.index + 1);
  const bar = { ...LOOKS.traces.metrics, x, customdata: x };
  const accepted = shown.map(gainedByDraft);
  const own = shown.map((step, index) => step.committed.length - accepted[index]);
  const data = withValues([
    { ...bar, ...LOOKS.metrics.accepted, y: accepted },
    { ...bar, ...LOOKS.metrics.own, y: own },
    ...Object.entries(LOOKS.phases).map(([name, color]) => ({
      ...bar,
      ...LOOKS.metrics.phase,
      y: shown.map(step => (step.seconds[name] ? 1000 * step.seconds[name] : null)),
      name,
      marker: { color },
      hovertemplate: `%{y:.2f} ms ${name}<extra></extra>`
    }))
  ]);
  const annotations = [
    noteAt(WORDS.metrics.tokens, 0, 1),
    noteAt(WORDS.metrics.milliseconds, 0, 0.42)
  ];
  const xaxis = iterationAxis(first, shown.length);
  return { data, layout: layoutOf("metrics", metricsSentence(steps), { annotations, xaxis }) };
}

/**
 * What a check with the models found, in one line; null if there was none.
 * @param {Step[]} steps
 */
export function checkVerdict(steps) {
  const gaps = steps.flatMap(step => step.gaps.filter(Boolean));
  if (!gaps.length) return null;
  const found = steps.flatMap(step => step.findings).filter(({ kind }) => kind !== "tie");
  return words("checked", found.length ? "wrong" : "right", {
    iterations: steps.filter(step => step.gaps.length).length,
    rows: gaps.length,
    findings: found.length,
    gap: Number(Math.max(...gaps.map(([gap]) => gap)).toPrecision(2))
  });
}

/**
 * Quantiles of the gaps by depth, recorded and of the reference; null if nothing was measured.
 * @param {Step[]} steps
 * @returns {Table | null}
 */
export function gapTable(steps) {
  /** @type {(number | null)[][][]} */
  const depths = [];
  for (const step of steps)
    step.gaps.forEach(
      (gap, node) => gap && (depths[shapeOf(step.tree).depth[node]] ??= []).push(gap)
    );
  /** @param {(number | null)[][]} gaps @param {number} side */
  const quantiles = (gaps, side) => {
    const known = gaps
      .map(gap => gap[side])
      .filter(value => value !== null)
      .sort((a, b) => a - b);
    return [0.5, 0.9, 1].map(share => {
      const value = known[Math.round(share * (known.length - 1))];
      return value === undefined ? "–" : Number(value.toPrecision(2));
    });
  };
  const rows = depths.map((gaps, depth) => [
    depth,
    gaps.length,
    ...quantiles(gaps, 0),
    ...quantiles(gaps, 1)
  ]);
  return rows.length ? { ...WORDS.gaps, rows } : null;
}

/**
 * Two runs along the text, joined where they part: by iteration the accepted tokens, then the
 * target's own.
 * @param {Diff} diff
 * @returns {Figure}
 */
export function diffFigure({ passes, names, text, answers, proposals, sentence }) {
  const { accepted, bonus } = LOOKS.nodes;
  const data = passes.flatMap((run, side) =>
    [accepted, bonus].map(({ color }, own) => ({
      ...LOOKS.traces.passes,
      y: run.map(() => -side),
      base: run.map(pass => pass[0] + own * pass[1]),
      x: run.map(pass => pass[1 + own]),
      customdata: run.map((_, index) => index + 1),
      marker: { color }
    }))
  );
  const partings = Object.entries({ text, answers, proposals }).filter(
    ([, position]) => position !== null
  );
  const shapes = partings.map(([, x]) => ({ ...LOOKS.upright, x0: x, x1: x }));
  const annotations = partings.map(([name, x], index) =>
    noteAt(words("diff", name), x, 1, { xref: "x", yshift: 14 * index })
  );
  const last = Math.max(...passes.map(run => run.at(-1).reduce((sum, count) => sum + count)));
  const first = Math.max((partings[0]?.[1] ?? 0) - MOST / 2, passes[0][0][0]);
  return {
    data,
    layout: layoutOf("diff", sentence, {
      shapes,
      annotations,
      xaxis: { range: [first, Math.min(first + MOST, last)] },
      yaxis: { ticktext: names }
    })
  };
}

/** The counts of the steps, added up. @param {Step[]} steps @returns {Record<string, number>} */
export function countsOf(steps) {
  /** @type {Record<string, number>} */
  const total = {};
  for (const { counts } of steps)
    for (const [name, value] of Object.entries(counts))
      total[name] = (total[name] ?? 0) + Number(value);
  return total;
}

/**
 * Four numbers, each with its definition.
 * @param {Step[]} steps
 * @returns {{name: string, value: string, definition: string}[]}
 */
export function metricNumbers(steps) {
  const total = countsOf(steps);
  return WORDS.numbers.map(({ name, part, whole, format, definition }) => {
    const value = total[whole] ? total[part] / total[whole] : 0;
    return { name, definition, value: filled(`{value:${format}}`, { value }) };
  });
}

/** @param {Step[]} steps */
function metricsSentence(steps) {
  if (!steps.length) return WORDS.metrics.none;
  const [rate, share, , speed] = metricNumbers(steps).map(one => one.value);
  return words("metrics", "sentence", { count: steps.length, rate, share, speed });
}

/**
 * The text as pieces: first the prompt and the first token, then one list per step. Byte tokens are
 * joined to characters.
 * @param {Header} header
 * @param {Step[]} steps
 * @returns {Piece[][]}
 */
export function textPieces(header, steps) {
  /** @type {Header["prompt_parts"]} */
  const parts = header.prompt_parts.length
    ? header.prompt_parts
    : [[null, 0, header.prompt_ids.length]];
  const prompt = parts.flatMap(([role, start, stop], part) => {
    const kind = role === null ? "prompt" : role ? "role" : "template";
    const speaker = kind === "template" ? (parts[part + 1]?.[0] ?? "assistant") : role;
    return header.prompt_ids
      .slice(start, stop)
      .map(token => pieceOf(token, header.texts, kind, 0, speaker ?? ""));
  });
  const first = [header.first_token ?? []].flat();
  const start = first.map(token => pieceOf(token, header.texts, "first", 0, WORDS.text.first));
  const lists = [[...prompt, ...start], ...steps.map(stepPieces)];
  const written = lists.flat().filter(piece => piece.kind !== "rejected");
  joinedBytes(written.map(piece => piece.text)).forEach((text, index) => {
    written[index].text = text;
  });
  return lists;
}

/**
 * @param {number} token
 * @param {Texts} texts
 * @param {string} kind
 * @param {number} iteration
 * @param {string} title
 * @returns {Piece}
 */
function pieceOf(token, texts, kind, iteration, title = "") {
  return { text: texts[token] ?? `#${token}`, kind, iteration, token, title };
}

/**
 * The pieces of an iteration: before a correction the rejected candidates.
 * @param {Step} step
 * @returns {Piece[]}
 */
function stepPieces(step) {
  const taken = decisions(step);
  return step.committed.flatMap((token, index) => {
    const node = step.accepted[index] ?? null;
    const kind = node === null ? ownKind(step) : "accepted";
    const losers = (taken[index]?.candidates ?? []).filter(one => one !== node);
    const source = node === null ? "target" : step.tree.source[node];
    const title = words("text", kind, { token, source, number: step.index + 1 }, step.texts);
    const struck = kind === "corrected" ? losers : [];
    const rejected = struck.map(one =>
      pieceOf(step.tree.token[one], step.texts, "rejected", step.index + 1)
    );
    return [...rejected, pieceOf(token, step.texts, kind, step.index + 1, title)];
  });
}
