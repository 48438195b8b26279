// The bar, the menu, the runs, the tree built by hand, and the keys.

import { LOOKS, WORDS } from "./data.js";
import { asks, button, choiceOf, div, made, shows, span } from "./draw.js";
import { OWN, PHASES } from "./phases.js";
import { LATER, asking, positionShown, stepShown } from "./state.js";
import { labelOf } from "./text.js";

/** @param {Context} context */
export function barOf(context) {
  const { state, dispatch, send, live } = context;
  const look = WORDS.controls;
  const back = button("◀", look.back, () => dispatch({ type: "go", cursor: state().cursor - 1 }));
  const step = button(live ? "Step" : "▶", look.step, () => {
    dispatch({ type: "next" });
    // while it is off, a button loses the focus
    step.closest("[tabindex]").focus({ preventScroll: true });
  });
  const place = span("sl-place");
  const phases = phasesOf(dispatch);
  const until = untilOf(context);
  const stop = asks(send, "Stop", { do: "stop" }, look.stop);
  const play = playOf(context);
  const menu = menuOf(context, until.element, play.start);
  const going = live ? [until.run, stop] : [];
  /** @param {State} now */
  const update = now => {
    const { status, gone } = now;
    const off = Boolean(gone || status.busy) || status.can_step === false;
    const forward = now.cursor < now.steps.length && !status.pending?.length;
    place.textContent = `${now.cursor} of ${now.steps.length}`;
    back.disabled = now.cursor <= 0;
    if (live) step.textContent = stepWords(now);
    step.disabled = asking(now) || (!forward && (!live || off));
    until.run.disabled = asking(now) || off;
    if (status.error?.where === "until") until.hint.textContent = status.error.sentence;
    stop.hidden = !status.busy;
    until.run.hidden = !stop.hidden;
    menu.guess.setAttribute("aria-pressed", String(Boolean(now.guess.on)));
    for (const one of phases.querySelectorAll("[data-phase]")) {
      const here = one.dataset.phase === positionShown(now).phase && now.cursor > 0;
      one.setAttribute("aria-pressed", String(here));
      one.disabled = !now.cursor || (asking(now) && LATER.includes(one.dataset.phase));
    }
  };
  return {
    element: div("sl-bar", back, step, ...going, place, phases, play.element, menu.element),
    update,
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
  return made("span", WORDS.controls.phases, arrow("‹", -1), ...buttons, arrow("›", 1));
}

/** Shows one phase after another. @param {Context} context */
function playOf({ state, dispatch }) {
  let timer = 0;
  const end = () => {
    clearInterval(timer);
    element.hidden = true;
  };
  /** Whether a phase was left to show. */
  const next = () => {
    const { cursor, tick } = state();
    dispatch({ type: "along", by: 1 });
    return state().cursor !== cursor || state().tick !== tick;
  };
  const start = () => {
    clearInterval(timer);
    element.hidden = false;
    timer = setInterval(() => next() || end(), 900);
    if (!next() && !asking(state())) dispatch({ type: "go", cursor: 1, tick: 0 });
  };
  const element = button("Pause", WORDS.controls.pause, end);
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

/** @param {File} file a saved run @param {(message: Message) => void} send */
export function openFile(file, send) {
  const reader = new FileReader();
  reader.onload = () => {
    const [, data] = String(reader.result).split(",");
    send({ do: "open", name: file.name, data });
  };
  reader.readAsDataURL(file);
}

/** @param {Context} context @param {HTMLElement} until @param {() => void} play */
function menuOf({ state, dispatch, send, live, kernel, picture }, until, play) {
  const change = () => {
    openFile(file.files[0], send);
    file.value = "";
  };
  const file = made("input", { type: "file", accept: ".gz,.json,.jsonl", hidden: true, change });
  /** @param {string} label @param {() => void} click */
  const entry = (label, click) =>
    button(label, { class: "sl-entry" }, () => {
      menu.open = false;
      click();
    });
  /** @param {"rows" | "marks"} name */
  const flip = name => () => dispatch({ type: "set", values: { [name]: !state()[name] } });
  const files = [
    entry("Picture as SVG", () => picture("svg")),
    entry("Picture as PNG", () => picture("png"))
  ];
  if (live)
    files.push(
      entry("Save run", () => send({ do: "save", what: "run" })),
      entry("Open run", () => file.click()),
      file
    );
  if (kernel) files.push(entry("Save page", () => send({ do: "save", what: "page" })));
  const guess = entry("Guess first", () => dispatch({ type: "guessing", on: !state().guess.on }));
  guess.title = WORDS.controls.guess.title;
  const tabs = ["compare", "check"].map(name =>
    entry(WORDS.tabs[name], () => dispatch({ type: "tab", name }))
  );
  const views = [entry("As table", flip("rows")), entry("Marks in the text", flip("marks"))];
  const menu = made(
    "details",
    WORDS.controls.menu,
    made("summary", WORDS.controls.more, "⋯"),
    made(
      "div",
      {},
      live ? until : null,
      entry("Play phases", play),
      guess,
      ...(kernel ? tabs : []),
      ...views,
      ...files
    )
  );
  return { element: menu, guess };
}

/**
 * The runs and forks of this lab, each with its colour; nothing for one run.
 * @param {State} state
 * @param {(message: Message) => void} send
 */
export function runsOf({ runs }, send) {
  if (runs.length < 2) return null;
  const buttons = runs.map(({ name, number, iterations, shown }) => {
    const color = LOOKS.sources[number % LOOKS.sources.length];
    const dot = made("i", { style: `color:${color}` }, "● ");
    const look = { "aria-pressed": String(shown), "data-run": number };
    const show = asks(send, "", { do: "switch", run: number }, look);
    show.append(dot, `${name} · ${iterations}`);
    const title = `close ${name}`;
    const close = asks(send, "×", { do: "close", run: number }, { title });
    close.hidden = shown;
    return span("sl-run", show, close);
  });
  return made("div", WORDS.controls.runs, ...buttons);
}

/** The row of the node picked in the tree being edited; -1 without one. @param {State} state */
function editedRow({ node, preview, status }) {
  if (node === null || node === OWN) return -1;
  if (typeof node === "string") return Number(node.slice(4)); // new 12
  return status.by_hand ? preview.what_if.recorded.indexOf(node) : node;
}

/**
 * What the draft proposed after the selected node and is not its child yet, best first.
 * @param {State} state
 */
export function freeTokens(state) {
  const step = stepShown(state);
  const { tree } = state.status.by_hand ? state.preview.what_if : step;
  const row = editedRow(state);
  const taken = tree.token.filter((_, node) => tree.parent[node] === row);
  const top = step.nodes[state.node]?.draft_top ?? [];
  return top.map(([token]) => token).filter(token => !taken.includes(token));
}

/** @param {Context} context */
export function byHandOf({ state, send }) {
  const child = made("select", WORDS.controls.child);
  const typed = made("input", WORDS.controls.token);
  const hint = span("sl-muted");
  /** @param {{do: "add", token: number | null, text: string | null} | {do: "prune"}} message */
  const tell = message => send({ ...message, node: editedRow(state()) });
  const add = button("Add", {}, () =>
    tell(
      child.value && !typed.value
        ? { do: "add", token: Number(child.value), text: null }
        : { do: "add", token: null, text: typed.value }
    )
  );
  const prune = button("Prune", {}, () => tell({ do: "prune" }));
  const undo = asks(send, "Undo", { do: "undo" });
  const verify = asks(send, "Verify", { do: "verify" }, WORDS.controls.verify);
  const name = made("b", {}, "By hand");
  const element = div("sl-byhand", name, hint, child, typed, add, prune, undo, verify);
  /** @param {State} now */
  const update = now => {
    const step = stepShown(now);
    const off = !step || Boolean(now.status.busy || now.gone);
    const picked = editedRow(now) >= 0;
    const top = picked ? freeTokens(now) : [];
    hint.textContent = picked
      ? `a child of node ${now.node}:`
      : "Select a node of the tree, then add a child or prune it.";
    if (!shows(child, [now.node, top.join()]))
      child.replaceChildren(
        ...top.map(token => made("option", { value: token }, labelOf(token, step.texts)))
      );
    child.hidden = !top.length;
    typed.hidden = !picked;
    add.disabled = prune.disabled = !picked || off;
    undo.disabled = verify.disabled = off || !now.status.by_hand;
  };
  return { element, update };
}

/** @param {Context} context @returns {(event: any) => void} */
export function keysOf({ state, dispatch, live }) {
  /** @param {number} cursor */
  const go = cursor => dispatch({ type: "go", cursor });
  /** @type {Record<string, () => void>} */
  const keys = {
    ArrowLeft: () => go(state().cursor - 1),
    ArrowRight: () => go(state().cursor + 1),
    Home: () => go(0),
    End: () => go(state().steps.length),
    PageUp: () => go(state().cursor - 10),
    PageDown: () => go(state().cursor + 10),
    "[": () => dispatch({ type: "along", by: -1 }),
    "]": () => dispatch({ type: "along", by: 1 }),
    Escape: () => dispatch({ type: "select", node: state().node }),
    " ": () => dispatch({ type: "next" })
  };
  return event => {
    const { key, ctrlKey, altKey, metaKey, defaultPrevented } = event;
    const target = /** @type {any} */ (event.target);
    const typed = target.matches?.("input, textarea, select, [contenteditable], [role=slider]");
    if (!keys[key] || typed || ctrlKey || altKey || metaKey || defaultPrevented) return;
    if (key === " " && (!live || target.matches?.("button, summary, a"))) return;
    event.preventDefault();
    event.stopPropagation();
    keys[key]();
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
 * Left and right go along the row of tabs.
 * @param {Context} context
 * @param {HTMLElement} tabs
 * @returns {(event: KeyboardEvent) => void}
 */
export function tabKeysOf({ state, dispatch }, tabs) {
  return event => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const shown = /** @type {HTMLElement[]} */ ([...tabs.children]).filter(tab => !tab.hidden);
    const here = shown.findIndex(tab => tab.dataset.tab === state().tab);
    const next = shown.at((here + by) % shown.length);
    dispatch({ type: "tab", name: next.dataset.tab });
    next.focus();
  };
}
