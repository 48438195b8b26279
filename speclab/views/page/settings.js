// The set-up form and the settings of a strategy, made from its JSON schema; a threshold is dragged
// on the values of the iteration.

import { LOOKS, WORDS } from "./data.js";
import { asks, choiceOf, div, later, made, refusal, shows, span } from "./draw.js";
import { shareOf } from "./figure.js";
import { settingText } from "./node.js";
import { filled } from "./words.js";
import { shapeOf } from "./phases.js";
import { stepShown } from "./state.js";

/**
 * The values that a slider offers; null if it is no slider.
 * @param {Field} field
 * @param {any} value
 * @returns {any[] | null}
 */
function offered(field, value) {
  const kinds = field.anyOf ?? [field];
  const words = kinds.flatMap(kind =>
    kind.const !== undefined ? [kind.const] : (kind.enum ?? [])
  );
  const number = kinds.find(kind => kind.type === "integer" || kind.type === "number");
  if (!number || kinds.some(kind => kind.type === "null")) return null;
  const low = number.minimum ?? number.exclusiveMinimum;
  const high = number.maximum ?? number.exclusiveMaximum;
  if (low === undefined || high === undefined) return null;
  let values;
  if (number.type === "number") {
    if (low < 0 || high > 1) return null;
    values = field["x-small"]
      ? LOOKS.sliders.small
      : Array.from({ length: 101 }, (_, index) => index / 100);
  } else if (!words.length && high - low <= 64)
    values = Array.from({ length: high - low + 1 }, (_, index) => low + index);
  else values = LOOKS.sliders.counts;
  const inside = values.filter(one => one >= low && one <= high);
  if (typeof value === "number" && !inside.includes(value)) inside.push(value);
  return [...words, ...inside.sort((a, b) => a - b)];
}

/**
 * The values of a step that a threshold is compared with.
 * @param {Step} step
 * @param {string} measure
 * @returns {number[]}
 */
function measuredValues(step, measure) {
  if (measure === "confidence")
    return step.nodes.filter(node => node.draft_top.length).map(node => node.draft_top[0][1]);
  if (measure === "nodes")
    return step.proposals.length
      ? step.proposals.map(one => one.tree.token.length)
      : [step.nodes.length];
  const drafted = step.nodes.filter(node => node.verdict !== "root");
  if (measure === "token probability") return drafted.map(node => node.draft_prob);
  if (measure === "depth") return drafted.map(node => shapeOf(step.tree).depth[node.index]);
  const pruned = step.events
    .filter(event => event.kind === "prune")
    .map(event => event.values.path_prob ?? 0);
  return [...drafted.map(node => node.path_prob), ...pruned];
}

/**
 * The dots of an iteration on the track of a slider, darker where there are many.
 * @param {any[]} values
 * @param {number[]} dots
 * @param {any} threshold
 */
function dotsOf(values, dots, threshold) {
  const places = dots.map(value => {
    const passes = typeof threshold === "number" && value >= threshold;
    const style = `left:${100 * shareOf(values, value)}%`;
    return made("i", { class: passes ? "sl-passes" : "", style });
  });
  return made("span", { class: "sl-dots", "aria-hidden": "true" }, ...places);
}

/**
 * One setting: its name, its control, its value and its help, and what features add to it.
 * @param {string} name
 * @param {Field} field
 * @param {any} value
 * @param {(name: string, value: any) => void} changed
 * @param {Features} features
 */
function settingOf(name, field, value, changed, features) {
  const words = name.replaceAll("_", " ");
  const symbol = field["x-symbol"] ? ` ${field["x-symbol"]}` : "";
  const label = made("span", { class: "sl-name", title: field.description ?? "" }, words, symbol);
  const values = offered(field, value);
  const shown = made("output", { class: "sl-value" }, settingText(value));
  /** @param {any} next */
  const set = next => {
    shown.textContent = settingText(next);
    changed(name, next);
  };
  /** Shows a value that another setting has pushed. @param {any} next */
  const push = next => {
    shown.textContent = settingText(next);
    /** @type {any} */ (control).value = values.indexOf(next);
  };
  const control = values
    ? sliderOf(values, value, words, set)
    : controlOf(field, value, words, set);
  const own = span(`speclab-setting-${name}`, control);
  const track = span("sl-track", own);
  const end = span("", shown);
  const cell = made("label", { class: "sl-setting" }, label, track, end);
  /** @type {SettingCell[]} */
  const more = values ? features.all("cell", name, values) : [];
  const added = more.flatMap(one => one.elements);
  return {
    cell: div("sl-cell", cell, ...added),
    label,
    track,
    own,
    end,
    shown,
    values,
    more,
    push
  };
}

