// What features add to the page. The `tab.js` of a feature registers it; the page asks all of them,
// in the order of features/__init__.py, and knows none.

import { WORDS } from "./data.js";

/** @type {Feature[]} */
export const FEATURES = [];

/**
 * Adds a feature, and its sentences to those of the page.
 * @param {Feature} feature
 * @param {Record<string, any>} words groups as in words.json
 */
export function register(feature, words = {}) {
  FEATURES.push(feature);
  for (const [group, entries] of Object.entries(words)) {
    const plain = Array.isArray(entries);
    WORDS[group] = plain ? entries : { ...WORDS[group], ...entries };
  }
}

/**
 * The state after a feature has answered an event; null if none does.
 * @param {State} state
 * @param {PageEvent} event
 * @returns {[State, Message[]] | null}
 */
export function answerOf(state, event) {
  for (const { reduce } of FEATURES) {
    const answer = reduce?.(state, event);
    if (answer) return answer;
  }
  return null;
}

/**
 * The state after a message of the kernel or a step forward, with what features make of it.
 * @param {State} state
 * @param {PageEvent} message
 * @param {State} before
 */
export function adjusted(state, message, before) {
  let next = state;
  for (const { after } of FEATURES) next = after?.(next, message, before) ?? next;
  return next;
}

/**
 * What features are on one page. `all("parts", tab, state)` is a list of what those with a method
 * `parts` answer.
 * @param {Context} context
 */
export function featuresOf(context) {
  /** @type {FeaturePage[]} */
  const pages = [];
  for (const { name, page } of FEATURES) {
    if (page) pages.push({ name, ...page(context) });
  }
  /**
   * @param {FeatureMethod} method
   * @param {...any} values
   * @returns {any[]}
   */
  const all = (method, ...values) =>
    pages.flatMap((/** @type {any} */ page) => page[method]?.(...values) ?? []);
  return { pages, all };
}
