// The stage, the timeline, the text and the tabs: figures of the pure files, put on the page only
// if they changed.

import { LOOKS, WORDS } from "./data.js";
import { themed } from "./figure.js";
import { countsOf, textPieces } from "./metrics.js";
import { reached, verifiedRoot } from "./phases.js";
import { asking, positionShown } from "./state.js";
import { plural, readable } from "./text.js";
import { filled, words } from "./words.js";

/**
 * An element.
 * @param {string} tag
 * @param {Record<string, any>} attributes functions are listeners, truth values properties
 * @param {...any} children
 * @returns {any}
 */
export function made(tag, attributes = {}, ...children) {
  /** @type {any} */
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "class") element.className = value;
    else if (typeof value === "boolean") element[name] = value;
    else if (value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child != null));
  return element;
}

/** @param {string} name its class @param {...any} children */
export function div(name, ...children) {
  return made("div", { class: name }, ...children);
}

/** @param {string} name its class @param {...any} children */
export function span(name, ...children) {
  return made("span", { class: name }, ...children);
}

/** @param {string} label @param {Record<string, any>} attributes @param {() => void} click */
export function button(label, attributes, click) {
  return made("button", { type: "button", ...attributes, click }, label);
}

/**
 * An entry of the menu, which closes it.
 * @param {string} label
 * @param {() => void} click
 * @param {Record<string, any>} look
 */
export function entryOf(label, click, look = {}) {
  const entry = button(label, { class: "sl-entry", ...look }, () => {
    entry.closest("details").open = false;
    click();
  });
  return entry;
}

/**
 * The key of a picture: what each sign means.
 * @param {{label: string, color: string, sign: string}[]} looks
 * @param {"color" | "background"} paint
 * @returns {HTMLElement[]}
 */
export function keyOf(looks, paint = "color") {
  return looks.map(({ label, color, sign }) =>
    made("span", {}, made("i", { style: `${paint}:${color}` }, sign || "\u00a0"), ` ${label}`)
  );
}

/** Saves what is at an address. @param {string} href @param {string} name */
export function saveAs(href, name) {
  made("a", { href, download: name }).click();
}

/**
 * A button that sends a message.
 * @param {(message: Message) => void} send
 * @param {string} label
 * @param {Message} message
 * @param {Record<string, any>} look
 */
export function asks(send, label, message, look = {}) {
  return button(label, look, () => send(message));
}

/** Where a refusal is shown: beside what it refuses. @param {string} name */
export function refusal(name) {
  return made("span", { class: "sl-refused", "data-where": name, role: "alert" });
}

/**
 * Calls the last action only, when none came for these milliseconds.
 * @param {number} wait
 * @returns {(action: () => void) => void}
 */
export function later(wait) {
  let timer = 0;
  return action => {
    clearTimeout(timer);
    timer = setTimeout(action, wait);
  };
}

/**
 * A select.
 * @param {any[][]} options values and labels
 * @param {any} value
 * @param {(value: string) => void} changed
 * @param {Record<string, any>} attributes
 */
export function choiceOf(options, value, changed, attributes = {}) {
  const choices = options.map(([one, label]) => made("option", { value: one }, label));
  const change = () => changed(select.value);
  const select = made("select", { ...attributes, change }, ...choices);
  select.value = value;
  return select;
}

/**
 * The theme's colours by their role, for plotly.
 * @param {HTMLElement} element
 * @returns {Record<string, string>}
 */
export function rolesOf(element) {
  const style = getComputedStyle(element);
  return Object.fromEntries(
    Object.keys(LOOKS.themes.light).map(role => [
      `var(--sl-${role})`,
      style.getPropertyValue(`--sl-${role}`).trim() || "#888"
    ])
  );
}

/**
 * Whether an element shows these values already; it is drawn from them now.
 * @param {any} element
 * @param {any[]} values
 */
export function shows(element, values) {
  /** @type {{drawn?: any[]}} */
  const { drawn } = element;
  element.drawn = values;
  return drawn?.length === values.length && drawn.every((value, index) => value === values[index]);
}

/**
 * Draws figures with plotly; the same arguments draw nothing.
 * @param {any} Plotly
 * @param {() => Record<string, string>} colors
 * @returns {Plot}
 */
export function plotter(Plotly, colors) {
  return (place, key, figureOf) => {
    const theme = colors();
    if (shows(place, [...key, JSON.stringify(theme)])) return;
    const { data, layout, ...more } = figureOf();
    place.figure = more;
    place.setAttribute("aria-label", layout.meta?.sentence ?? "");
    const template = { layout: themed(LOOKS.template.layout, theme) };
    const width = layout.width ?? (place.clientWidth || 200);
    const looks = { ...themed(layout, theme), width, template, uirevision: key[0] };
    Plotly.react(place, themed(data, theme), looks, LOOKS.plot);
  };
}

/** @param {Table} table @returns {HTMLElement} */
export function tableOf({ head, rows, sentence }) {
  const heads = head.map(cell => made("th", { scope: "col" }, cell));
  /** @param {string | number} cell */
  const cellOf = cell =>
    made("td", { class: typeof cell === "number" ? "sl-number" : "" }, String(cell));
  const lines = rows.map(row => made("tr", {}, ...row.map(cellOf)));
  return made(
    "table",
    { class: "speclab-table" },
    made("caption", {}, sentence),
    made("thead", {}, made("tr", {}, ...heads)),
    made("tbody", {}, ...lines)
  );
}