/**
 * Two settings on one scale as one track with two handles, and between them what each zone means.
 * @param {ReturnType<typeof settingOf>} low
 * @param {ReturnType<typeof settingOf>} high
 */
function join(low, high) {
  low.cell.classList.add("sl-pair");
  low.label.append(made("br"), high.label);
  low.track.append(high.own, div("sl-zones", made("span"), made("span"), made("span")));
  low.end.append(made("br"), high.shown);
  low.cell.append(...[...high.cell.children].slice(1));
  high.cell.replaceChildren();
}

/**
 * The settings in their order, with the budget among the first.
 * @param {Record<string, Field>} fields
 * @param {Values} values
 * @param {string[][]} pairs
 * @param {(name: string, value: any) => void} changed
 * @param {Features} features
 */
function cellsOf(fields, values, pairs, changed, features) {
  const names = Object.keys(fields).filter(name => name !== "node_budget");
  if (fields.node_budget) names.splice(LOOKS.sliders.first - 1, 0, "node_budget");
  /** @type {Record<string, ReturnType<typeof settingOf>>} */
  const cells = {};
  for (const name of names)
    cells[name] = settingOf(name, fields[name], values[name] ?? null, changed, features);
  for (const [low, high] of pairs) join(cells[low], cells[high]);
  return cells;
}

/**
 * The pairs of settings that are on one scale.
 * @param {string[][]} groups
 * @param {Record<string, Field>} fields
 */
function pairsOf(groups, fields) {
  return groups.filter(([low, high]) => {
    const measure = fields[low]?.["x-measure"];
    return measure in WORDS.zones && measure === fields[high]?.["x-measure"];
  });
}

/**
 * Brings the zones of a pair up to date: how wide they are, and what they mean now.
 * @param {string[]} pair
 * @param {Record<string, ReturnType<typeof settingOf>>} cells
 * @param {Record<string, Field>} fields
 * @param {Values} settings
 */
function drawZones(pair, cells, fields, settings) {
  const { track, values } = cells[pair[0]];
  const [low, high] = pair.map(name => `${100 * shareOf(values, settings[name])}%`);
  track.style.cssText = `--sl-low:${low};--sl-high:${high}`;
  const meanings = WORDS.zones[fields[pair[0]]["x-measure"]];
  const zones = track.querySelectorAll(".sl-zones span");
  for (const [index, zone] of zones.entries()) zone.textContent = filled(meanings[index], settings);
}

/**
 * Pushes the settings along that a new value would put out of order.
 * @param {string[][]} groups
 * @param {string} name
 * @param {Values} settings
 * @param {(other: string) => void} push
 */
function pushOthers(groups, name, settings, push) {
  for (const group of groups) {
    const here = group.indexOf(name);
    group.forEach((other, at) => {
      const [value, limit] = [settings[other], settings[name]];
      if (here >= 0 && (at < here ? value > limit : value < limit)) push(other);
    });
  }
}

/**
 * @param {any[]} values
 * @param {any} value
 * @param {string} label
 * @param {(value: any) => void} set
 */
function sliderOf(values, value, label, set) {
  const input = () => {
    const chosen = values[range.value];
    range.setAttribute("aria-valuetext", settingText(chosen));
    set(chosen);
  };
  const range = made("input", {
    type: "range",
    min: 0,
    max: values.length - 1,
    value: values.indexOf(value),
    "aria-label": label,
    "aria-valuetext": settingText(value),
    input
  });
  return range;
}

/**
 * @param {Field} field
 * @param {any} value
 * @param {string} label
 * @param {(value: any) => void} set
 */
function controlOf(field, value, label, set) {
  const choices = field.enum ?? (field.anyOf ?? []).flatMap(kind => kind.enum ?? []);
  if (choices.length) {
    const options = choices.map(one => [one, String(one)]);
    /** @param {string} text */
    const chosen = text => set(choices.find(one => String(one) === text));
    return choiceOf(options, value, chosen, { "aria-label": label });
  }
  if (field.type === "boolean") {
    /** @param {any} event */
    const change = ({ target }) => set(target.checked);
    return made("input", { type: "checkbox", checked: value, change });
  }
  /** @param {any} event */
  const change = ({ target }) => set(parsed(target.value));
  return made("input", { value: value ?? "", size: 8, "aria-label": label, change });
}

/**
 * Marks what decided a step, and draws its values on the sliders that they are compared with.
 * @param {Record<string, any>} cells
 * @param {Record<string, Field>} fields
 * @param {Record<string, any>} values
 * @param {Step | null} step
 */
function drawDots(cells, fields, values, step) {
  for (const [name, { cell, track, values: offers }] of Object.entries(cells)) {
    const decided = step?.events.some(
      event => name in event.values || Object.values(event.values).includes(name)
    );
    cell.classList.toggle("sl-decided", Boolean(decided));
    track.querySelector(".sl-dots")?.remove();
    const measure = fields[name]["x-measure"];
    if (step && measure && offers)
      track.prepend(dotsOf(offers, measuredValues(step, measure), values[name]));
  }
}

