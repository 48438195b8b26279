// @ts-check
// The page: mount(element, host, Plotly) ties state, controls and drawing together.

/** @param {HTMLElement} element @param {Record<string, any>} host kind ("kernel", "worker": a tab that decodes, "none": a record), send, on, keys @param {any} Plotly */
function mount(element, host, Plotly) {
  let state = firstState();
  let frame = 0;
  let telling = 0;
  const kernel = host.kind === "kernel";
  const live = host.kind !== "none";
  if (!live) state.tab = "caches";
  const send = message => {
    if (!state.gone) host.send(message);
    if (!kernel) previewHere(context, message);
  };
  const schedule = () => { frame ||= requestAnimationFrame(() => { frame = 0; update(); }); };
  const dispatch = event => {
    const [next, messages] = reduce(state, event);
    state = next;
    for (const message of messages) {
      if (message.do !== "shown") send(message);
      else {
        clearTimeout(telling);
        telling = setTimeout(() => send(message), 30);
      }
    }
    if (event.type === "file") download(event);
    schedule();
  };
  const context = { state: () => state, dispatch, send, live, kernel };
  const parts = partsOf(context);
  element.classList.add("speclab-page");
  element.dataset.lmSuppressShortcuts = "true";
  element.replaceChildren(parts.top, parts.whole);
  const plot = plotter(Plotly, () => rolesOf(element));
  const update = () => drawAll(state, parts, plot, context);
  const keys = keysOf(context);
  const treeKeys = treeKeysOf(context, parts.tree);
  host.keys.addEventListener("keydown", keys);
  parts.tree.addEventListener("keydown", treeKeys);
  focusOnPress(element, parts.whole);
  const forgetLooks = watchLooks(parts.whole, schedule);
  const clock = setInterval(() => { if (state.status.busy) schedule(); }, 1000);
  const pictures = kernel ? picturesOf(context, parts, Plotly) : null;
  host.on(dispatch);
  schedule();
  send({ do: "hello" });
  return {
    handle: dispatch,
    destroy() {
      parts.bar.end();
      clearInterval(clock);
      clearTimeout(telling);
      cancelAnimationFrame(frame);
      pictures?.end();
      forgetLooks();
      host.keys.removeEventListener("keydown", keys);
      for (const place of element.querySelectorAll(".js-plotly-plot")) Plotly.purge(place);
    },
  };
}

/** Calls `changed` when the size or the theme changes; returns how to stop. @param {HTMLElement} whole @param {() => void} changed */
function watchLooks(whole, changed) {
  const sizes = new ResizeObserver(changed);
  sizes.observe(whole);
  const themes = new MutationObserver(changed);
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name", "class", "data-theme"] });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", changed);
  return () => {
    sizes.disconnect();
    themes.disconnect();
    scheme.removeEventListener("change", changed);
  };
}

/** A press beside the controls gives the page its keys. @param {HTMLElement} element @param {HTMLElement} whole */
function focusOnPress(element, whole) {
  const controls = "button, input, select, summary, textarea, label, [tabindex='0']";
  element.addEventListener("pointerdown", event => {
    if (!(/** @type {any} */ (event.target).closest(controls))) whole.focus({ preventScroll: true });
  });
}

