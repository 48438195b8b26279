// What the page shows, as plain data: reduce(state, event) gives the next state and the messages
// for the kernel.

import { LOOKS } from "./data.js";
import { FEATURES, adjusted, answerOf } from "./features.js";
import { WHOLE, positions } from "./phases.js";
import { overlayOf } from "./tree.js";

/** @type {WeakMap<Step, Step>} */
const SECRETS = new WeakMap(); // a picture is drawn again when its step is another object
export const LATER = ["verify", "accept", "commit", "all"]; // phases that are veiled

/** What is not named is not there yet. @returns {State} */
export function firstState() {
  const state = {
    steps: /** @type {Step[]} */ ([]),
    cursor: 0,
    tick: 0,
    node: /** @type {NodeId} */ (null),
    tab: "", // none is open at first
    status: {},
    veiled: /** @type {null} */ (null),
    gone: ""
  };
  return /** @type {any} */ (Object.assign(state, ...FEATURES.map(feature => feature.state)));
}

/** The step at the cursor; while it is veiled, without its outcome.
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

/** Whether the iteration shown hides what comes after drafting. @param {State} state */
export function asking(state) {
  return state.veiled !== null && state.veiled === state.cursor - 1;
}

/** The tree that is drawn in place of the iteration's: a preview, or that of a feature. @param {State} state */
export function overlayShown(state) {
  const step = stepShown(state);
  const { preview } = state;
  if (!step || asking(state) || positionShown(state).phase !== "all") return null;
  if (preview?.what_if && preview.index === step.index) return overlayOf(step, preview.what_if);
  for (const { overlay } of FEATURES) {
    const drawing = overlay?.(state, step);
    if (drawing) return drawing;
  }
  return null;
}

/** @param {State} state @param {number} cursor @param {number} tick @returns {State} */
export function movedTo(state, cursor, tick = Infinity) {
  const next = { ...state, cursor: Math.min(Math.max(cursor, 0), state.steps.length) };
  if (next.cursor !== state.cursor) next.node = null;
  const ticks = ticksOf(next);
  const last = asking(next) ? ticks.findIndex(one => one.phase === "flatten") : ticks.length - 1;
  return { ...next, tick: Math.min(Math.max(tick, 0), last) };
}

/** @param {State} state @returns {Message} */
export function shownMessage(state) {
  const { phase, level } = positionShown(state);
  return { do: "shown", cursor: state.cursor, phase, level, node: state.node, tab: state.tab };
}

/**
 * Which position of its phase is shown, as `2/6`, and how many it has.
 * @param {State} state
 */
export function placeInPhase(state) {
  const now = positionShown(state);
  const ticks = ticksOf(state).filter(one => one.phase === now.phase);
  const number = ticks.findIndex(one => one.level === now.level) + 1;
  return { name: `${number}/${ticks.length}`, count: ticks.length };
}

/**
 * The tick of a phase: its start, or its next position if it is shown already.
 * @param {State} state
 * @param {string} name
 * @param {number | null} level
 */
export function phaseTick(state, name, level = null) {
  const ticks = ticksOf(state).flatMap((one, tick) => (one.phase === name ? [tick] : []));
  if (level !== null)
    return ticks.find(tick => ticksOf(state)[tick].level === level) ?? ticks[ticks.length - 1];
  return ticks[(ticks.indexOf(state.tick) + 1) % ticks.length];
}

/**
 * @param {State} state
 * @param {PageEvent} event
 * @returns {[State, Message[]]} the next state, and what the kernel is told
 */
export function reduce(state, event) {
  /** @param {State} next @returns {[State, Message[]]} */
  const told = next => [next, [shownMessage(next)]];
  const own = answerOf(state, event);
  if (own) return own;
  switch (event.type) {
    case "go":
      return told(movedTo(state, event.cursor, event.tick));
    case "along":
      return told(adjusted(along(state, event.by), event, state));
    case "phase":
      return stepShown(state)
        ? told(movedTo(state, state.cursor, phaseTick(state, event.name)))
        : [state, []];
    case "select":
      return told({ ...state, picked: true, node: event.node === state.node ? null : event.node });
    case "tab":
      return told({ ...state, tab: event.name });
    case "next":
      return stepped(state, event);
    case "set":
      return [{ ...state, ...event.values }, []];
    default:
      return [adjusted(received(state, event), event, state), []];
  }
}

/**
 * Step: what is decoded already needs no kernel.
 * @param {State} state
 * @param {PageEvent} event
 * @returns {[State, Message[]]}
 */
function stepped(state, event) {
  const { status } = state;
  if (asking(state)) return [state, []];
  if (state.cursor < state.steps.length && !status.pending?.length) {
    const next = adjusted(movedTo(state, state.cursor + 1), event, state);
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

/** A message of the kernel. @param {State} state @param {PageEvent} message @returns {State} */
function received(state, message) {
  switch (message.type) {
    case "catalog":
      return { ...state, catalog: message, gone: "" };
    case "run":
      return opened(state, message);
    case "step": {
      const steps = [...state.steps.slice(0, message.index), message.step];
      return movedTo({ ...state, steps, preview: null }, steps.length);
    }
    case "show": {
      let next = message.cursor === state.cursor ? state : movedTo(state, message.cursor);
      const { phase, level } = positionShown(next);
      const elsewhere = message.phase !== phase || (message.level ?? level) !== level;
      if (elsewhere && !asking(next) && stepShown(next))
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
      return { ...state, status };
    }
    case "gone":
      return { ...state, gone: message.sentence, status: { ...state.status, busy: null } };
    default:
      return { ...state, [message.type]: message }; // for a feature
  }
}

/** @param {State} state @param {PageEvent & {type: "run"}} message @returns {State} */
function opened(state, { id, header, keep, steps, cursor }) {
  const next = { ...state, header, steps: [...state.steps.slice(0, keep), ...steps] };
  if (id !== undefined && id === state.run) return next; // another page said hello
  const nothing = /** @type {null} */ (null);
  const first = { ...next, run: id, veiled: nothing, preview: nothing, node: nothing, cursor: -1 };
  return movedTo(first, cursor ?? next.steps.length);
}