/**
 * The text so far: a span for each list of pieces.
 * @param {HTMLElement} body
 * @param {State} state
 */
export function drawText(body, state) {
  const now = positionShown(state);
  const known = state.cursor - Number(state.cursor > 0 && !reached(now, "commit"));
  const seen = asking(state) ? state.cursor - 1 : known;
  if (shows(body, [state.header, state.steps, state.marks, seen, body.clientWidth])) return;
  const lists = textPieces(state.header, state.steps.slice(0, seen));
  const lines = lists.map((pieces, iteration) => {
    const line = made("span", iteration === seen && iteration ? { class: "sl-newest" } : {});
    const { length } = iteration ? state.steps[iteration - 1].committed : [];
    const mark = { class: "sl-mark", "data-iteration": iteration };
    if (state.marks && iteration) line.append(made("span", mark, `${iteration} +${length}`));
    /** @type {any} */
    let chip = null; // what a chat template wrote, as one sign of who speaks
    for (const { text, kind, title, node } of pieces) {
      const own = { "data-node": iteration === state.cursor ? node : null };
      if (kind === "template" && !state.marks) {
        chip ??= line.appendChild(span("sl-chip", title));
        chip.title += text;
        continue;
      }
      chip = null;
      const tag = kind === "rejected" ? "s" : "span";
      if (state.marks || kind !== "rejected")
        line.append(made(tag, { class: `sl-t sl-${kind}`, title, ...own }, readable(text)));
    }
    return line;
  });
  const step = state.steps[state.cursor - 1];
  const root = lines[state.cursor - 1]?.lastElementChild;
  if (step && root && verifiedRoot(step)) root.setAttribute("data-node", "0");
  body.replaceChildren(...lines);
  body.scrollTop = body.scrollHeight;
}

/** What runs, how far and how long. @param {Record<string, any>} status */
export function workWords({ busy, began, progress }) {
  if (!busy) return "";
  const seconds = Math.round((performance.now() - began) / 1000);
  const share = typeof progress === "number" ? ` (${Math.round(100 * progress)} %)` : "";
  return `${busy}${share}${seconds > 1 ? ` … ${seconds} s` : ""}`;
}

/**
 * Who drafts and who checks, in short `the draft` and `SmolLM2`; where no model drafts, the strategy
 * does. `about`: what a draft head is, if one drafts alone.
 * @param {Header} header
 * @param {Step | undefined} step
 */
export function namesOf({ models }, step, short = false) {
  const runs = (step?.caches ?? []).filter(({ name }) => name !== "target");
  const drafts = runs.map(
    ({ name }) =>
      (!short && models[name]) || filled(WORDS.title[name] ?? WORDS.title.head, { name })
  );
  const heads = runs.filter(({ name }) => !models[name] && !WORDS.title[name]);
  const about = heads.length && runs.length === 1 ? WORDS.title.about : "";
  const said = short ? "" : models.drafts; // a link says who drafted
  const draft = said || drafts.join(" + ") || step?.settings.strategy;
  const verb = drafts.length > 1 ? "draft" : "drafts";
  const whole = models.target ?? "target";
  const [word] = whole.split("/").at(-1).split("-");
  const named = WORDS.title[word] ?? words("title", "named", { name: word });
  const target = short || !models.target ? named : whole;
  return { target, draft, verb, about };
}

/** The set-up: what decoded the iteration shown. @param {State} state @returns {string} */
export function titleOf({ header, steps, cursor, status: { wanted } }) {
  const step = steps[Math.max(cursor - 1, 0)];
  const { strategy, temperature } = { ...header?.settings, ...step?.settings };
  const names = wanted ? [wanted.models?.name, wanted.strategy.name] : [];
  if (!header) return names.filter(Boolean).join(" · ");
  const roles = namesOf(header, step);
  const parts = [
    words("title", "checks", roles),
    roles.draft !== strategy && words("title", "drafts", roles),
    strategy,
    temperature && `temperature ${temperature}`
  ];
  return parts.filter(Boolean).join(" · ");
}

/**
 * The payoff: tokens of the newest pass, and per pass; the passes here and of plain decoding.
 * @param {State} state
 */
export function gainOf(state) {
  const { steps, cursor } = state;
  const known = steps.slice(0, asking(state) ? cursor - 1 : cursor);
  const { committed, target_calls: here } = countsOf(known);
  if (!here) return { sentence: "", plain: 0, here: 0 };
  const values = { now: known.at(-1).committed.length, rate: committed / here };
  const sentence = words("score", asking(state) ? "asked" : "line", values);
  return { sentence, plain: committed, here };
}

/**
 * Passes of plain decoding above those here, on one scale.
 * @param {HTMLElement} place
 * @param {Record<string, any>} counts
 */
export function drawRibbons(place, counts) {
  if (shows(place, [counts.plain, counts.here])) return;
  const unit = Math.min(12, 230 / counts.plain); // pixels of a pass
  const lines = ["plain", "here"].map(name => {
    const width = `width:${unit * counts[name]}px;--sl-unit:${unit}px`;
    return div(
      "",
      WORDS.score[name],
      made("i", { style: width }),
      plural(counts[name], "pass", "passes")
    );
  });
  place.replaceChildren(...(counts.here ? lines : []));
}
