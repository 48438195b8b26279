// What a page shows, as a plain object and in an address: `&i=3&phase=accept&level=2&node=5&guess`.

import { positionShown } from "../../views/page/state.js";

/** @param {State} state @returns {Place} */
export function shownPlace(state) {
  const { cursor, node, tab, guess } = state;
  return { i: cursor, ...positionShown(state), node, tab, guess: Boolean(guess?.on) };
}

/** What is not as at first, after the `#` of an address. @param {Place} place */
export function addressOf({ i, phase, level, node, tab, guess }) {
  const fields = [["i", i]];
  if (phase !== "all") fields.push(["phase", phase]);
  if (level !== null) fields.push(["level", level]);
  if (node !== null) fields.push(["node", node]);
  if (tab) fields.push(["tab", tab]);
  const parts = fields.map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  return (guess ? [...parts, "guess"] : parts).join("&");
}

/** The place in an address; null if it names none. @param {string} hash @returns {Place | null} */
export function placeFrom(hash) {
  /** @type {Record<string, string>} */
  const fields = {};
  for (const part of hash.replace(/^#/, "").split("&")) {
    const [name, value = ""] = part.split("=");
    fields[name] = textOf(value);
  }
  const { i, phase = "all", level, node, tab = "" } = fields;
  if (!/^\d+$/.test(i ?? "1") || !("i" in fields || "phase" in fields || "guess" in fields))
    return null;
  return {
    i: Number(i ?? 1),
    phase,
    level: /^\d+$/.test(level) ? Number(level) : null,
    node: /^\d+$/.test(node) ? Number(node) : (node ?? null),
    tab,
    guess: "guess" in fields
  };
}

/** @param {string} value of an address, which may be cut within a sign */
function textOf(value) {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

/**
 * Shows a place of the run.
 * @param {Context} context
 * @param {Place} place
 */
export function goTo({ state, dispatch }, { i, guess, ...place }) {
  const cursor = Math.min(i, state().steps.length);
  if (guess && state().guess && cursor) {
    dispatch({ type: "guessing", on: true });
    dispatch({ type: "set", values: { veiled: cursor - 1 } });
  }
  dispatch({ type: "go", cursor });
  dispatch({ type: "show", cursor, ...place, moves: 0 });
}
