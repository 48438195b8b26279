// @ts-check
// The set-up form and the settings of a strategy, made from its JSON schema; a threshold is dragged on the values of the iteration.

const COUNTS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024];
const SMALL = [0, ...[-3, -2, -1].flatMap(power => [1, 1.5, 2, 3, 4, 5, 7].map(digit => Number((digit * 10 ** power).toFixed(4)))), 1];
const GROUPS = ["papers", "baselines", "training-free", "yours"];
const FIRST_SETTINGS = 6;

/** The values that a slider offers; null if it is no slider. @param {Record<string, any>} field @param {any} value @returns {any[] | null} */
function offered(field, value) {
  const kinds = field.anyOf ?? [field];
  const words = kinds.flatMap(kind => (kind.const !== undefined ? [kind.const] : (kind.enum ?? [])));
  const number = kinds.find(kind => kind.type === "integer" || kind.type === "number");
  if (!number || kinds.some(kind => kind.type === "null")) return null;
  const low = number.minimum ?? number.exclusiveMinimum;
  const high = number.maximum ?? number.exclusiveMaximum;
  if (low === undefined || high === undefined) return null;
  let values;
  if (number.type === "number") {
    if (low < 0 || high > 1) return null;
    values = field["x-small"] ? SMALL : Array.from({ length: 101 }, (_, index) => index / 100);
  } else if (!words.length && high - low <= 64) values = Array.from({ length: high - low + 1 }, (_, index) => low + index);
  else values = COUNTS;
  const inside = values.filter(one => one >= low && one <= high);
  if (typeof value === "number" && !inside.includes(value)) inside.push(value);
  return [...words, ...inside.sort((a, b) => a - b)];
}

/** The values of a step that a threshold is compared with. @param {Step} step @param {string} measure @returns {number[]} */
function measuredValues(step, measure) {
  if (measure === "confidence") return step.nodes.filter(node => node.draft_top.length).map(node => node.draft_top[0][1]);
  if (measure === "nodes") return step.proposals.length ? step.proposals.map(one => one.tree.token.length) : [step.nodes.length];
  const drafted = step.nodes.filter(node => node.verdict !== "root");
  if (measure === "token probability") return drafted.map(node => node.draft_prob);
  if (measure === "depth") return drafted.map(node => shapeOf(step.tree).depth[node.index]);
  const pruned = step.events.filter(event => event.kind === "prune").map(event => event.values.path_prob ?? 0);
  return [...drafted.map(node => node.path_prob), ...pruned];
}

/** Where a value is between the values offered, 0 to 1. @param {any[]} values @param {number} value */
function shareOf(values, value) {
  const numbers = values.filter(one => typeof one === "number");
  const words = values.length - numbers.length;
  let index = numbers.findIndex(one => one >= value);
  if (index < 0) index = numbers.length - 1;
  const below = numbers[index - 1];
  const part = below === undefined ? 0 : (value - below) / (numbers[index] - below) - 1;
  return Math.min(Math.max((words + index + Math.max(part, -1)) / (values.length - 1), 0), 1);
}

/** The dots of an iteration on the track of a slider. @param {any[]} values @param {number[]} dots @param {any} threshold */
function dotsOf(values, dots, threshold) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "sl-dots");
  svg.setAttribute("aria-hidden", "true");
  const heights = {};
  for (const value of [...dots].sort((a, b) => a - b)) {
    const x = 100 * shareOf(values, value);
    const level = (heights[Math.round(x)] = (heights[Math.round(x)] ?? -1) + 1);
    const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    const passes = typeof threshold === "number" && value >= threshold;
    for (const [name, part] of Object.entries({ cx: `${x}%`, cy: 22 - 6.4 * Math.min(level, 2), r: 3, fill: passes ? "currentColor" : "var(--sl-paper)", stroke: "currentColor" }))
      dot.setAttribute(name, String(part));
    svg.append(dot);
  }
  return svg;
}