/** A typed value: a number, nothing, or text. @param {string} text */
function parsed(text) {
  const trimmed = text.trim();
  if (!trimmed || trimmed === "null") return null;
  return Number.isFinite(Number(trimmed)) ? Number(trimmed) : trimmed;
}

/** The wanted strategy, as the catalog offers it. @param {State} state */
function offeredIn({ catalog, status: { wanted } }) {
  return catalog?.strategies.find(one => one.name === wanted?.strategy.name);
}

/**
 * The settings of the wanted strategy, always in one order: as in its paper, with the budget among
 * the first.
 * @param {Context} context
 * @param {Features} features
 */
export function settingsOf({ state, send, live }, features) {
  const grid = div("sl-settings");
  const apply = asks(send, "Apply", { do: "redo" }, WORDS.controls.apply);
  const reset = asks(send, "Reset", { do: "reset" });
  const rest = div("sl-settings");
  const more = made("details", {}, made("summary", {}, "More settings"), rest);
  const row = div("sl-row", live ? apply : null, reset);
  const element = made("div", {}, grid, more, refusal("strategy"), row);
  let built = "";
  /** @type {Values} */
  let typed = {};
  /** @type {Record<string, ReturnType<typeof settingOf>>} */
  let cells = {};
  /** @param {string} name @param {any} value */
  const changed = (name, value) => {
    typed = { ...typed, [name]: value };
    const settings = { ...state().status.wanted.strategy.settings, ...typed };
    pushOthers(offeredIn(state()).ascending, name, settings, other => {
      typed[other] = value;
      cells[other].push(value);
    });
    built = "edited";
    send({ do: "want", strategy: { name: state().status.wanted.strategy.name, settings: typed } });
  };
  /** @param {State} now @param {Plot} plot */
  const update = (now, plot) => {
    const wanted = now.status.wanted?.strategy;
    const known = offeredIn(now);
    element.hidden = !known;
    if (!known) return;
    const refused = now.status.error?.where === "strategy";
    if (!refused) typed = {};
    const fields = known.schema.properties;
    const values = { ...wanted.settings, ...typed };
    const step = stepShown(now);
    const key = JSON.stringify([wanted.name, values]);
    const pairs = pairsOf(known.ascending, fields);
    const edited = element.querySelector("input:focus, select:focus");
    if (!built || (!edited && key !== built)) {
      built = key;
      cells = cellsOf(fields, values, pairs, changed, features);
      const list = Object.values(cells).flatMap(one => (one.cell.firstChild ? one.cell : []));
      grid.replaceChildren(...list.splice(0, LOOKS.sliders.first));
      rest.replaceChildren(...list);
      more.hidden = !list.length;
    }
    for (const pair of pairs) drawZones(pair, cells, fields, values);
    const own = step?.settings.strategy === wanted.name ? step : null;
    drawDots(cells, fields, values, own);
    if (own && element.offsetParent && !shows(grid, [own, built]))
      features.all("settled", cells, values, own);
    for (const { more: added } of Object.values(cells))
      for (const one of added) one.update(now, plot);
    const same = !now.status.pending?.length;
    apply.disabled =
      !step || same || refused || Boolean(now.status.busy || now.gone) || !now.status.live;
    reset.disabled = live && same && !refused;
  };
  return { element, update };
}

/** Models, strategy, prompt, sampling. @param {Context} context */
export function formOf({ send }) {
  const element = div("speclab-form");
  /** @type {string | null} */
  let built = null;
  /** @param {State} now */
  const update = now => {
    element.hidden = !now.form || !now.catalog || !now.status.wanted;
    if (element.hidden) return;
    const key = JSON.stringify([now.status.wanted, now.status.missing]);
    if (built === key || (built && element.querySelector("input:focus, textarea:focus"))) return;
    built = key;
    element.replaceChildren(...formRows(now, send));
  };
  return { element, update };
}

/** @param {State} now @param {(message: Message) => void} send @returns {HTMLElement[]} */
function formRows({ catalog, status: { wanted, missing } }, send) {
  /** @param {[string, HTMLElement]} field */
  const labelled = ([label, control]) =>
    made("label", { class: "sl-field" }, made("span", {}, label), control);
  /** @param {[string, HTMLElement][]} fields @param {string} [name] */
  const row = (fields, name) => div("sl-row", ...fields.map(labelled), name && refusal(name));
  const soon = later(250);
  /** @param {any} event */
  const input = ({ target }) => soon(() => send({ do: "want", prompt: target.value }));
  return [
    ...(catalog.models.length ? [row(modelFields(catalog, wanted.models, send), "models")] : []),
    row(strategyFields(catalog, wanted, missing ?? {}, send), "strategy"),
    row(sessionFields(wanted.session, send), "session"),
    row([["example", exampleOf(catalog, wanted, send)]]),
    made("textarea", { ...WORDS.controls.prompt, input }, wanted.prompt),
    refusal("prompt"),
    made("p", { class: "sl-muted" }, catalog.note ?? "")
  ];
}