/** The elements of the page. @param {Context} context */
function partsOf(context) {
  const { state, dispatch, send, live, kernel } = context;
  const line = (name, attributes = {}) => made("div", { class: name, ...attributes });
  const title = made("span", { class: "sl-title" });
  const change = live ? button("Change", { class: "speclab-change" }, () => dispatch({ type: "set", values: { form: !state().form } })) : null;
  const top = made("div", { class: "speclab-top" }, title, change);
  const bar = barOf(context);
  const form = formOf(context);
  const settings = settingsOf(context);
  const byHand = byHandOf(context);
  const compare = compareOf(context);
  const runs = line("sl-runs-place");
  const timeline = line("speclab-timeline");
  const score = line("speclab-score");
  const body = line("sl-body", { dir: "auto", role: "document", "aria-label": "the text so far" });
  const text = made("div", { class: "speclab-text" }, body);
  const pending = line("sl-pending", { role: "status", hidden: !live });
  const progress = made("progress", { class: "sl-progress", max: 1 });
  const error = line("speclab-error", { role: "alert" });
  const tree = line("speclab-tree", { role: "application", tabindex: "0" });
  const mask = line("speclab-mask", { role: "img" });
  const cache = line("speclab-cache", { role: "img" });
  const loading = line("sl-loading");
  const stage = made("div", { class: "sl-stage" }, tree, mask, cache, loading);
  const signs = made("span", { class: "sl-signs" });
  const said = made("span", { class: "sl-said" });
  const status = made("div", { class: "speclab-status", role: "status", "aria-live": "polite" }, said);
  const below = made("div", { class: "sl-below" }, signs, status);
  const node = line("sl-node-line", { "aria-live": "polite" });
  const rows = line("sl-rows");
  const tabs = made("div", { class: "sl-tabs", role: "tablist" }, ...Object.entries(WORDS.tabs)
    .filter(([name]) => kernel || name !== "compare")
    .map(([name, label]) => button(label, { role: "tab", "data-tab": name }, () => dispatch({ type: "tab", name }))));
  tabs.addEventListener("keydown", tabKeysOf(context, tabs));
  const panel = made("div", { class: "sl-panel", role: "tabpanel" });
  const whole = made("div", { class: "speclab-body", tabindex: "-1" }, form.element, bar.element, runs, made("div", { class: "sl-line" }, timeline, score),
    pending, progress, error, text, stage, below, node, rows, tabs, panel);
  return { top, whole, title, change, bar, form, settings, byHand, compare, runs, timeline, score, body, text, pending, progress, error,
    tree, mask, cache, loading, stage, signs, said, below, node, rows, tabs, panel };
}

/** Brings every part up to date. @param {State} state @param {Record<string, any>} parts @param {any} plot @param {Context} context */
function drawAll(state, parts, plot, context) {
  const { status, header } = state;
  const begun = Boolean(header);
  const failed = status.error?.where === "start";
  parts.title.textContent = titleOf(state);
  if (parts.change) parts.change.disabled = Boolean(state.gone);
  for (const name of ["bar", "form"]) parts[name].update(state);
  for (const name of ["timeline", "score", "text", "below", "node", "tabs", "panel"]) parts[name].hidden = !begun;
  parts.bar.element.hidden = !begun && !failed;
  parts.runs.replaceChildren(...[runsOf(state, context.send)].filter(Boolean));
  drawLines(state, parts, context);
  parts.loading.hidden = begun;
  parts.loading.textContent = failed ? status.error.sentence : begun ? "" : workWords(status);
  if (!begun) {
    for (const name of ["tree", "mask", "cache"]) parts[name].hidden = true;
    return;
  }
  parts.score.textContent = scoreWords(state); // first: the timeline takes what it leaves
  drawStage(state, parts, plot, context);
  drawText(parts.body, state);
  drawPanel(state, parts, plot, context);
}

/** @param {Record<string, any>} status */
function workWords({ busy, began, progress }) {
  if (!busy) return "";
  const seconds = Math.round((performance.now() - began) / 1000);
  const share = typeof progress === "number" ? ` (${Math.round(100 * progress)} %)` : "";
  return `${busy}${share}${seconds > 1 ? ` … ${seconds} s` : ""}`;
}