/** One setting: its name, its control, its value, its curve and its help. @param {string} name @param {Record<string, any>} field @param {any} value @param {(value: any) => void} changed @param {(() => void) | null} curve */
function settingOf(name, field, value, changed, curve) {
  const label = made("span", { class: "sl-name", title: field.description ?? "" }, name.replaceAll("_", " "), field["x-symbol"] ? ` ${field["x-symbol"]}` : "");
  const values = offered(field, value);
  const choices = field.enum ?? (field.anyOf ?? []).flatMap(kind => kind.enum ?? []);
  const shown = made("output", { class: "sl-value" }, settingText(value));
  const track = made("span", { class: "sl-track" });
  const cell = made("label", { class: `sl-setting speclab-setting-${name}` }, label, track, shown);
  const set = next => { shown.textContent = settingText(next); changed(next); };
  if (values) {
    const range = made("input", { type: "range", min: 0, max: values.length - 1, value: values.indexOf(value), "aria-label": name.replaceAll("_", " ") });
    const tell = () => range.setAttribute("aria-valuetext", settingText(values[range.value]));
    range.addEventListener("input", () => { set(values[range.value]); tell(); });
    tell();
    track.append(range);
  } else if (field.type === "boolean") {
    const box = made("input", { type: "checkbox" });
    box.checked = value;
    box.addEventListener("change", () => set(box.checked));
    track.append(box);
  } else if (choices.length) {
    const select = made("select", { "aria-label": name }, ...choices.map(one => made("option", { value: one }, String(one))));
    select.value = value;
    select.addEventListener("change", () => set(choices[select.selectedIndex]));
    track.append(select);
  } else {
    const input = made("input", { type: "text", value: value ?? "", size: 8, "aria-label": name });
    input.addEventListener("change", () => set(parsed(input.value)));
    track.append(input);
  }
  const more = values && curve ? button("curve", { class: "sl-link", title: `tokens per pass over ${name.replaceAll("_", " ")}` }, curve) : null;
  return { cell: made("div", { class: "sl-cell" }, cell, more), track, values };
}

/** A typed value: a number, nothing, or text. @param {string} text */
function parsed(text) {
  const trimmed = text.trim();
  if (!trimmed || trimmed === "null") return null;
  return Number.isFinite(Number(trimmed)) ? Number(trimmed) : trimmed;
}

/** The settings of the wanted strategy, those that decided this iteration first. @param {Context} context */
function settingsOf({ state, dispatch, send, live, kernel }) {
  const grid = made("div", { class: "sl-settings" });
  const error = made("div", { class: "sl-refused", role: "alert" });
  const apply = button("Apply", { class: "speclab-apply", title: "decode this iteration again with these settings" }, () => send({ do: "redo" }));
  const reset = button("Reset", {}, () => send({ do: "reset" }));
  const more = button("More settings", { class: "sl-link" }, () => { all = !all; built = ""; dispatch({ type: "set", values: {} }); });
  const element = made("div", {}, grid, error, made("div", { class: "sl-row" }, live ? apply : null, reset, more));
  let built = "";
  let all = false;
  let typed = {};
  let cells = {};
  const update = now => {
    const wanted = now.status.wanted?.strategy;
    const known = now.catalog?.strategies.find(one => one.name === wanted?.name);
    element.hidden = !known;
    if (!known) return;
    const refused = now.status.error?.where === "strategy";
    if (!refused) typed = {};
    error.textContent = refused ? now.status.error.sentence : "";
    const values = { ...wanted.settings, ...typed };
    const key = JSON.stringify([wanted.name, all, element.contains(document.activeElement) ? built : values]);
    if (!built || (!element.contains(document.activeElement) && key !== built) || !grid.childElementCount) {
      built = key;
      cells = {};
      const names = decidingFirst(Object.keys(known.schema.properties), stepShown(now), known.schema.properties);
      const changed = name => value => {
        typed = { ...typed, [name]: value };
        send({ do: "want", strategy: { name: wanted.name, settings: typed } });
      };
      for (const name of all ? names : names.slice(0, FIRST_SETTINGS))
        cells[name] = settingOf(name, known.schema.properties[name], values[name] ?? null, changed(name), kernel ? () => send({ do: "curve", name }) : null);
      grid.replaceChildren(...Object.values(cells).map(one => one.cell));
      more.hidden = names.length <= FIRST_SETTINGS;
      more.textContent = all ? "Fewer settings" : "More settings";
    }
    const step = stepShown(now);
    const own = step?.settings.strategy === wanted.name;
    for (const [name, { track, values: offers }] of Object.entries(cells)) {
      track.querySelector(".sl-dots")?.remove();
      const measure = known.schema.properties[name]["x-measure"];
      if (own && measure && offers) track.prepend(dotsOf(offers, measuredValues(step, measure), values[name]));
    }
    apply.disabled = !step || Boolean(now.status.busy || now.gone) || !now.status.live;
    reset.disabled = live && !now.status.pending?.length && !refused;
  };
  return { element, update };
}

