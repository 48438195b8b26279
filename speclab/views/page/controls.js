// The bar, the menu and the keys.

import { WORDS } from "./data.js";
import { asks, button, choiceOf, div, entryOf, made, span } from "./draw.js";
import { PHASES } from "./phases.js";
import { LATER, asking, placeInPhase, positionShown } from "./state.js";

/** @param {Context} context @param {Features} features */
export function barOf(context, features) {
  const { state, dispatch, send, live } = context;
  const look = WORDS.controls;
  const back = button("◀", look.back, () => dispatch({ type: "go", cursor: state().cursor - 1 }));
  const step = button("Step", look.step, () => {
    dispatch({ type: "next" });
    // while it is off, a button loses the focus
    step.closest("[tabindex]").focus({ preventScroll: true });
  });
  const place = span("sl-place");
  const phases = phasesOf(dispatch);
  const until = untilOf(context);
  const stop = asks(send, "Stop", { do: "stop" }, look.stop);
  const play = playOf(context);
  const menu = menuOf(context, features, until.element);
  const going = live ? [until.run, stop] : [];
  /** @param {State} now */
  const update = now => {
    const { status, gone } = now;
    const refused = status.error && status.error.where !== "until" && status.pending?.length;
    const off = Boolean(gone || status.busy || refused) || status.can_step === false;
    const forward = now.cursor < now.steps.length && !status.pending?.length;
    place.textContent = `${now.cursor} of ${now.steps.length}`;
    back.disabled = now.cursor <= 0;
    step.textContent = stepWords(now);
    step.disabled = asking(now) || (!forward && (!live || off));
    until.run.disabled = asking(now) || off;
    if (status.error?.where === "until") until.hint.textContent = status.error.sentence;
    stop.hidden = !status.busy;
    until.run.hidden = !stop.hidden;
    for (const one of phases.querySelectorAll("[data-phase]")) {
      const here = one.dataset.phase === positionShown(now).phase && now.cursor > 0;
      const { name, count } = placeInPhase(now);
      one.textContent = `${one.dataset.phase}${here && count > 1 ? ` ${name}` : ""}`;
      one.setAttribute("aria-pressed", String(here));
      one.tabIndex = here ? 0 : -1;
      one.disabled = !now.cursor || (asking(now) && LATER.includes(one.dataset.phase));
    }
  };
  return {
    element: div("sl-bar", back, step, ...going, place, phases, play.element, menu),
    update,
    walk: play.start,
    end: play.end
  };
}

/** What Step does next. @param {State} state */
function stepWords({ status, gone, steps, cursor }) {
  if (!status.pending?.length || gone) return "Step";
  const over = status.new_run && status.finished && cursor === steps.length;
  return over ? `Start over with ${status.wanted.strategy.name}` : "Apply & step";
}

/** @param {(event: PageEvent) => void} dispatch */
function phasesOf(dispatch) {
  const buttons = PHASES.map(name =>
    button(name, { "data-phase": name }, () => dispatch({ type: "phase", name }))
  );
  /** @param {string} sign @param {number} by */
  const arrow = (sign, by) =>
    button(sign, WORDS.controls[sign], () => dispatch({ type: "along", by }));
  const look = { ...WORDS.controls.phases, keydown: rowKeys };
  return made("span", look, arrow("‹", -1), ...buttons, arrow("›", 1));
}

/** Shows the phases of an iteration one after another. @param {Context} context */
function playOf({ state, dispatch }) {
  let timer = 0;
  const end = () => {
    clearInterval(timer);
    timer = 0;
    element.textContent = "▶";
  };
  const next = () => {
    const { tick } = state();
    dispatch({ type: "along", by: 1 });
    if (state().tick === tick || positionShown(state()).phase === "all") end();
  };
  const start = () => {
    clearInterval(timer);
    timer = setInterval(next, 900);
    element.textContent = "❚❚";
    const { cursor } = state();
    if (positionShown(state()).phase === "all") dispatch({ type: "go", cursor, tick: 0 });
  };
  const element = button("▶", WORDS.controls.play, () => (timer ? end() : start()));
  return { element, start, end };
}