/** The pending line, progress and errors. @param {State} state @param {Record<string, any>} parts @param {Context} context */
function drawLines(state, parts, { send, dispatch, kernel }) {
  const { status, gone } = state;
  const begun = Boolean(state.header);
  parts.progress.hidden = !status.busy || typeof status.progress !== "number";
  parts.progress.value = status.progress ?? 0;
  const words = [];
  if (gone) words.push(gone);
  else {
    if (begun && status.busy) words.push(workWords(status));
    if (status.pending?.length) words.push(`Changed: ${status.pending.join("; ")}.`);
    if (status.message) words.push(status.message);
  }
  const ended = begun && !gone && status.live && status.can_step === false && state.cursor === state.steps.length && !status.busy;
  if (ended) words.push(status.finished === "max_new_tokens" ? "The length you set is reached." : "The text has ended.");
  const key = words.join(" ") + String(ended) + String(status.busy) + String(status.new_run);
  if (parts.pending.said === key) return drawError(state, parts);
  parts.pending.said = key;
  const actions = [];
  const step = from => () => send({ do: "step", from });
  if (!gone && status.pending?.length && !status.new_run && !status.busy)
    actions.push(button("from here", { class: "sl-link" }, step("here")), button("from the start", { class: "sl-link" }, step("start")));
  if (ended) {
    const length = state.status.wanted.session.max_new_tokens;
    const longer = () => {
      send({ do: "want", session: { max_new_tokens: 2 * length } });
      send({ do: "step", from: "here" });
    };
    actions.push(button("Start over", {}, step("start")));
    if (status.finished === "max_new_tokens") actions.push(button("Longer", {}, longer));
    if (kernel) actions.push(button("Compare with plain", {}, () => {
      dispatch({ type: "tab", name: "compare" });
      send({ do: "compare", names: [state.catalog.current, "Autoregressive"] });
    }));
  }
  parts.pending.replaceChildren(words.join(" "), ...actions.flatMap(action => [" ", action]));
  parts.pending.classList.toggle("sl-wrong", Boolean(gone));
  drawError(state, parts);
}

/** @param {State} state @param {Record<string, any>} parts */
function drawError({ status }, parts) {
  const elsewhere = ["models", "strategy", "session", "prompt", "until", "compare", "start"];
  parts.error.textContent = status.error && !elsewhere.includes(status.error.where) ? status.error.sentence : "";
}

/** @param {State} state @param {Record<string, any>} parts @param {any} plot @param {Context} context */
function drawStage(state, parts, plot, { dispatch }) {
  const step = stepShown(state);
  const now = positionShown(state);
  const width = parts.stage.clientWidth;
  const commit = Boolean(step) && now.phase === "commit" && step.caches.length > 0;
  parts.tree.hidden = parts.mask.hidden = !step || commit;
  parts.cache.hidden = !commit;
  const overlay = overlayShown(state);
  const node = Number.isInteger(state.node) ? state.node : null;
  if (step && !commit && width) { // 0 while another tab hides the page
    const mask = maskFigure(step, now, { selected: node });
    const stacked = width < 560;
    const room = stacked ? width : Math.max(width - Math.ceil(mask.layout.width) - 20, 240);
    const key = [step, state.tick, state.preview, width];
    const select = point => { if (point.customdata !== undefined && point.customdata !== null) dispatch({ type: "select", node: point.customdata }); };
    plot(parts.tree, ["tree", ...key, state.node], () => fittedTree(step, now, { width: room, selected: state.node, overlay }), select);
    parts.stage.style.minHeight = `${parts.tree.layout.height}px`; // the commit's caches take the same room
    plot(parts.mask, ["mask", ...key, node], () => mask, point => { if (point.y < step.nodes.length) dispatch({ type: "select", node: point.y }); });
  }
  if (commit) plot(parts.cache, ["cache", step, width, node], () => cacheFigures(step, state.header.prompt_ids.length, node)[0]);
  const first = firstShown(state.steps.length, state.cursor);
  plot(parts.timeline, ["timeline", state.steps, state.cursor, state.guess.asked, parts.timeline.clientWidth],
    () => timelineFigure(state.steps, first, state.guess.asked, state.cursor), point => dispatch({ type: "go", cursor: point.x }));
  const kinds = new Set(step && !commit ? Object.values(overlay?.kinds ?? kindsAt(step, now)) : []);
  parts.signs.replaceChildren(...Object.entries(LOOKS.nodes).filter(([name]) => kinds.has(name) && name !== "root")
    .map(([, look]) => made("span", {}, made("i", { style: `color:${look.color}` }, look.sign), ` ${look.label}`)));
  parts.said.textContent = saidOf(state, overlay);
  parts.node.textContent = step && !commit ? nodeWords(state, overlay) : "";
  parts.rows.hidden = !state.rows || !step || asking(state);
  if (!parts.rows.hidden && parts.rows.of !== step) {
    const { columns, rows } = nodeRows(step);
    parts.rows.replaceChildren(tableOf({ head: columns, rows, sentence: `Draft tree of iteration ${step.index + 1}` }));
    parts.rows.of = step;
  }
}

