// Guessing: an iteration stops after drafting, and the person clicks the last node that the target
// will accept.

import { WORDS } from "../../views/page/data.js";
import { button, entryOf } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { lastOnPath } from "../../views/page/phases.js";
import { asking, movedTo, phaseTick, positionShown, shownMessage } from "../../views/page/state.js";
import { quoted } from "../../views/page/text.js";
import { words } from "../../views/page/words.js";
import GUESS_WORDS from "./words.json" with { type: "json" };

const NOT_VEILED = /** @type {null} */ (null);
/** @type {Guess} */
const NO_GUESS = { on: false, tries: 0, right: 0, sentence: "", done: [] };

/**
 * @param {State} state
 * @param {PageEvent} event
 * @returns {[State, Message[]] | null}
 */
function guessReduce(state, event) {
  if (event.type === "guessing") {
    const guess = { ...state.guess, on: event.on };
    const next = { ...state, guess, veiled: NOT_VEILED };
    return [movedTo(next, state.cursor), [{ do: "guess", on: event.on }]];
  }
  if (event.type === "select" && asking(state)) return guessed(state, event.node);
  return null;
}

/**
 * The answer to a guess: the iteration goes on to what was accepted.
 * @param {State} state
 * @param {NodeId} node
 * @returns {[State, Message[]]}
 */
function guessed(state, node) {
  if (!Number.isInteger(node)) return [state, []];
  const step = state.steps[state.cursor - 1];
  const right = node === Math.max(lastOnPath(step), 0);
  const { on, tries, right: before, done } = state.guess;
  /** @type {Guess} */
  const guess = {
    on: on === true || Number(on) - 1, // for so many iterations, or until it is turned off
    tries: tries + 1,
    right: before + Number(right),
    sentence: guessWords(step, node, right),
    done: [...done, state.cursor - 1]
  };
  const next = { ...state, node, guess, veiled: NOT_VEILED };
  const moved = movedTo(next, state.cursor, phaseTick(next, "accept", Infinity));
  return [moved, [shownMessage(moved)]];
}

/**
 * What was clicked, and what the target did.
 * @param {Step} step
 * @param {number} node
 * @param {boolean} right
 */
function guessWords({ tree, texts, accepted, bonus }, node, right) {
  const path = accepted.map(one => texts[tree.token[one]]).join("");
  const values = {
    node: tree.token[node],
    kept: path ? quoted(0, { 0: path }) : WORDS.guess.nothing,
    end: words("guess", bonus === null ? "ended" : "own", { token: bonus }, texts)
  };
  return words("guess", right ? "right" : "wrong", values, texts);
}

/**
 * Veils a new iteration that has something to guess, or one that was decoded and not guessed yet.
 * @param {State} state
 * @param {PageEvent} message
 * @param {State} before
 */
function guessAfter(state, message, before) {
  if (message.type === "status" && "guess" in message)
    return { ...state, guess: { ...state.guess, on: message.guess } };
  if (message.type === "next" || message.type === "along")
    return state.cursor > before.cursor && hasQuestion(state) ? veil(state) : state;
  if (message.type !== "step" && message.type !== "run") return state;
  if (message.type === "run" && message.id !== undefined && message.id === before.run) return state; // another page said hello
  const done = message.type === "run" ? [] : state.guess.done;
  const next = { ...state, guess: { ...state.guess, sentence: "", done }, veiled: NOT_VEILED };
  // a run that opens at its end was decoded for this page
  const fresh = message.type === "step" || (!message.keep && message.cursor === state.steps.length);
  return fresh && hasQuestion(next) ? veil(next) : next;
}

/** Whether the iteration shown has something to guess. @param {State} state */
function hasQuestion({ guess, steps, cursor }) {
  return guess.on && steps[cursor - 1]?.nodes.length > 1 && !guess.done.includes(cursor - 1);
}

/** Before the outcome of the iteration at the cursor. @param {State} state */
function veil(state) {
  const guess = { ...state.guess, sentence: "" };
  return movedTo({ ...state, guess, veiled: state.cursor - 1 }, state.cursor);
}

/** @param {Context} context @returns {Partial<FeaturePage>} */
function guessPage({ state, dispatch }) {
  const flip = () => dispatch({ type: "guessing", on: !state().guess.on });
  const entry = entryOf("Guess first", flip, WORDS.controls.guess);
  const ask = () => {
    if (!state().guess.on) flip();
    dispatch({ type: "next" }); // the question is about the next iteration
  };
  return {
    entries: () => [entry],
    next: () => ({ label: WORDS.next.guess, go: ask }),
    update: now => entry.setAttribute("aria-pressed", String(Boolean(now.guess.on))),
    score: ({ guess }) => (guess.tries ? [words("score", "guessed", guess)] : []),
    story(now) {
      if (asking(now)) return [WORDS.guess.ask];
      const { sentence } = now.guess;
      return sentence && positionShown(now).phase === "accept" ? [sentence] : [];
    },
    besideStory: now => (asking(now) ? [button("Just show it", WORDS.controls.link, flip)] : [])
  };
}

register(
  {
    name: "guess",
    state: { guess: NO_GUESS },
    reduce: guessReduce,
    after: guessAfter,
    page: guessPage
  },
  GUESS_WORDS
);