/** Without a kernel the page itself previews settings, as far as the record answers. @param {Context} context @param {Message} message */
async function previewHere({ state, dispatch, live }, { do: name, strategy }) {
  const step = stepShown(state());
  if (!step || !(strategy || name === "reset")) return;
  const { strategy: own, ...settings } = step.settings;
  const { wanted } = state().status;
  const next = strategy ? { ...strategy, settings: { ...(wanted.strategy.name === strategy.name ? wanted.strategy.settings : {}), ...strategy.settings } } : { name: own, settings };
  if (!live) dispatch({ type: "status", wanted: { strategy: next } });
  dispatch({ type: "preview", index: step.index, what_if: strategy ? await whatIf(step, { strategy: next.name, ...next.settings }) : null });
}

/** @param {string[]} names @param {Step | null} step @param {Record<string, any>} fields */
function decidingFirst(names, step, fields) {
  const count = name => (step?.events ?? []).filter(event => event.values.setting === name || event.values.gate === name).length;
  return [...names].sort((a, b) => count(b) - count(a) || Number(!fields[a]["x-symbol"]) - Number(!fields[b]["x-symbol"]));
}

/** Models, strategy, prompt, sampling. @param {Context} context */
function formOf({ state, dispatch, send }) {
  const element = made("div", { class: "speclab-form" });
  let built = null;
  const update = now => {
    element.hidden = !now.form || !now.catalog || !now.status.wanted;
    if (element.hidden) return;
    const key = JSON.stringify([now.status.wanted, now.status.missing]);
    if (built !== key && !(built && element.contains(document.activeElement) && document.activeElement.matches("input, textarea"))) {
      built = key;
      element.replaceChildren(...formRows(now, send));
    }
    const { error } = now.status;
    for (const place of element.querySelectorAll("[data-where]"))
      place.textContent = place.dataset.where === error?.where ? error.sentence : "";
  };
  return { element, update };
}