/** @param {State} state @param {any} overlay */
function saidOf(state, overlay) {
  const step = stepShown(state);
  if (!step) return "Before the first iteration: the prompt, and the first token from the prefill.";
  if (asking(state)) return WORDS.guess.ask;
  if (overlay) return overlay.sentence;
  return state.guess.sentence && positionShown(state).phase === "accept" ? state.guess.sentence : positionSentence(step, positionShown(state));
}

/** @param {State} state @param {any} overlay */
function nodeWords(state, overlay) {
  const step = stepShown(state);
  const { node } = state;
  if (node !== null && !Number.isInteger(node) && node !== OWN) return `A new node ${overlay?.graph.get(node)?.label ?? ""}.`;
  const whole = findingsAt(step, null)[0];
  if (node === null && whole) return `${markOf(whole)}: ${whole.sentence}`;
  return nodeSentence(step, node, positionShown(state));
}

/** The open tab. @param {State} state @param {Record<string, any>} parts @param {any} plot @param {Context} context */
function drawPanel(state, parts, plot, context) {
  const step = stepShown(state);
  const some = state.diffed || state.steps.some(one => one.findings.length || one.gaps.length);
  for (const tab of parts.tabs.children) {
    tab.setAttribute("aria-selected", String(tab.dataset.tab === state.tab));
    tab.tabIndex = tab.dataset.tab === state.tab ? 0 : -1;
    tab.hidden = (tab.dataset.tab === "check" && !context.kernel && !some) || (tab.dataset.tab === "settings" && !state.status.wanted);
  }
  for (const name of ["settings", "byHand", "compare"]) parts[name].update(state);
  const shown = [step, state.node, state.curve, state.redone, state.pinned, parts.panel.clientWidth, asking(state)];
  const key = [state.tab, state.steps, ...(state.tab === "check" ? [state.status.busy, state.diffed, state.runs] : shown)]; // its list keeps the focus
  if (parts.panel.drawn?.every((value, index) => value === key[index])) return;
  parts.panel.drawn = key;
  const place = (figure, name) => {
    const spot = made("div", { class: name });
    return [spot, figure];
  };
  const list = panelParts(state, parts, context).map(part => (part?.data ? place(part, part.layout.meta?.name === "caches" ? "speclab-cache" : "sl-figure") : [part, null]));
  parts.panel.replaceChildren(...list.map(([part]) => part));
  for (const [spot, figure] of list) if (figure) plot(spot, [state.tab, figure], () => figure);
}

/** @param {State} state @param {Record<string, any>} parts @param {Context} context @returns {any[]} */
function panelParts(state, parts, context) {
  const step = stepShown(state);
  const width = Math.max(parts.panel.clientWidth, 320);
  const paragraph = text => (text ? made("p", {}, text) : null);
  const hidden = asking(state) ? [paragraph("Shown after your guess.")] : null;
  const tabs = {
    settings: () => [parts.settings.element, context.live ? parts.byHand.element : null, state.curve?.points?.length ? curveFigure(state.curve) : null, ...redoneParts(state, width),
      step && draftsFigure(step, width), step && paragraph(draftsSentence(step)), tableOrNull(step && blockTable(step)), tableOrNull(step && decidedRows(step))],
    caches: () => hidden ?? (step ? [keyLine(step), ...cacheFigures(step, state.header.prompt_ids.length), ...cacheLines(step).map(paragraph)] : []),
    node: () => hidden ?? (step ? [paragraph(nodeSentence(step, state.node ?? 0)), Number.isInteger(state.node ?? 0) ? nodeFigure(step, state.node ?? 0) : null, residualFigure(step)] : []),
    metrics: () => (state.cursor ? [numbersOf(state), metricsFigure(state.steps.slice(0, state.cursor), firstShown(state.cursor, state.cursor))] : []),
    compare: () => [parts.compare.element, state.pinned?.step && step ? pairFigure(state.pinned.step, step, ["pinned", "shown"], width) : null],
    check: () => [context.kernel ? made("p", {}, button("Check", { class: "sl-check" }, () => context.send({ do: "check" })),
      " Looks for contradictions in the record, and compares its answers with the target's on every path.") : null, ...diffParts(state, context), findingsOf(state, context.dispatch), tableOrNull(gapTable(state.steps))],
  };
  return tabs[state.tab]().filter(Boolean);
}

