// The page: mount(element, host, Plotly) ties state, controls and drawing together.

import { cacheFigure, cacheKey } from "./caches.js";
import { barOf, keysOf, rowKeys, treeKeysOf } from "./controls.js";
import { LOOKS, WORDS } from "./data.js";
import {
  asks,
  button,
  div,
  drawRibbons,
  drawText,
  gainOf,
  keyOf,
  later,
  made,
  namesOf,
  plotter,
  rolesOf,
  shows,
  tableOf,
  titleOf,
  workWords
} from "./draw.js";
import { featuresOf } from "./features.js";
import { maskFigure } from "./mask.js";
import { firstShown, timelineFigure } from "./metrics.js";
import { animate, reveal } from "./motion.js";
import { blockTable, decidedRows, nodeRows } from "./node.js";
import { OWN, WHOLE, findingsAt, kindsAt } from "./phases.js";
import { formOf, settingsOf } from "./settings.js";
import { asking, firstState, overlayShown, positionShown, reduce, stepShown } from "./state.js";
import { watchPointer } from "./pointer.js";
import { treeFigure } from "./tree.js";
import { markOf, nodeSentence, remarks, story, words } from "./words.js";

const GAP = 20; // pixels between tree and mask
const CAPTION = 18; // pixels above a picture
const NOTEBOOK = 235; // pixels of a notebook's own bars and of the cell

/**
 * @param {HTMLElement} element
 * @param {Host} host
 * @param {any} Plotly
 */
export function mount(element, host, Plotly) {
  let state = firstState();
  let frame = 0;
  const tell = later(30);
  const kernel = host.kind === "kernel";
  const live = host.kind !== "none";
  /** @param {Message} message */
  const send = message => {
    if (!state.gone) host.send(message);
    features.all("sent", message);
  };
  const draw = () => {
    frame = 0;
    drawAll(state, parts, plot, context, features);
  };
  const schedule = () => {
    frame ||= requestAnimationFrame(draw);
  };
  /** @param {PageEvent} event */
  const dispatch = event => {
    const [next, messages] = reduce(state, event);
    state = next;
    for (const message of messages)
      if (message.do === "shown") tell(() => send(message));
      else send(message);
    features.all("heard", event);
    schedule();
    // only a person's event has this type; the tab may be below the fold
    if (event.type === "tab") requestAnimationFrame(() => reveal(parts.panel));
  };
  const context = { state: () => state, dispatch, send, live, kernel };
  globalThis.speclab = context; // for the console
  const features = featuresOf(context);
  const parts = partsOf(context, features);
  element.classList.add("speclab-page");
  element.replaceChildren(parts.top, parts.whole);
  const plot = plotter(Plotly, () => rolesOf(element));
  const keys = keysOf(context);
  host.keys.addEventListener("keydown", keys);
  takeKeys(element, parts.whole);
  features.all("mounted", element, Plotly);
  const forgetLooks = watchLooks(parts.whole, schedule);
  const clock = setInterval(() => state.status.busy && schedule(), 1000);
  host.on(dispatch);
  schedule();
  send({ do: "hello" });
  return {
    handle: dispatch,
    destroy() {
      parts.bar.end();
      clearInterval(clock);
      tell(() => {});
      cancelAnimationFrame(frame);
      features.all("ended");
      forgetLooks();
      host.keys.removeEventListener("keydown", keys);
      for (const place of element.querySelectorAll(".js-plotly-plot")) Plotly.purge(place);
    }
  };
}

/**
 * Calls `changed` when the size or the theme changes; returns how to stop.
 * @param {HTMLElement} whole
 * @param {() => void} changed
 */
function watchLooks(whole, changed) {
  const sizes = new ResizeObserver(changed);
  sizes.observe(whole);
  const themes = new MutationObserver(changed);
  themes.observe(document.body, { attributes: true });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", changed);
  return () => {
    sizes.disconnect();
    themes.disconnect();
    scheme.removeEventListener("change", changed);
  };
}

/**
 * A press beside the controls gives the page its keys.
 * @param {HTMLElement} element
 * @param {HTMLElement} whole
 */
function takeKeys(element, whole) {
  const controls = "button, input, select, summary, textarea, label, [tabindex='0']";
  element.addEventListener("pointerdown", event => {
    if (!(/** @type {any} */ (event.target).closest(controls)))
      whole.focus({ preventScroll: true });
  });
}

/**
 * The elements of the page.
 * @param {Context} context
 * @param {Features} features
 * @returns {Values}
 */