/** @param {Context} context */
function untilOf({ send, kernel }) {
  const kinds = Object.entries(WORDS.until).filter(([name]) => kernel || name !== "expression");
  const options = kinds.map(([name, [label]]) => [name, label]);
  const kind = choiceOf(options, options[0][0], chosen, WORDS.controls.until);
  const hint = made("span", WORDS.controls.hint);
  const forget = () => hint.replaceChildren();
  const run = button("Run", WORDS.controls.run, () => {
    if (value.hidden || value.value) {
      const wanted = value.type === "number" ? value.valueAsNumber : value.value;
      return send({ do: "run", until: { kind: kind.value, value: wanted } });
    }
    hint.textContent = WORDS.controls.condition.title;
    value.closest("details").open = true;
    value.focus();
  });
  function chosen() {
    const [, type, example = ""] = WORDS.until[kind.value];
    value.hidden = type === null;
    value.type = type ?? "text";
    value.value = type === "number" ? "2" : "";
    value.placeholder = example;
    forget();
  }
  const value = made("input", {
    ...WORDS.controls.condition,
    input: forget,
    /** @param {KeyboardEvent} event */
    keydown: ({ key }) => key === "Enter" && run.click()
  });
  return {
    element: div("sl-until", "Run until ", kind, value, hint),
    run,
    hint
  };
}

/**
 * @param {Context} context
 * @param {Features} features
 * @param {HTMLElement} until
 */
function menuOf({ state, dispatch, live }, features, until) {
  /** @param {"rows" | "marks" | "large"} name */
  const flip = name => () => dispatch({ type: "set", values: { [name]: !state()[name] } });
  const entries = made(
    "div",
    {},
    live ? until : null,
    entryOf("As table", flip("rows")),
    entryOf("Marks in the text", flip("marks")),
    entryOf("Large", flip("large")),
    ...features.all("entries")
  );
  const summary = made("summary", WORDS.controls.more, "⋯");
  const menu = made("details", WORDS.controls.menu, summary, entries);
  /** @param {Event} event a press beside the open menu, or Escape, closes it */
  const leave = event => {
    if (event.type === "pointerdown" && event.composedPath().includes(menu)) return;
    if (event instanceof KeyboardEvent && event.key !== "Escape") return;
    menu.open = false;
  };
  menu.addEventListener("toggle", () => {
    const change = menu.open ? addEventListener : removeEventListener;
    change("pointerdown", leave, true);
    change("keydown", leave, true);
  });
  return menu;
}

/** @param {Context} context @returns {(event: any) => void} */
export function keysOf({ state, dispatch, live }) {
  return event => {
    const { key, ctrlKey, altKey, metaKey, defaultPrevented } = event;
    const target = /** @type {any} */ (event.target);
    const typed = target.matches?.("input, textarea, select, [contenteditable], [role=slider]");
    const does = WORDS.keys[key];
    if (!does || typed || ctrlKey || altKey || metaKey || defaultPrevented) return;
    if (key === " " && (!live || target.matches?.("button, summary, a"))) return;
    event.preventDefault();
    event.stopPropagation();
    const { cursor, node } = state();
    dispatch({ ...does, cursor: cursor + does.by, node });
  };
}

/**
 * In the tree: parent, first child, the neighbours of the column.
 * @param {Context} context
 * @param {any} tree its place on the page
 * @returns {(event: KeyboardEvent) => void}
 */
export function treeKeysOf({ state, dispatch }, tree) {
  return event => {
    /** @type {Entry[]} */
    const table = tree.figure?.table;
    if (!table || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
    const seen = table.filter(entry => entry.kind && entry.kind !== "folded");
    const here = table.find(entry => entry.id === state().node);
    const column = seen.filter(entry => entry.depth === here?.depth).sort((a, b) => a.row - b.row);
    const at = column.indexOf(here);
    const to = !here
      ? table[0]
      : {
          ArrowLeft: table[here.parent],
          ArrowRight: seen.find(entry => table[entry.parent] === here),
          ArrowUp: column[at - 1],
          ArrowDown: column[at + 1]
        }[event.key];
    if (to) dispatch({ type: "select", node: to.id });
  };
}

/**
 * Left and right go along a row of which Tab reaches one button: the tabs, the phases.
 * @param {any} event
 */
export function rowKeys(event) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[/** @type {string} */ (event.key)];
  if (!by) return;
  event.preventDefault();
  event.stopPropagation();
  const buttons = [...event.currentTarget.querySelectorAll("[data-tab], [data-phase]")];
  const shown = buttons.filter(one => !one.hidden && !one.disabled);
  const next = shown.at((shown.indexOf(event.target) + by) % shown.length);
  next.focus();
  next.click();
}
