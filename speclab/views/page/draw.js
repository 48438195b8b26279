// @ts-check
// The stage, the timeline, the text and the tabs: figures of the pure files, put on the page only if they changed.

const PLOT = { displayModeBar: false, responsive: false, doubleClick: "reset" };
const ROLES = ["ink", "muted", "line", "faint", "paper"];

/** An element. @param {string} tag @param {Record<string, any>} attributes @param {...any} children @returns {any} */
function made(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "click") element.addEventListener("click", value);
    else if (name === "class") element.className = value;
    else if (name === "hidden") element.hidden = value;
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

/** @param {string} label @param {Record<string, any>} attributes @param {() => void} click */
function button(label, attributes, click) {
  return made("button", { type: "button", ...attributes, click }, label);
}

/** The theme's colours by their role, for plotly. @param {HTMLElement} element @returns {Record<string, string>} */
function rolesOf(element) {
  const style = getComputedStyle(element);
  return Object.fromEntries(ROLES.map(role => [`var(--sl-${role})`, style.getPropertyValue(`--sl-${role}`).trim() || "#888"]));
}

/** A figure with roles replaced by colours; texts stay. @param {any} value @param {Record<string, string>} colors @param {string} key @returns {any} */
function themed(value, colors, key = "") {
  if (["text", "hovertext", "customdata", "ticktext"].includes(key)) return value;
  if (typeof value === "string") return colors[value] ?? value;
  if (Array.isArray(value)) return value.map(one => themed(one, colors));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, themed(part, colors, name)]));
}

/** Draws figures with plotly; the same arguments draw nothing. @param {any} Plotly @param {() => Record<string, string>} colors */
function plotter(Plotly, colors) {
  return (place, key, figureOf, clicked) => {
    const theme = colors();
    const values = [...key, JSON.stringify(theme)];
    if (place.drawn?.length === values.length && place.drawn.every((value, index) => value === values[index])) return;
    place.drawn = values;
    const { data, layout, ...more } = figureOf();
    place.figure = more;
    const sentence = layout.meta?.sentence ?? "";
    place.setAttribute("aria-label", sentence);
    const template = { layout: themed(LOOKS.template.layout, theme) };
    const width = layout.width ?? Math.max(place.clientWidth, 200);
    const first = !place.data;
    Plotly.react(place, themed(data, theme), { ...themed(layout, theme), width, template, uirevision: values[0] }, PLOT);
    if (first && clicked) place.on("plotly_click", ({ points: [point] }) => clicked(point));
  };
}

/** @param {Table} table @returns {HTMLElement} */
function tableOf({ head, rows, sentence }) {
  const line = (cells, tag) => made("tr", {}, ...cells.map(cell =>
    made(tag, tag === "th" ? { scope: "col" } : { class: typeof cell === "number" ? "sl-number" : "" }, String(cell))));
  return made("table", { class: "speclab-table" }, made("caption", {}, sentence), made("thead", {}, line(head, "th")),
    made("tbody", {}, ...rows.map(row => line(row, "td"))));
}

/** Text with control characters written out; line breaks, and what joins emoji, stay. @param {string} text */
function readable(text) {
  const code = char => char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return text.replace(/(?![\n\t\u200d])[\p{Cc}\p{Cf}\p{Co}]/gu, char => `<U+${code(char)}>`);
}

/** The text so far: a span for each list of pieces. @param {HTMLElement} body @param {State} state */
function drawText(body, state) {
  const now = positionShown(state);
  const known = state.cursor - Number(state.cursor > 0 && !reached(now, "commit"));
  const seen = asking(state) ? state.cursor - 1 : known;
  const key = [state.header, state.steps, state.marks, seen];
  if (body.drawn?.every((value, index) => value === key[index])) return;
  body.drawn = key;
  const lists = textPieces(state.header, state.steps.slice(0, seen));
  body.replaceChildren(...lists.map((pieces, iteration) => {
    const shown = state.marks ? pieces : pieces.filter(piece => piece.kind !== "rejected");
    const span = made("span", iteration === seen && iteration ? { class: "sl-newest" } : {});
    if (state.marks && iteration) span.append(made("span", { class: "sl-mark", "data-iteration": iteration }, `${iteration} +${state.steps[iteration - 1].committed.length}`));
    span.append(...shown.map(({ text, kind, title }) => made(kind === "rejected" ? "s" : "span", { class: `sl-t sl-${kind}`, title }, readable(text))));
    return span;
  }));
  body.scrollTop = body.scrollHeight;
}

/** The set-up: what decoded the iteration shown. @param {State} state @returns {string} */
function titleOf({ header, steps, cursor, catalog, status }) {
  if (!header) return status.wanted ? [status.wanted.models?.name ?? "", status.wanted.strategy.name].filter(Boolean).join(" · ") : "";
  const step = steps[Math.max(cursor - 1, 0)];
  const { strategy, ...settings } = step?.settings ?? header.settings;
  const schema = catalog?.strategies.find(one => one.name === strategy)?.schema.properties ?? {};
  const other = Object.entries(schema).filter(([name, field]) => name in settings && settings[name] !== field.default && field["x-symbol"])
    .map(([name, field]) => `${field["x-symbol"]} ${settings[name]}`);
  const drafts = (step?.caches ?? []).map(cache => cache.name).filter(name => name !== "target");
  const temperature = header.settings.temperature;
  const models = header.models.target ?? header.title;
  const parts = [models, drafts.join(" + "), [strategy, ...other.slice(0, 3)].join(", "), temperature ? `temperature ${temperature}` : "greedy"];
  return parts.filter(Boolean).join(" · ");
}

/** @param {State} state @returns {string} */
function scoreWords(state) {
  const { tokensPerPass, passesSaved } = score(state.steps.slice(0, asking(state) ? state.cursor - 1 : state.cursor));
  return tokensPerPass ? words("score", "line", { rate: tokensPerPass, saved: passesSaved }) : "";
}

/** What a check found, each a button that goes there. @param {State} state @param {(event: PageEvent) => void} dispatch */
function findingsOf({ steps }, dispatch) {
  const groups = steps.flatMap(({ findings }) => [...new Set(findings.map(one => one.kind))].map(kind => findings.filter(one => one.kind === kind)));
  const entries = groups.slice(0, 50).map(([finding, ...more]) => {
    const { node, sentence } = finding;
    const cursor = finding.iteration + 1;
    const go = () => {
      dispatch({ type: "go", cursor });
      dispatch({ type: "set", values: { node } });
    };
    const label = `Iteration ${cursor}${node === null ? "" : `, node ${node}`}: ${markOf(finding)}`;
    return made("li", {}, button(label, { "data-finding": JSON.stringify([cursor, node]) }, go), ` ${sentence}${more.length ? ` And ${more.length} more.` : ""}`);
  });
  return entries.length ? made("ol", { class: "sl-findings" }, ...entries) : null;
}