function partsOf(context, features) {
  const { state, dispatch, live } = context;
  /** @type {Values} */
  const parts = {};
  for (const [name, { in: outer, tag = "div", ...look }] of Object.entries(WORDS.parts)) {
    parts[name] = made(tag, look);
    parts[outer]?.append(parts[name]);
  }
  const flip = () => dispatch({ type: "set", values: { form: !state().form } });
  const change = live ? button("Change", { class: "speclab-change" }, flip) : "";
  const tabs = tabsOf(context, features);
  const bar = barOf(context, features);
  const form = formOf(context);
  parts.change.replaceWith(change);
  parts.formPlace.replaceWith(form.element);
  parts.barPlace.replaceWith(bar.element);
  parts.tabsPlace.replaceWith(tabs);
  parts.tree.addEventListener("keydown", treeKeysOf(context, parts.tree));
  parts.key.append(...keyOf(LOOKS.mask.key));
  const settings = settingsOf(context, features);
  const hover = watchPointer(parts, context, node => {
    const now = state();
    return nodeWords(now, node === undefined ? now.node : node);
  });
  return { ...parts, hover, change, bar, form, settings, tabs };
}

/** @param {Context} context @param {Features} features */
function tabsOf(context, features) {
  const names = ["settings"];
  for (const { name, tab } of features.pages) if (tab) names.push(name);
  const buttons = names.map(name =>
    button(WORDS.tabs[name], { role: "tab", "data-tab": name }, () =>
      context.dispatch({ type: "tab", name })
    )
  );
  return made("div", { ...WORDS.controls.tabs, keydown: rowKeys }, ...buttons);
}

/**
 * Brings every part up to date.
 * @param {State} state
 * @param {Record<string, any>} parts
 * @param {Plot} plot
 * @param {Context} context
 * @param {Features} features
 */
function drawAll(state, parts, plot, context, features) {
  const { status, header } = state;
  const begun = Boolean(header);
  const failed = status.error?.where === "start";
  parts.title.textContent = titleOf(state);
  if (parts.change) parts.change.disabled = Boolean(state.gone);
  for (const name of ["bar", "form"]) parts[name].update(state);
  parts.whole.classList.toggle("sl-begun", begun);
  parts.whole.classList.toggle("sl-large", Boolean(state.large));
  parts.bar.element.hidden = !begun && !failed;
  parts.runs.replaceChildren(...features.all("above", state).filter(Boolean));
  drawLines(state, parts, context);
  const busy = workWords(status);
  const stages = busy && context.kernel ? words("opening", "loaded", { busy }) : busy;
  parts.loading.textContent = failed ? status.error.sentence : stages;
  if (begun) {
    const gain = gainOf(state);
    const score = [gain.sentence, ...features.all("score", state)];
    parts.score.textContent = score.filter(Boolean).join(" · ");
    drawRibbons(parts.ribbons, gain);
    drawStage(state, parts, plot, context, features);
    drawText(parts.body, state);
    drawPanel(state, parts, plot, features);
  }
  drawError(state, parts);
}

/**
 * The pending line, progress and errors.
 * @param {State} state
 * @param {Record<string, any>} parts
 * @param {Context} context
 */
function drawLines(state, parts, { send }) {
  const { status, gone } = state;
  const begun = Boolean(state.header);
  parts.progress.hidden = !status.busy || typeof status.progress !== "number";
  parts.progress.value = status.progress ?? 0;
  const words = [];
  if (gone) words.push(gone);
  else {
    if (begun && status.busy) words.push(workWords(status));
    if (status.pending?.length) words.push(`Changed: ${status.pending.join("; ")}.`);
    if (status.message && !asking(state)) words.push(status.message);
  }
  const ended =
    begun &&
    !gone &&
    !asking(state) &&
    status.live &&
    status.can_step === false &&
    state.cursor === state.steps.length &&
    !status.busy;
  const cut = status.finished === "max_new_tokens";
  if (ended) words.push(cut ? "The length you set is reached." : "The text has ended.");
  const line = words.join(" ");
  if (shows(parts.pending, [line, ended, status.busy, status.new_run, status.error])) return;
  const actions = [];
  /** @param {string} label */
  const over = label => asks(send, label, { do: "step", start: "start" }, WORDS.controls.link);
  if (!gone && status.pending?.length && !status.new_run && !status.busy && !status.error)
    actions.push(over("from the start"));
  if (ended) {
    const length = status.wanted.session.max_new_tokens;
    const longer = () => {
      send({ do: "want", session: { max_new_tokens: 2 * length } });
      send({ do: "step", start: "here" });
    };
    actions.push(over("Start over"));
    if (cut) actions.push(button("Longer", {}, longer));
  }
  parts.pending.replaceChildren(line, ...actions.flatMap(action => [" ", action]));
  parts.pending.classList.toggle("sl-wrong", Boolean(gone));
}