/** @param {State} now @param {(message: Message) => void} send @returns {HTMLElement[]} */
function formRows({ catalog, status }, send) {
  const { wanted, missing } = status;
  const labelled = (label, control) => made("label", { class: "sl-field" }, made("span", {}, label), control);
  const choice = wanted.models;
  const models = made("select", { class: "speclab-models" }, ...catalog.models.map(one =>
    made("option", { value: JSON.stringify(one.name) }, one.here ? one.label : `${one.label} (not here: ${one.way})`)));
  models.value = JSON.stringify(choice?.name ?? null);
  const text = (name, placeholder) => made("input", { value: name === "heads" ? (choice?.heads ?? []).join(", ") : (choice?.[name] ?? ""), placeholder, size: 22 });
  const own = { target: text("target", "hub id or folder"), draft: text("draft", "hub id or folder"), heads: text("heads", "folders, or mtp") };
  const device = made("select", {}, ...catalog.devices.map(one => made("option", { value: one.value ?? "" }, one.label)));
  device.value = choice?.device ?? "";
  const tell = () => {
    const name = JSON.parse(models.value);
    const heads = own.heads.value.split(",").map(one => one.trim()).filter(Boolean);
    send({ do: "want", models: name === null ? null : { name, target: own.target.value, draft: own.draft.value, heads, device: device.value || null } });
  };
  for (const control of [models, device, ...Object.values(own)]) control.addEventListener("change", tell);
  const strategy = strategySelect(catalog, wanted, missing ?? {}, send);
  const prompt = made("textarea", { rows: 2, dir: "auto", class: "speclab-prompt", "aria-label": "prompt" });
  prompt.value = wanted.prompt;
  let waiting = 0;
  prompt.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => send({ do: "want", prompt: prompt.value }), 250);
  });
  const shipped = catalog.prompts.filter(one => one.chat === wanted.chat);
  const example = made("select", {}, made("option", { value: "" }, "your own"), ...shipped.map(one => made("option", { value: one.text }, `${one.kind} · ${one.name}`)));
  example.value = shipped.some(one => one.text === wanted.prompt) ? wanted.prompt : "";
  example.addEventListener("change", () => { if (example.value) send({ do: "want", prompt: example.value }); });
  const ownRow = Object.entries(own).map(([name, control]) => labelled(name, control));
  for (const one of ownRow) one.hidden = choice?.name !== "";
  const where = name => made("span", { class: "sl-refused", "data-where": name, role: "alert" });
  const row = made("div", { class: "sl-row" }, labelled("models", models), labelled("device", device), ...ownRow, where("models"));
  return [
    ...(catalog.models.length ? [row] : []),
    made("div", { class: "sl-row" }, ...strategy.map(([label, control]) => labelled(label, control)), where("strategy")),
    made("div", { class: "sl-row" }, ...sessionFields(wanted.session, send).map(([label, control]) => labelled(label, control)), where("session")),
    made("div", { class: "sl-row" }, labelled("example", example)), prompt, where("prompt"), made("p", { class: "sl-muted" }, catalog.note ?? ""),
  ];
}

/** @param {Record<string, any>} catalog @param {Record<string, any>} wanted @param {Record<string, string>} missing @param {(message: Message) => void} send @returns {[string, HTMLElement][]} */
function strategySelect(catalog, wanted, missing, send) {
  const select = made("select", { class: "speclab-strategy" }, ...GROUPS.map(group => {
    const members = catalog.strategies.filter(one => one.group === group);
    return members.length ? made("optgroup", { label: group }, ...members.map(one =>
      made("option", { value: one.name, title: missing[one.name] ?? one.doc, disabled: missing[one.name] ? "" : null }, one.name))) : null;
  }));
  select.value = wanted.strategy.name;
  select.addEventListener("change", () => send({ do: "want", strategy: { name: select.value, settings: {} } }));
  const presets = catalog.strategies.find(one => one.name === wanted.strategy.name)?.presets ?? [];
  const preset = made("select", {}, made("option", { value: "" }, "custom"), ...presets.map(one => made("option", { value: one.name }, one.name)));
  const same = presets.find(one => JSON.stringify(one.settings) === JSON.stringify(wanted.strategy.settings));
  preset.value = same?.name ?? "";
  preset.addEventListener("change", () => {
    const chosen = presets.find(one => one.name === preset.value);
    if (chosen) send({ do: "want", strategy: { name: wanted.strategy.name, settings: chosen.settings } });
  });
  return presets.length ? [["strategy", select], ["preset", preset]] : [["strategy", select]];
}

/** @param {Record<string, any>} session @param {(message: Message) => void} send @returns {[string, HTMLElement][]} */
function sessionFields(session, send) {
  const fields = { max_new_tokens: "length", temperature: "temperature", top_k: "top-k", top_p: "top-p", seed: "seed" };
  return Object.entries(fields).filter(([name]) => name in session).map(([name, label]) => {
    const input = made("input", { value: session[name] ?? "", size: 6, inputmode: "decimal", placeholder: name.startsWith("top") ? "all" : "" });
    input.disabled = ["top_k", "top_p", "seed"].includes(name) && !session.temperature;
    input.addEventListener("change", () => send({ do: "want", session: { [name]: parsed(input.value) } }));
    return [label, input];
  });
}