/**
 * The models, the device, and for models of one's own where they are.
 * @param {Partial<Catalog>} catalog
 * @param {Record<string, any> | null} chosen
 * @param {(message: Message) => void} send
 * @returns {[string, HTMLElement][]}
 */
function modelFields(catalog, chosen, send) {
  const tell = () => {
    const name = JSON.parse(models.value);
    /** @type {Values} */
    const wanted = { name, device: device.value || null };
    for (const [field, { value }] of Object.entries(own)) wanted[field] = value;
    wanted.heads = wanted.heads.split(/[\s,]+/).filter(Boolean);
    send({ do: "want", models: name === null ? null : wanted });
  };
  const names = catalog.models.map(one => [
    JSON.stringify(one.name),
    one.here ? one.label : `${one.label} (not here: ${one.way})`
  ]);
  const value = JSON.stringify(chosen?.name ?? null);
  const models = choiceOf(names, value, tell, WORDS.controls.models);
  const devices = catalog.devices.map(one => [one.value ?? "", one.label]);
  const device = choiceOf(devices, chosen?.device ?? "", tell);
  /** @type {Values} */
  const own = {};
  for (const [field, placeholder] of Object.entries(WORDS.own))
    own[field] = made("input", {
      value: chosen?.[field] ?? "",
      placeholder,
      size: 22,
      change: tell
    });
  const places = chosen?.name === "" ? Object.entries(own) : [];
  return [["models", models], ["device", device], ...places];
}

/**
 * @param {Partial<Catalog>} catalog
 * @param {Wanted} wanted
 * @param {(message: Message) => void} send
 */
function exampleOf(catalog, wanted, send) {
  const shipped = catalog.prompts.filter(one => one.chat === wanted.chat);
  const options = shipped.map(one => [one.text, `${one.kind} · ${one.name}`]);
  const value = shipped.some(one => one.text === wanted.prompt) ? wanted.prompt : "";
  return choiceOf([["", "your own"], ...options], value, prompt => {
    if (prompt) send({ do: "want", prompt });
  });
}

/**
 * @param {Partial<Catalog>} catalog
 * @param {Wanted} wanted
 * @param {Record<string, string>} missing
 * @param {(message: Message) => void} send
 * @returns {[string, HTMLElement][]}
 */
function strategyFields(catalog, wanted, missing, send) {
  const { name, settings } = wanted.strategy;
  /** @param {OfferedStrategy} one */
  const optionOf = one => {
    const title = missing[one.name] ?? one.doc;
    return made("option", { value: one.name, title, disabled: one.name in missing }, one.name);
  };
  const groups = LOOKS.sliders.groups.map(group => {
    const members = catalog.strategies.filter(one => one.group === group);
    return members.length ? made("optgroup", { label: group }, ...members.map(optionOf)) : null;
  });
  const change = () => send({ do: "want", strategy: { name: select.value, settings: {} } });
  const select = made("select", { class: "speclab-strategy", change }, ...groups);
  select.value = name;
  const presets = catalog.strategies.find(one => one.name === name)?.presets ?? [];
  if (!presets.length) return [["strategy", select]];
  const same = presets.find(one => JSON.stringify(one.settings) === JSON.stringify(settings));
  const names = [["", "custom"], ...presets.map(one => [one.name, one.name])];
  const preset = choiceOf(names, same?.name ?? "", chosen => {
    const found = presets.find(one => one.name === chosen);
    if (found) send({ do: "want", strategy: { name, settings: found.settings } });
  });
  return [
    ["strategy", select],
    ["preset", preset]
  ];
}

/**
 * @param {Record<string, any>} session
 * @param {(message: Message) => void} send
 * @returns {[string, HTMLElement][]}
 */
function sessionFields(session, send) {
  return Object.entries(WORDS.session)
    .filter(([name]) => name in session)
    .map(([name, label]) => {
      const input = made("input", {
        value: session[name] ?? "",
        size: 6,
        inputmode: "decimal",
        placeholder: name.startsWith("top") ? "all" : "",
        disabled: LOOKS.sliders.sampling.includes(name) && !session.temperature,
        /** @param {any} event */
        change: ({ target }) => send({ do: "want", session: { [name]: parsed(target.value) } })
      });
      return [label, input];
    });
}