/**
 * Shows a refusal beside what it refuses, if that can be seen; any other error below the timeline.
 * @param {State} state
 * @param {Values} parts
 */
function drawError({ status: { error }, header }, { whole, error: line }) {
  let seen = error?.where === "start" && !header;
  for (const spot of whole.querySelectorAll("[data-where]")) {
    spot.textContent = spot.dataset.where === error?.where ? error.sentence : "";
    seen ||= Boolean(spot.offsetParent); // empty ones and a closed form are not displayed
  }
  line.textContent = error && !seen ? error.sentence : "";
}

/**
 * @param {State} state
 * @param {Record<string, any>} parts
 * @param {Plot} plot
 * @param {Context} context
 * @param {Features} features
 */
function drawStage(state, parts, plot, context, features) {
  const step = stepShown(state);
  const now = positionShown(state);
  const commit = Boolean(step) && now.phase === "commit" && step.caches.length > 0;
  for (const name of ["trees", "beside"]) parts[name].hidden = !step;
  parts.key.hidden = !step || commit;
  parts.cache.hidden = !commit;
  parts.mask.hidden = commit;
  const overlay = overlayShown(state);
  drawPictures(state, parts, plot, overlay, context, features);
  const first = firstShown(state.steps.length, state.cursor);
  const fork = state.runs?.find(run => run.shown)?.at;
  parts.timeline.style.width = `${44 * (state.steps.length - first) + 12}px`;
  plot(
    parts.timeline,
    ["timeline", state.steps, state.cursor, state.veiled, parts.timeline.clientWidth, fork],
    () => timelineFigure(state.steps, first, state.veiled, state.cursor, fork)
  );
  const kinds = new Set(step ? Object.values(overlay?.kinds ?? kindsAt(step, now)) : []);
  const looks = Object.entries(LOOKS.nodes).filter(([name]) => kinds.has(name) && name !== "root");
  const signs = looks.map(([, look]) => look);
  if (step?.counts.drafted) signs.push(...(LOOKS.marks[now.phase] ?? []));
  else if (signs.length) signs[0] = { ...signs[0], label: WORDS.captions.own };
  const key = commit ? keyOf(cacheKey(parts.cache.figure), "background") : keyOf(signs);
  parts.signs.replaceChildren(...key);
  drawSaid(state, parts, overlay, context, features);
  parts.hover();
  parts.rows.hidden = !state.rows || !step || asking(state);
  if (!parts.rows.hidden && !shows(parts.rows, [step])) {
    const { columns, data } = nodeRows(step);
    const sentence = `Draft tree of iteration ${step.index + 1}`;
    parts.rows.replaceChildren(tableOf({ head: columns, rows: data, sentence }));
  }
}

/**
 * The tree and its mask; for the commit the caches.
 * @param {State} state
 * @param {Record<string, any>} parts
 * @param {Plot} plot
 * @param {Drawing | null} overlay
 * @param {Context} context
 * @param {Features} features
 */
