// What the page shows, as plain data: reduce(state, event) gives the next state and the messages
// for the kernel.

import { LOOKS } from "./data.js";
import { WHOLE, lastOnPath, positions } from "./phases.js";
import { overlayOf } from "./tree.js";
import { ending, words } from "./words.js";

/** @type {WeakMap<Step, Step>} */
const SECRETS = new WeakMap(); // a picture is drawn again when its step is another object
export const LATER = ["verify", "accept", "commit", "all"]; // phases that a guess hides

/** What is not named is not there yet. @returns {State} */
export function firstState() {
  const state = {
    steps: /** @type {Step[]} */ ([]),
    cursor: 0,
    tick: 0,
    node: /** @type {NodeId} */ (null),
    tab: "", // none is open at first
    status: {},
    runs: /** @type {Run[]} */ ([]),
    gone: "",
    guess: { on: false, asked: /** @type {null} */ (null), tries: 0, right: 0, sentence: "" }
  };
  return /** @type {any} */ (state);
}

/** The step at the cursor; while a guess is asked for, without its outcome.
 *  @param {State} state @returns {Step | null} */
export function stepShown(state) {
  const step = state.steps[state.cursor - 1] ?? null;
  if (!asking(state)) return step;
  if (!SECRETS.has(step)) SECRETS.set(step, beforeVerify(step));
  return SECRETS.get(step);
}

/** What is known of a step before the target has answered. @param {Step} step @returns {Step} */
function beforeVerify(step) {
  const { drafted, longest_path } = step.counts;
  return {
    ...step,
    ...LOOKS.unanswered.step,
    root_choice: step.root_choice === null ? null : -1,
    counts: { drafted, longest_path },
    nodes: step.nodes.map(node => ({
      ...node,
      ...LOOKS.unanswered.node,
      verdict: node.verdict === "root" ? "root" : "not reached"
    }))
  };
}

/** @param {State} state @returns {Position[]} */
function ticksOf(state) {
  const step = stepShown(state);
  return step ? positions(step) : [WHOLE];
}

/** @param {State} state @returns {Position} */
export function positionShown(state) {
  const ticks = ticksOf(state);
  return ticks[Math.min(state.tick, ticks.length - 1)];
}

/** @param {State} state */
export function asking(state) {
  return state.guess.asked !== null && state.guess.asked === state.cursor - 1;
}

/** The preview of the iteration shown; null elsewhere. @param {State} state */
export function overlayShown(state) {
  const step = stepShown(state);
  const { preview } = state;
  if (
    !step ||
    !preview?.what_if ||
    preview.index !== step.index ||
    positionShown(state).phase !== "all"
  )
    return null;
  return overlayOf(step, preview.what_if);
}

/** @param {State} state @param {number} cursor @param {number} tick @returns {State} */
function movedTo(state, cursor, tick = Infinity) {
  const next = { ...state, cursor: Math.min(Math.max(cursor, 0), state.steps.length) };
  if (next.cursor !== state.cursor) next.node = null;
  const ticks = ticksOf(next);
  const last = asking(next) ? ticks.findIndex(one => one.phase === "flatten") : ticks.length - 1;
  return { ...next, tick: Math.min(Math.max(tick, 0), last) };
}

/** @param {State} state @returns {Message} */
function shownMessage(state) {
  const { phase, level } = positionShown(state);
  return { do: "shown", cursor: state.cursor, phase, level, node: state.node, tab: state.tab };
}

/**
 * The tick of a phase: its end, or its next position if it is shown already.
 * @param {State} state
 * @param {string} name
 * @param {number | null} level
 */
function phaseTick(state, name, level = null) {
  const ticks = ticksOf(state).flatMap((one, tick) => (one.phase === name ? [tick] : []));
  if (level !== null)
    return ticks.find(tick => ticksOf(state)[tick].level === level) ?? ticks[ticks.length - 1];
  const here = ticks.indexOf(state.tick);
  return here < 0 ? ticks[ticks.length - 1] : ticks[(here + 1) % ticks.length];
}

/**
 * @param {State} state
 * @param {PageEvent} event
 * @returns {[State, Message[]]} the next state, and what the kernel is told
 */
export function reduce(state, event) {
  /** @param {State} next @returns {[State, Message[]]} */
  const told = next => [next, [shownMessage(next)]];
  switch (event.type) {
    case "go":
      return told(movedTo(state, event.cursor, event.tick));
    case "along":
      return told(along(state, event.by));
    case "phase":
      return stepShown(state)
        ? told(movedTo(state, state.cursor, phaseTick(state, event.name)))
        : [state, []];
    case "select":
      return asking(state)
        ? guessed(state, event.node)
        : told({ ...state, node: event.node === state.node ? null : event.node });
    case "tab":
      return told({ ...state, tab: event.name });
    case "next":
      return stepped(state);
    case "guessing": {
      const guess = { ...state.guess, on: event.on, asked: /** @type {null} */ (null) };
      return [movedTo({ ...state, guess }, state.cursor), [{ do: "guess", on: event.on }]];
    }
    case "set":
      return [{ ...state, ...event.values }, []];
    default:
      return [received(state, event), []];
  }
}

