// Runs over iterations: the timeline, the counts, the text.

import { LOOKS, WORDS } from "./data.js";
import { layoutOf, noteAt, withValues } from "./figure.js";
import { decisions, ownKind } from "./phases.js";
import { joinedBytes } from "./text.js";
import { markOf, words } from "./words.js";

export const MOST = 120; // iterations in a picture

/**
 * How many of the first iterations a picture leaves out.
 * @param {number} count
 * @param {number} cursor
 */
export function firstShown(count, cursor) {
  return Math.max(Math.min(cursor - MOST / 2, count - MOST), 0);
}

/**
 * The tokens that each iteration wrote, by their kind; nothing for iteration `hidden`.
 * @param {Step[]} steps
 * @param {number | null} hidden its index
 */
export function gainsOf(steps, hidden = null) {
  /** @param {(step: Step) => number | null} count */
  const each = count => steps.map(step => (step.index === hidden ? null : count(step)));
  /** @param {string} kind */
  const own = kind => each(step => (step.bonus !== null && ownKind(step) === kind ? 1 : null));
  return {
    accepted: each(({ accepted, committed }) => Math.min(accepted.length, committed.length)),
    bonus: own("bonus"),
    corrected: own("corrected")
  };
}

/**
 * Ticks at iterations that exist; few iterations still get the room of `least`.
 * @param {number} first
 * @param {number} count
 */
export function iterationAxis(first, count, least = 1) {
  const every = [1, 2, 5, 10].find(step => count <= 20 * step || step === 10);
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
 * @param {number} fork iterations before a fork; -1: it is none
 */
export function timelineFigure(steps, first = 0, hidden = null, cursor = steps.length, fork = -1) {
  const shown = steps.slice(first, first + MOST);
  const x = shown.map(step => step.index + 1);
  const { accepted, bonus, corrected } = gainsOf(shown, hidden);
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
    bars("bonus", bonus, { base: accepted }),
    bars("corrected", corrected, { base: accepted })
  ]);
  const above = { xref: "x", xanchor: "center", yanchor: "top" };
  const signs = shown
    .filter(step => step.findings.length)
    .map(step => noteAt(markOf(step.findings[0])[0], step.index + 1, 1, above));
  const plain = { ...LOOKS.level, y0: 1, y1: 1 }; // what plain decoding writes
  const shapes = [plain, { ...LOOKS.cursor, x0: cursor - 0.5, x1: cursor + 0.5 }];
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
  const xaxis = iterationAxis(first, shown.length);
  return { data, layout: layoutOf("timeline", sentence, { annotations: signs, shapes, xaxis }) };
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
 * @param {number | null} node
 * @returns {Piece}
 */
function pieceOf(token, texts, kind, iteration, title = "", node = null) {
  return { text: texts[token] ?? `#${token}`, kind, iteration, token, title, node };
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
    return [...rejected, pieceOf(token, step.texts, kind, step.index + 1, title, node)];
  });
}