function drawPictures(
  state,
  { whole: body, stage, trees, drawn, tree, others, proposed, second, beside, given, mask, cache },
  plot,
  overlay,
  { kernel },
  features
) {
  const step = stepShown(state);
  const now = positionShown(state);
  const width = stage.clientWidth;
  const { node } = state;
  if (trees.hidden || !width) return; // no width while another tab hides the page
  let what = step.paths.length ? "paths" : "mask";
  if (overlay?.masked) what = "preview";
  given.textContent = WORDS.captions[cache.hidden ? what : "caches"];
  const fill = state.large
    ? Math.max(heightLeft(body, stage, kernel), LOOKS.tree.heights[1])
    : null;
  const narrow = !getComputedStyle(stage).gridTemplateColumns.includes(" "); // one column
  // a preview takes the room that is there, so that nothing moves under the slider
  const free = narrow ? beside.high : Math.max(beside.high, drawn.high);
  const most = overlay?.masked && free ? free - CAPTION : undefined;
  const rows = maskFigure(overlay?.masked ?? step, now, { selected: node, fill, most });
  const whole = narrow ? width : width - rows.layout.width - GAP;
  const half = whole < 820 || !step.proposals.length ? whole : Math.floor((whole - GAP) / 2);
  const other = features.all("second", step, half).find(Boolean);
  const wide = other ? half : whole;
  const height = fill ?? (overlay ? drawn.high - CAPTION : LOOKS.tree.heights[1]);
  const options = { width: wide, height, selected: node, overlay, fill: Boolean(fill) };
  const key = [step, state.tick, state.preview, width, fill];
  plot(tree, ["tree", ...key, node], () => treeFigure(step, now, options));
  others.hidden = !other;
  proposed.textContent = other?.layout.meta.caption;
  if (other) plot(second, ["second", ...key], () => other);
  tree.style.width = `${wide}px`; // a wider tree scrolls
  const drafting = now.phase === "draft" ? now.level : null;
  const signs = rows.data.length + rows.layout.annotations.length; // from verify on, of what differs
  const shown = [step, state.preview, width, fill, node, drafting, signs];
  if (cache.hidden) plot(mask, ["mask", ...shown], () => rows);
  // pictures keep the height of the highest so far: nothing moves from step to step
  const high = [keepHeight(drawn, tree, width), keepHeight(beside, rows, width)];
  stage.style.minHeight = `${narrow ? high[0] + high[1] : Math.max(...high)}px`;
  const room = { width: rows.layout.width, height: narrow ? high[1] : Math.max(...high) };
  if (!cache.hidden) drawCache(state, cache, plot, room, node);
  if (shows(stage, [step, state.tick, width])) return;
  tree.scrollLeft = 0; // the root
  animate({ stage, tree, mask, cache }, step, now);
}

/**
 * The caches in the place of the mask, which they must not make higher.
 * @param {State} state
 * @param {any} cache
 * @param {Plot} plot
 * @param {{width: number, height: number}} room
 * @param {number | null} node
 */
function drawCache(state, cache, plot, { width, height }, node) {
  const step = stepShown(state);
  const length = state.header.prompt_ids.length;
  cache.style.maxHeight = `${height - CAPTION}px`;
  plot(cache, ["cache", step, width, node], () => {
    const figure = cacheFigure(step, length, node, WHOLE, LOOKS.across);
    Object.assign(figure.layout, { width });
    return figure;
  });
}

/**
 * The height that all but the tabs leave for tree and mask on a screen, where they are to fill it.
 * @param {HTMLElement} body
 * @param {HTMLElement} stage
 * @param {boolean} kernel whether the page is within a notebook
 */
function heightLeft(body, stage, kernel) {
  const [top, own, end] = [body, stage, body.querySelector(".sl-tabs")].map(one =>
    one.getBoundingClientRect()
  );
  const zoom = top.width / body.offsetWidth;
  const above = kernel ? NOTEBOOK : top.top + scrollY;
  const others = above + end.top - top.top - own.height;
  return Math.floor((innerHeight - others) / zoom) - CAPTION;
}

/**
 * The height of a picture with its name; it falls only with another width.
 * @param {any} place
 * @param {any} figure
 * @param {number} width
 * @returns {number}
 */
function keepHeight(place, figure, width) {
  const before = place.wide === width ? place.high : 0;
  place.wide = width;
  place.high = Math.max(before, figure.layout.height + CAPTION);
  place.style.minHeight = `${place.high}px`;
  return place.high;
}

/**
 * The story of the iteration above its pictures, and the name of the tree.
 * @param {State} state
 * @param {Record<string, any>} parts
 * @param {Drawing | null} overlay
 * @param {Context} context
 * @param {Features} features
 */
function drawSaid(state, { said, named, bar }, overlay, context, features) {
  const step = stepShown(state);
  const names = namesOf(state.header, step);
  const [taken, both] = step?.proposals.filter(one => one.chosen) ?? [];
  if (taken && !both) named.textContent = words("drafts", "taken", taken);
  else named.textContent = words("captions", step?.counts.drafted ? "tree" : "nothing", names);
  const list = storyOf(state, namesOf(state.header, step, true), overlay, features);
  const inviting = step && !overlay && !state.used && !asking(state);
  if (shows(said, [state.cursor, JSON.stringify(list), inviting])) return;
  const pieces = list.map(({ text, strong }, part) => [
    part ? " → " : "",
    made(strong ? "b" : "span", {}, list.length > 1 ? `${"①②③"[part]} ${text}` : text)
  ]);
  const start = list.length > 1 ? words("story", "start", { number: state.cursor }) : "";
  const more = features.all("besideStory", state).flatMap(element => [" ", element]);
  said.replaceChildren(start, ...pieces.flat(), ...more);
  if (!inviting) return;
  /** @type {Invitation[]} */
  const ways = [{ label: WORDS.next.walk, go: bar.walk }, ...features.all("next")];
  for (const { label, go } of ways) {
    const use = () => {
      context.dispatch({ type: "set", values: { used: true } });
      go();
    };
    said.append(" ", button(label, { class: "sl-next" }, use));
  }
}