/**
 * Step: what is decoded already needs no kernel.
 * @param {State} state
 * @returns {[State, Message[]]}
 */
function stepped(state) {
  const { status } = state;
  if (asking(state)) return [state, []];
  if (state.cursor < state.steps.length && !status.pending?.length) {
    const next = movedTo(state, state.cursor + 1);
    return [next, [shownMessage(next)]];
  }
  if (state.gone || status.busy || status.can_step === false) return [state, []];
  return [state, [{ do: "step", start: status.new_run ? "start" : "here" }]];
}

/**
 * Positions, on into the next iteration and back into the last.
 * @param {State} state
 * @param {number} by
 */
function along(state, by) {
  const last = ticksOf(state).length - 1;
  if (state.tick + by >= 0 && state.tick + by <= last)
    return movedTo(state, state.cursor, state.tick + by);
  if (by > 0 && state.cursor < state.steps.length) return movedTo(state, state.cursor + 1, 0);
  return by < 0 && state.cursor > 0 ? movedTo(state, state.cursor - 1) : state;
}

/** @param {State} state @param {any} node @returns {[State, Message[]]} */
function guessed(state, node) {
  if (!Number.isInteger(node)) return [state, []];
  const step = state.steps[state.cursor - 1];
  const right = node === Math.max(lastOnPath(step), 0);
  const { on } = state.guess; // for so many iterations, or until it is turned off
  const tries = state.guess.tries + 1;
  const sentence = words("guess", right ? "right" : "wrong", {
    node,
    ending: ending(step)
  });
  /** @type {Guess} */
  const guess = {
    ...state.guess,
    on: on === true || Number(on) - 1,
    asked: null,
    tries,
    right: state.guess.right + Number(right),
    sentence
  };
  const next = { ...state, node, guess };
  const moved = movedTo(next, state.cursor, phaseTick(next, "accept", Infinity));
  return [moved, [shownMessage(moved)]];
}

/** A message of the kernel. @param {State} state @param {PageEvent} message @returns {State} */
function received(state, message) {
  switch (message.type) {
    case "catalog":
      return { ...state, catalog: message, gone: "" };
    case "run":
      return opened(state, message);
    case "step": {
      const steps = [...state.steps.slice(0, message.index), message.step];
      const asked = state.guess.on && message.step.nodes.length > 1 ? message.index : null;
      return movedTo(
        { ...state, steps, preview: null, guess: { ...state.guess, asked, sentence: "" } },
        steps.length
      );
    }
    case "show": {
      let next = message.cursor === state.cursor ? state : movedTo(state, message.cursor);
      if (message.phase !== positionShown(next).phase && !asking(next) && stepShown(next))
        next = movedTo(
          next,
          next.cursor,
          phaseTick(next, message.phase, message.level ?? Infinity)
        );
      return { ...next, node: message.node ?? null, tab: message.tab ?? next.tab };
    }
    case "status": {
      const status = { ...state.status, ...message };
      if ("busy" in message || "since" in message)
        status.began = performance.now() - 1000 * (message.since ?? 0);
      const guess = "guess" in message ? { ...state.guess, on: message.guess } : state.guess;
      return { ...state, status, guess };
    }
    case "runs":
      return { ...state, runs: message.runs };
    case "gone":
      return { ...state, gone: message.sentence, status: { ...state.status, busy: null } };
    case "preview":
    case "curve":
    case "pinned":
    case "compared":
      return { ...state, [message.type]: message };
    case "diffed":
      return { ...state, diffed: message.diff };
    default:
      return state;
  }
}

/** @param {State} state @param {PageEvent & {type: "run"}} message @returns {State} */
function opened(state, { id, header, keep, steps, cursor }) {
  const next = { ...state, header, steps: [...state.steps.slice(0, keep), ...steps] };
  if (id !== undefined && id === state.run) return next; // another page said hello
  /** @type {Guess} */
  const guess = { ...state.guess, asked: null, sentence: "" };
  const first =
    guess.on && next.steps.length && next.steps.length === cursor && !keep ? cursor - 1 : null;
  if (first !== null && next.steps[first].nodes.length > 1) guess.asked = first;
  return movedTo(
    { ...next, run: id, guess, preview: null, node: null, cursor: -1 },
    cursor ?? next.steps.length
  );
}