/** Buttons that compare the run shown with another one, and both timelines. @param {State} state @param {Context} context @returns {any[]} */
function diffParts({ runs, diffed }, { send }) {
  const choices = runs.filter(run => !run.shown).map(({ name, number }) =>
    button(`Compare with ${name}`, { "data-diff": number }, () => send({ do: "diff", run: number })));
  return [made("p", { class: "sl-row" }, ...choices), ...(diffed ? [made("p", {}, diffed.sentence), diffFigure(diffed)] : [])];
}

/** @param {Table | null} table */
function tableOrNull(table) {
  return table ? tableOf(table) : null;
}

/** @param {State} state @param {number} width */
function redoneParts({ redone, steps, cursor }, width) {
  const fresh = steps[redone?.index];
  if (!redone?.old || !fresh || cursor !== redone.index + 1) return [];
  const changes = redone.changes.join("; ") || "the same settings";
  return [pairFigure(redone.old, fresh, ["as it was", `with ${changes}`], width)];
}

/** @param {Step} step */
function keyLine(step) {
  return made("p", { class: "sl-key" }, ...cacheKey(step).map(({ label, color, sign }) =>
    made("span", {}, made("i", { style: `background:${color}` }, sign || "\u00a0"), label)));
}

/** @param {State} state */
function numbersOf({ steps, cursor }) {
  return made("div", { class: "sl-numbers" }, ...metricNumbers(steps.slice(0, cursor)).map(({ name, value, definition }) =>
    made("div", {}, made("b", {}, value), name, made("small", {}, definition))));
}

/** Sends pictures of the stage when the page has been still, for the saved notebook. @param {Context} context @param {Record<string, any>} parts @param {any} Plotly */
function picturesOf({ state, send }, parts, Plotly) {
  let sent = null;
  let seen = null;
  const clock = setInterval(async () => {
    const now = state();
    const key = [now.run, now.cursor, now.tick, now.steps.length].join();
    const ready = stepShown(now) && !now.status.busy && !now.gone && !asking(now) && parts.tree.data && parts.tree.clientWidth;
    const still = ready && key === seen;
    seen = ready ? key : null;
    if (!still || key === sent) return;
    sent = key;
    const images = [];
    for (const [name, place] of [["tree", parts.tree], ["mask", parts.mask]]) {
      const [width, height] = [place.layout.width, place.layout.height].map(Math.ceil);
      const paper = rolesOf(place)["var(--sl-paper)"]; // a notebook may be reopened in another theme
      const figure = { data: place.data, layout: { ...place.layout, paper_bgcolor: paper } };
      const url = await Plotly.toImage(figure, { format: "png", width, height, scale: 1.5 });
      images.push({ name, mime: "image/png", data: url.split(",")[1], width, height });
    }
    send({ do: "picture", cursor: now.cursor, images });
  }, 1500);
  return { end: () => clearInterval(clock) };
}

/** @param {PageEvent} file */
function download({ name, data, mime }) {
  const bytes = Uint8Array.from(atob(data), letter => letter.charCodeAt(0));
  const url = URL.createObjectURL(new Blob([bytes], { type: mime }));
  made("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