/**
 * @param {State} state
 * @param {Values} names
 * @param {Drawing | null} overlay
 * @param {Features} features
 * @returns {{text: string, strong: boolean}[]}
 */
function storyOf(state, names, overlay, features) {
  const step = stepShown(state);
  if (!step) return [{ text: WORDS.story.before, strong: false }];
  if (overlay?.says) return [{ text: overlay.says, strong: true }];
  const now = positionShown(state);
  const question = asking(state) && now.phase === "flatten";
  const list = story(step, question ? WHOLE : now, names);
  const [other] = features.all("story", state);
  if (other) list[2] = { text: other, strong: true };
  else if (now.phase === "all") list[2].text = [list[2].text, ...remarks(step)].join(". ");
  return list;
}

/** What is said of a node. @param {State} state @param {NodeId} node */
function nodeWords(state, node) {
  const step = stepShown(state);
  if (!step) return "";
  if (node === null && state.picked) return "";
  const overlay = overlayShown(state);
  if (node !== null && !Number.isInteger(node) && node !== OWN)
    return words(
      "node",
      overlay?.kinds[node] === "gone" ? "gone" : "new",
      overlay?.graph.get(node)
    );
  const whole = findingsAt(step, null)[0];
  if (node === null && whole) return `${markOf(whole)}: ${whole.sentence}`;
  return nodeSentence(step, node, positionShown(state));
}

/**
 * The open tab.
 * @param {State} state
 * @param {Record<string, any>} parts
 * @param {Plot} plot
 * @param {Features} features
 */
function drawPanel(state, parts, plot, features) {
  const { tab: open } = state;
  for (const tab of parts.tabs.children) {
    const { tab: name } = tab.dataset;
    const page = features.pages.find(one => one.name === name);
    tab.setAttribute("aria-selected", String(name === open));
    tab.tabIndex = name === (open || "caches") ? 0 : -1;
    // the menu opens the hidden ones
    const hidden = page ? page.hidden?.(state) : !state.status.wanted;
    tab.hidden = name !== open && Boolean(hidden);
  }
  parts.settings.update(state, plot);
  features.all("update", state, plot);
  const step = stepShown(state);
  const plain = [step, state.node, state.pinned, state.compared, asking(state)];
  const own = features.pages.find(one => one.name === open)?.watched?.(state) ?? plain;
  if (shows(parts.panel, [open, state.steps, parts.panel.clientWidth, ...own])) return;
  const root = /** @type {Document | ShadowRoot} */ (parts.panel.getRootNode());
  const typing = /** @type {HTMLElement} */ (root.activeElement);
  const list = panelParts(state, parts, features).filter(Boolean);
  const places = list.map(placeOf);
  parts.panel.replaceChildren(...places);
  if (parts.panel.contains(typing)) typing.focus(); // it moved with its tab
  list.forEach((part, index) => {
    if (part.data) plot(places[index], [open, part], () => part);
  });
}

/** The element of a sentence, a table or a figure. @param {any} part */
function placeOf(part) {
  if (typeof part === "string") return made("p", {}, part);
  if (part.data) return div(part.layout.meta?.name === "caches" ? "speclab-cache" : "sl-figure");
  return part.rows ? tableOf(part) : part;
}

/**
 * What a tab shows: elements, sentences, tables and figures. What tells an outcome is there only
 * when the outcome is.
 * @param {State} state
 * @param {Record<string, any>} parts
 * @param {Features} features
 * @returns {any[]}
 */
function panelParts(state, parts, features) {
  const { tab } = state;
  const step = asking(state) ? null : stepShown(state);
  const width = Math.max(parts.panel.clientWidth, 320);
  const added = features.all("parts", tab, state, { step, width });
  if (tab !== "settings")
    return asking(state) && !added.length ? ["Shown after your guess."] : added;
  const own = step ? [blockTable(step), decidedRows(step)] : [];
  return [parts.settings.element, ...added, ...own];
}
