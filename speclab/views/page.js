// Draws a run from data: in the lab, on an exported page, on the site. What needs no kernel is done here alone.
// host: {live, send(message), on(handler), keys}; the data are those of run_data.py.

const MARK = 15, CHAR = 7.25, LEFT = 24, RIGHT = 10, GAPS = [18, 64]; // as in networks.py
const TOP = 26, BOTTOM = 10, HEIGHT = 380, PITCH = [24, 48]; // as in tree_picture.py
const BEND = [0, 0.12, 0.26, 0.42, 0.58, 0.74, 0.88, 1];
const MOST = 120, LEAST = 16; // as in run_picture.py
const BARS = 9; // as in node_picture.py
const COMMITTED = "rabc";
const MASK = { ancestor: 1, self: 2, missing: 3, extra: 4 };
const TABS = { settings: "Settings", caches: "Caches", node: "Node", metrics: "Metrics", compare: "Compare", check: "Check" };
const FINDINGS = 100; // in the list
const UNTIL = [
  ["end", "end of text", null], ["accepts_fewer", "accepts fewer than", "number"], ["token", "a token or text", "text"],
  ["nodes_more", "more nodes than", "number"], ["expression", "an expression", "text"],
];
const CONFIG = { displayModeBar: false, doubleClick: "reset", responsive: false };

// ---- small helpers ------------------------------------------------------------------------------------------------

function made(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "html") element.innerHTML = value;
    else if (key in element && typeof value !== "string") element[key] = value;
    else element.setAttribute(key === "class" ? "class" : key, value);
  }
  element.append(...children);
  return element;
}

const plotText = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");
const wide = char => /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Extended_Pictographic}/u.test(char);
const columnsOf = text => [...text].reduce((sum, char) => sum + (/\p{M}/u.test(char) ? 0 : wide(char) ? 2 : 1), 0);

function clip(text, most) {
  if (columnsOf(text) <= most) return text;
  const chars = [...text];
  while (chars.length && columnsOf(chars.join("")) >= most) chars.pop();
  return `${chars.join("")}…`;
}

function percent(probability) { // as in tokens.py
  const share = 100 * probability;
  if (share >= 9.95 || share === 0) return `${share.toFixed(0)} %`;
  return share >= 0.1 ? `${share.toFixed(1)} %` : "<0.1 %";
}

// A picture whose "@name" are replaced by the columns of these names; traces without a value are left out.
function fill(value, columns) {
  if (typeof value === "string" && value.startsWith("@")) return columns[value.slice(1)] ?? [];
  if (Array.isArray(value)) return value.map(part => fill(part, columns));
  if (value === null || typeof value !== "object") return value;
  const filled = Object.fromEntries(Object.entries(value).map(([key, part]) => [key, fill(part, columns)]));
  if (filled.data && filled.layout)
    filled.data = filled.data.filter(trace => (trace.orientation === "h" ? trace.x : trace.y).some(one => one !== null));
  return filled;
}

// ---- the tree -----------------------------------------------------------------------------------------------------

function labelOf(table, place, chars) {
  const number = Number.isInteger(table.id[place]) ? `${table.id[place]} ` : "";
  return number + (chars ? clip(table.label[place], Math.max(chars[table.depth[place]] - number.length, 2)) : table.label[place]);
}

// For each depth, where its nodes stand and how many characters its labels may have; the longest labels are cut first.
function columns(table, room) {
  const widths = [];
  table.depth.forEach((depth, place) => { widths[depth] = Math.max(widths[depth] ?? 0, columnsOf(labelOf(table, place))); });
  const free = room - LEFT - RIGHT - MARK * widths.length, least = GAPS[0] * (widths.length - 1);
  const sum = limit => widths.reduce((total, width) => total + Math.min(width, limit), 0);
  let most = Math.max(...widths);
  while (most > 4 && free < least + CHAR * sum(most)) most -= 1;
  const chars = widths.map(width => Math.min(width, most));
  const gap = widths.length === 1 ? GAPS[1] : (free - CHAR * sum(most)) / (widths.length - 1);
  const x = [];
  let left = LEFT;
  for (const each of chars) {
    x.push(left);
    left += MARK + CHAR * each + Math.min(Math.max(gap, GAPS[0]), GAPS[1]);
  }
  return { x, chars };
}

// The figure of a tree table at a position: links by kind, one symbol and one label per node, second lines.
function drawTree(table, kinds, room, { looks, links, tips, second, fresh, verified }) {
  const { x, chars } = columns(table, room), shown = [...kinds].flatMap((code, place) => (code === "-" ? [] : [place]));
  const labels = table.id.map((_, place) => labelOf(table, place, chars));
  const ends = x.map((left, depth) => left + MARK + CHAR * chars[depth]);
  const height = HEIGHT - TOP - BOTTOM, pitch = Math.min(Math.max(height / table.rows, PITCH[0]), PITCH[1]);
  const xOf = place => x[table.depth[place]], yOf = place => table.row[place];
  const paths = {};
  for (const place of shown) {
    const parent = table.parent[place], code = kinds[place];
    if (parent < 0) continue;
    const kind = COMMITTED.includes(code) ? "path" : code === "g" ? "gone" : verified && table.choice[place] ? "choice" : "link";
    const path = (paths[kind] ??= { x: [], y: [] }), bend = ends[table.depth[parent]] + 2;
    const end = xOf(place) - table.size[place] / 2 - 3, [from, to] = [yOf(parent), yOf(place)];
    path.x.push(xOf(parent) + MARK + CHAR * columnsOf(labels[parent]) + 3, ...BEND.map(share => bend + share * (end - bend)), null);
    path.y.push(from, ...BEND.map(share => from + (3 * share ** 2 - 2 * share ** 3) * (to - from)), null);
  }
  const data = Object.entries(links).filter(([kind]) => paths[kind]).map(([kind, line]) =>
    ({ type: "scatter", mode: "lines", ...paths[kind], line, hoverinfo: "skip" }));
  const look = place => looks[kinds[place]];
  const ringed = new Set(fresh);
  const paper = "var(--sl-paper)";
  const ink = "var(--sl-ink)";
  const muted = "var(--sl-muted)";
  const ring = place => ringed.has(table.id[place]);
  data.push({
    type: "scatter", mode: "markers", name: "nodes", x: shown.map(xOf), y: shown.map(yOf), customdata: shown.map(place => table.id[place]),
    hoverinfo: "text", hovertext: shown.map(place => table.tip[place] ?? tips(table.id[place])),
    marker: {
      symbol: shown.map(place => look(place).symbol), size: shown.map(place => table.size[place]), opacity: 1,
      color: shown.map(place => (look(place).filled ? look(place).color : paper)),
      line: {
        color: shown.map(place => (look(place).filled || ring(place) ? ink : look(place).color)),
        width: shown.map(place => Math.max(verified ? table.border[place] : 1, ring(place) ? 2.5 : 0)),
      },
    },
  });
  const written = (places, y, text, textfont) => ({
    type: "scatter", mode: "text", textposition: "middle right", hoverinfo: "skip",
    x: places.map(place => xOf(place) + MARK - 2), y, text, textfont,
  });
  const bold = shown.map(place => COMMITTED.includes(kinds[place]));
  const family = "Menlo, Consolas, 'DejaVu Sans Mono', monospace";
  const struck = place => (kinds[place] === "g" ? `<s>${plotText(labels[place])}</s>` : plotText(labels[place]));
  data.push(written(shown, shown.map(yOf), shown.map(struck),
    { family, size: 12, color: bold.map(one => (one ? ink : muted)), weight: bold.map(one => (one ? 600 : 400)) }));
  const noted = shown.filter(place => second[table.id[place]] && kinds[place] !== "g");
  const rooms = x.map((left, depth) => Math.floor(((x[depth + 1] ?? room) - left - MARK) / CHAR));
  if (noted.length)
    data.push(written(noted, noted.map(place => yOf(place) + 11.5 / pitch),
      noted.map(place => plotText(clip(second[table.id[place]], Math.max(rooms[table.depth[place]], 2)))),
      { family, size: 11, color: noted.map(place => (/^[⚠≈]/.test(second[table.id[place]]) ? ink : muted)) }));
  const half = height / pitch / 2, middle = (table.rows - 1) / 2;
  const layout = {
    width: room, height: HEIGHT, margin: { l: 0, r: 0, t: TOP, b: BOTTOM }, dragmode: "pan",
    xaxis: {
      tickvals: x, ticktext: x.map((_, depth) => (depth ? `${depth}` : "depth 0")), side: "top", tickangle: 0,
      range: [0, Math.max(room, ends.at(-1))], showgrid: false,
    },
    yaxis: { range: [middle + half, middle - half], visible: false },
  };
  return { data, layout };
}

// ---- the mask -----------------------------------------------------------------------------------------------------

// The figure of a mask with its cells: before verify the expected ones, as far as the nodes are drafted.
function drawMask(mask, words, position, verified, compare) {
  const absent = new Set(position.phase === "draft" ? position.absent : []);
  let count = position.phase === "draft" ? mask.figure.layout.meta.rows : mask.codes.length;
  while (absent.has(count - 1)) count -= 1;
  const seen = code => (verified ? code : code === MASK.missing ? MASK.ancestor : code === MASK.extra ? 0 : code);
  const z = mask.codes.slice(0, count).map((row, y) =>
    [...row.slice(0, count)].map((code, x) => (absent.has(y) || absent.has(x) ? 0 : seen(+code))));
  const [band, heat] = mask.figure.data, axis = mask.figure.layout.yaxis, dots = {};
  const many = count > 96; // too many for a sentence each
  const text = many ? undefined : z.map((row, y) => row.map((code, x) => `${mask.names[y]} ${words[code]} ${mask.names[x]}`));
  z.forEach((row, y) => row.forEach((code, x) => {
    if (code === MASK.missing) (dots.missing ??= []).push([x, y]);
    if (code === MASK.extra) (dots.extra ??= []).push([x, y]);
    if (compare && [MASK.ancestor, MASK.self, MASK.missing].includes(code)) (dots.expected ??= []).push([x, y]);
  }));
  const looks = { missing: ["square-open", "#D55E00"], extra: ["x-thin", "var(--sl-paper)"], expected: ["circle", "var(--sl-paper)"] };
  const marks = Object.entries(dots).map(([name, points]) => ({
    type: "scatter", mode: "markers", x: points.map(point => point[0]), y: points.map(point => point[1]), hoverinfo: "skip",
    marker: { symbol: looks[name][0], size: 5, color: looks[name][1], line: { width: 1.5, color: looks[name][1] } },
  }));
  const part = values => values?.slice(0, count);
  const rows = { ...band, y: part(band.y), x: part(band.x), base: part(band.base), hovertext: part(mask.names) };
  const known = axis.tickvals.filter(row => row < count).length;
  const yaxis = { ...axis, tickvals: axis.tickvals.slice(0, known), ticktext: axis.ticktext.slice(0, known) };
  const tips = many ? { hovertemplate: "row %{y}, column %{x}<extra></extra>" } : { text };
  const annotations = mask.figure.layout.annotations.filter(one => verified || one.name !== "finding");
  return { data: [rows, { ...heat, z, ...tips }, ...marks], layout: { ...mask.figure.layout, yaxis, annotations } };
}

// ---- the bars of a node -------------------------------------------------------------------------------------------

// Children, the target's choice and the most probable tokens besides, the most probable first: as node_columns.
function nodeColumns({ nodes, facts, words }, node, looks) {
  const { children, choice, p, q, plain } = nodes[node], target = new Map(p), draft = new Map(q), child = new Map(children);
  const beside = new Map(plain);
  const sign = place => Object.values(looks).find(look => look.kind === facts[place][9]).sign;
  const said = new Map(children.map(([token, place]) => [token, `node ${place} ${sign(place)}`]));
  said.set(choice, `${said.get(choice) ?? ""} ★ chosen`.trim());
  const higher = (map, a, b) => (map.get(b) ?? 0) - (map.get(a) ?? 0);
  const order = [...new Set([...target.keys(), ...beside.keys(), ...draft.keys(), ...said.keys()])]
    .sort((a, b) => higher(target, a, b) || higher(beside, a, b) || higher(draft, a, b));
  const others = order.filter(token => !said.has(token)).slice(0, Math.max(BARS - said.size, 3));
  const tokens = order.filter(token => said.has(token) || others.includes(token));
  const names = tokens.map(token => clip(words[token], 18)), notes = tokens.map(token => said.get(token) ?? "");
  const most = texts => Math.max(...texts.map(columnsOf)), room = most(names) + 2, side = most(notes) + 1;
  const padding = (text, width) => "\u00a0".repeat(width - columnsOf(text)); // plotly aligns to the right
  const column = map => tokens.map(token => map.get(token) ?? null);
  const shares = map => tokens.map(token => (map.has(token) ? percent(map.get(token)) : ""));
  return {
    place: tokens.map((_, place) => place), node: column(child), p: column(target), q: column(draft),
    "p text": shares(target), "q text": shares(draft), plain: column(beside), "plain text": shares(beside),
    ticks: names.map((name, i) => plotText(name) + padding(name, room) + notes[i] + padding(notes[i], side)),
  };
}

// ---- the page -----------------------------------------------------------------------------------------------------

function mount(element, host, Plotly) {
  const run = { header: null, iterations: [] };
  const at = { cursor: 0, tick: 0, node: null, tab: "caches", compare: false }; // tick: index into the positions
  const lab = {
    setup: "", sentence: "", began: 0, busy: null, progress: null, error: null, finished: "", can_step: true,
    pending: null, dead: "", hint: "",
  };
  const parts = {}; // tab -> place -> [figure | HTML]
  const predict = { on: false, asked: null, tries: 0, right: 0, said: "" };
  let preview = null, playing = null, due = 0, told = 0, later = 0, clock = null;

  // -- elements
  const button = (label, attributes, click) => {
    const one = made("button", { type: "button", ...attributes }, label);
    one.addEventListener("click", click);
    return one;
  };
  const title = made("span", { class: "sl-title" });
  const change = button("Change", { class: "speclab-change" }, () => host.send({ do: "change" }));
  const back = button("◀", { class: "sl-back", title: "one iteration back (←)", "aria-label": "back" }, () => go(at.cursor - 1));
  const next = button("▶", { title: "one iteration forward (→)", "aria-label": "forward" }, () => go(at.cursor + 1));
  const step = button("Step", { class: "speclab-step", title: "decode one iteration (space)" }, onStep);
  const phases = made("span", { class: "sl-phases", role: "group", "aria-label": "phases" });
  const until = untilControls();
  const stop = button("Stop", { class: "sl-stop" }, () => host.send({ do: "stop" }));
  const play = button("Play", { class: "sl-play", title: "show one phase after another" }, () => (playing ? pause() : start()));
  const place = made("span", { class: "sl-place" }), menu = host.live ? menuOf() : "";
  const bar = made("div", { class: "sl-bar" }, back, ...(host.live ? [step] : [next]), place, phases, ...(host.live ? [until.all, stop] : []), play, menu);
  const line = made("div", { class: "sl-pending", role: "status" });
  const error = made("div", { class: "speclab-error", role: "alert" });
  const timeline = made("div", { class: "speclab-timeline" });
  const tree = made("div", { class: "speclab-tree", role: "application", tabindex: "0" });
  const mask = made("div", { class: "speclab-mask" }), verdict = made("span", { class: "sl-verdict" });
  const check = made("input", { type: "checkbox" });
  const stage = made("div", { class: "sl-stage" });
  const loading = made("div", { class: "sl-loading" });
  check.addEventListener("change", () => { at.compare = check.checked; draw(); });
  const compared = made("label", { class: "sl-check", title: "mark every entry that the tree requires with a dot" }, check, "expected against given ");
  const masked = made("div", { class: "sl-masked" }, mask, made("div", {}, compared, verdict));
  const commit = made("div", { class: "sl-commit" });
  stage.append(tree, masked, commit, loading);
  const signs = made("span", { class: "sl-signs" }), treeRows = made("div", { class: "sl-rows", hidden: true });
  const asTable = button("as table", { class: "sl-link", "aria-expanded": "false" }, () => {
    treeRows.hidden = !treeRows.hidden;
    asTable.setAttribute("aria-expanded", String(!treeRows.hidden));
    draw();
  });
  const said = made("span", { class: "sl-said" }), count = made("span", { class: "sl-count" });
  const status = made("div", { class: "speclab-status", role: "status", "aria-live": "polite" }, said, count);
  const nodeLine = made("div", { class: "sl-node-line", "aria-live": "polite" });
  const legend = made("div");
  const body = made("div", { class: "sl-body", dir: "auto", role: "document", "aria-label": "the text so far" });
  const text = made("div", { class: "speclab-text" }, legend, body);
  const tabs = made("div", { class: "sl-tabs", role: "tablist" });
  const panel = made("div", { class: "sl-panel", role: "tabpanel" });
  for (const [name, label] of Object.entries(TABS))
    if (host.live || !["settings", "compare"].includes(name))
      tabs.append(button(label, { role: "tab", "data-tab": name }, () => { at.tab = name; draw(); tell(); }));
  const byHand = host.live ? byHandControls() : null;
  element.classList.add("speclab-page");
  element.dataset.lmSuppressShortcuts = "true";
  const whole = made("div", { class: "speclab-body" }, bar, line, error, timeline, stage,
    made("div", { class: "sl-below" }, signs, asTable), treeRows, status, nodeLine, text, tabs, panel);
  whole.tabIndex = -1; // the element itself may have no box of its own
  element.replaceChildren(made("div", { class: "speclab-top" }, title, host.live ? change : ""), whole);

  // -- where one is
  const shown = () => run.iterations[at.cursor - 1] ?? null;
  const before = () => ({ phase: "all", kinds: "", fresh: [], absent: [], sentence: run.header?.sentence ?? "" });
  const position = () => shown()?.positions[at.tick] ?? before();
  const reached = phase => run.header.phases.indexOf(position().phase) >= run.header.phases.indexOf(phase);
  const asking = () => predict.asked !== null && predict.asked === at.cursor - 1;

  function go(cursor, tick = Infinity) { // where the person goes
    move(cursor, tick);
    tell();
  }
  function move(cursor, tick = Infinity) {
    cursor = Math.min(Math.max(cursor, 0), run.iterations.length);
    if (cursor !== at.cursor) at.node = null;
    at.cursor = cursor;
    const last = (shown()?.positions.length ?? 1) - 1;
    at.tick = Math.min(Math.max(tick, 0), asking() ? phaseStart("flatten") : last);
    draw();
  }
  const phaseStart = name => shown().positions.findIndex(one => one.phase === name);
  function along(by) { // positions, on into the next iteration and back into the last
    const last = (shown()?.positions.length ?? 1) - 1;
    if (at.tick + by >= 0 && at.tick + by <= last) return go(at.cursor, at.tick + by);
    if (by > 0 && at.cursor < run.iterations.length) return go(at.cursor + 1, 0);
    if (by < 0 && at.cursor > 0) return go(at.cursor - 1);
  }
  function toPhase(name, level = null, to = go) { // the whole phase; again: its positions one by one
    const ticks = shown()?.positions.flatMap((one, tick) => (one.phase === name ? [tick] : [])) ?? [];
    if (!ticks.length) return;
    const here = ticks.indexOf(at.tick);
    if (level !== null) return to(at.cursor, ticks.find(tick => shown().positions[tick].level === level) ?? ticks.at(-1));
    to(at.cursor, here < 0 ? ticks.at(-1) : ticks[(here + 1) % ticks.length]);
  }
  function select(node) {
    if (asking()) return Number.isInteger(node) && guess(node);
    at.node = node === at.node ? null : node;
    draw();
    tell();
  }
  function tell() {
    clearTimeout(told);
    told = setTimeout(() => {
      const { phase, level = null } = position();
      host.send({ do: "shown", cursor: at.cursor, phase, level, node: at.node, tab: at.tab });
    }, 30);
  }
  function start() {
    play.textContent = "Pause";
    playing = setInterval(() => {
      if (at.cursor === run.iterations.length && at.tick === (shown()?.positions.length ?? 1) - 1) return pause();
      along(1);
    }, 900);
  }
  function pause() {
    clearInterval(playing);
    playing = null;
    play.textContent = "Play";
  }
  function onStep() {
    if (step.disabled) return;
    if (at.cursor < run.iterations.length && !lab.pending) return go(at.cursor + 1);
    host.send({ do: "step" });
  }

  // -- predicting
  function ask(index) {
    if (!predict.on || run.iterations[index].nodes.length < 2) return;
    predict.asked = index;
    predict.said = "";
  }
  function guess(node) {
    const right = node === shown().last;
    predict.tries += 1;
    predict.right += right;
    predict.asked = null;
    at.node = node;
    predict.said = `${right ? "Right" : `Not node ${node}`}. ${shown().ending} Your score: ${predict.right} of ${predict.tries}.`;
    host.send({ do: "predict", node, right });
    toPhase("accept", Infinity);
  }

  // -- controls of the lab
  function untilControls() {
    const kind = made("select", { "aria-label": "Run until" }, ...UNTIL.map(([value, label]) => made("option", { value }, label)));
    const value = made("input", { "aria-label": "condition", size: "14", hidden: true });
    const hint = made("span", { class: "sl-hint", role: "status" });
    const wish = () => ({ kind: kind.value, value: value.type === "number" ? Number(value.value) : value.value });
    const runs = button("▶", { class: "speclab-run", title: "run until then", "aria-label": "run" }, () => host.send({ do: "run", until: wish() }));
    let waiting = 0;
    kind.addEventListener("change", () => {
      const type = UNTIL.find(([name]) => name === kind.value)[2];
      value.hidden = type === null;
      value.type = type ?? "text";
      value.value = type === "number" ? "2" : "";
      value.placeholder = kind.value === "expression" ? "accepted < 2" : "";
      hint.textContent = "";
    });
    value.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => host.send({ do: "condition", until: wish() }), 250);
    });
    value.addEventListener("keydown", event => { if (event.key === "Enter") runs.click(); });
    return { all: made("span", { class: "sl-until" }, made("span", {}, "Run until"), kind, value, runs, hint), runs, hint };
  }
  function menuOf() {
    const close = () => { all.open = false; };
    const file = made("input", { type: "file", accept: ".gz,.json,.jsonl", hidden: true });
    file.addEventListener("change", async () => {
      const bytes = new Uint8Array(await file.files[0].arrayBuffer());
      let binary = "";
      for (const byte of bytes) binary += String.fromCharCode(byte);
      host.send({ do: "open", name: file.files[0].name, data: btoa(binary) });
      file.value = "";
    });
    const box = made("input", { type: "checkbox", class: "sl-predict" });
    box.addEventListener("change", () => { predict.on = box.checked; close(); host.send({ do: "predict_mode", on: box.checked }); });
    const entry = (label, click) => button(label, { class: "sl-entry" }, () => { close(); click(); });
    const all = made("details", { class: "sl-more" }, made("summary", { "aria-label": "more", title: "more" }, "⋯"), made("div", {},
      entry("Save page", () => host.send({ do: "save", what: "page" })), entry("Save run", () => host.send({ do: "save", what: "run" })),
      entry("Open run", () => file.click()), file, made("label", {}, box, " Predict")));
    return all;
  }
  function byHandControls() {
    const child = made("select", { "aria-label": "child token" });
    const typed = made("input", { "aria-label": "or type a token", placeholder: "or type a token", size: "12" });
    const send = what => host.send({ ...what, node: at.node });
    const add = button("Add", {}, () => send(typed.value ? { do: "add", token: null, text: typed.value } : { do: "add", token: Number(child.value), text: null }));
    const prune = button("Prune", {}, () => send({ do: "prune" }));
    const undo = button("Undo", {}, () => host.send({ do: "undo" }));
    const verify = button("Verify", { class: "sl-verify" }, () => host.send({ do: "verify" }));
    const hint = made("span", { class: "sl-muted" });
    const all = made("div", { class: "sl-byhand" }, made("b", {}, "By hand"), hint, child, typed, add, prune, undo, verify);
    const update = () => {
      const words = shown()?.words, top = shown()?.nodes[at.node]?.q ?? [];
      const picked = at.node !== null && at.node !== "own";
      const off = !shown() || lab.busy || lab.dead;
      hint.textContent = picked ? `a child of node ${at.node}:` : "Select a node of the tree, then add a child or prune it.";
      child.replaceChildren(...top.map(([token]) => made("option", { value: String(token) }, words[token])));
      child.hidden = !top.length || !picked;
      typed.hidden = !picked;
      add.disabled = prune.disabled = !picked || off;
      undo.disabled = verify.disabled = off;
    };
    return { all, update };
  }

  // -- drawing
  let colors = {}, template = null; // of the theme
  function readColors() {
    const style = getComputedStyle(element), roles = ["ink", "muted", "line", "faint", "paper"];
    const found = Object.fromEntries(roles.map(role => [`var(--sl-${role})`, style.getPropertyValue(`--sl-${role}`).trim() || "#888"]));
    if (template && template.of === run.header && JSON.stringify(found) === JSON.stringify(colors)) return;
    colors = found;
    template = { ...themed(run.header.template, colors), of: run.header };
    painted.stage = painted.timeline = null;
  }
  const painted = { stage: null, timeline: null }; // what is drawn, so that it is not drawn again
  function themed(value, colors, key) {
    if (["text", "hovertext", "customdata", "ticktext"].includes(key)) return value;
    if (typeof value === "string") return colors[value] ?? value;
    if (Array.isArray(value)) return value.map(one => themed(one, colors));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, themed(part, colors, name)]));
  }
  function plot(place, figure, sentence) {
    const first = !place.data, width = figure.layout.width ?? place.clientWidth;
    const { data, layout } = themed(figure, colors);
    const shapes = layout.shapes ?? [];
    place.own = shapes;
    const said = sentence ?? figure.layout.meta?.sentence ?? "";
    place.setAttribute("aria-label", place === tree ? `${said} Arrow keys go from node to node.` : said);
    if (place !== tree) place.setAttribute("role", "img");
    const full = {
      ...layout, shapes: [...shapes, ...marks(place, at.node, "solid")], width: width || 640,
      uirevision: `${layout.meta?.name}-${place === tree ? at.cursor : ""}`, template: { layout: template.layout },
    };
    Plotly.react(place, data, full, CONFIG);
    if (first) listen(place);
  }
  function listen(place) {
    place.on("plotly_click", event => {
      const point = event.points[0];
      if (place === timeline) return go(point.x);
      if (place === mask) return point.y < (shown()?.nodes.length ?? 0) && select(point.y);
      const node = Array.isArray(point.customdata) ? point.customdata[0] : point.customdata;
      if (panel.contains(place) && at.tab === "metrics") return go(point.x);
      if (node !== undefined && node !== null) select(node);
    });
    place.on("plotly_hover", event => {
      const other = place === tree ? mask : place === mask ? tree : null, point = event.points[0];
      const hovered = place === tree ? point.customdata : point.y;
      const shapes = other?.data && [...other.own, ...marks(other, at.node, "solid"), ...marks(other, hovered, "dot")];
      if (shapes) Plotly.relayout(other, { shapes });
    });
    place.on("plotly_unhover", () => {
      const other = place === tree ? mask : place === mask ? tree : null;
      if (other?.data) Plotly.relayout(other, { shapes: [...other.own, ...marks(other, at.node, "solid")] });
    });
  }
  // What frames a node: a ring in the tree, its row and its column in the mask.
  function marks(place, node, dash) {
    const line = { color: colors["var(--sl-ink)"], width: dash === "dot" ? 1.2 : 2, dash };
    const table = drawn(), data = shown();
    if (node === null || node === undefined || !data) return [];
    if (place === tree) {
      let entry = table.id.indexOf(node);
      if (entry < 0) entry = Number(Object.entries(table.folded).find(([, nodes]) => nodes.includes(node))?.[0] ?? -1);
      const point = place.data?.find(trace => trace.name === "nodes"), x = tree.columns?.[table.depth[entry]];
      if (entry < 0 || x === undefined || !point) return [];
      const pixels = { xsizemode: "pixel", ysizemode: "pixel", x0: -11, x1: 11, y0: -11, y1: 11 };
      return [{ type: "circle", xref: "x", yref: "y", ...pixels, xanchor: x, yanchor: table.row[entry], line }];
    }
    const rows = data.mask.figure.layout.meta.rows;
    const start = data.mask.figure.layout.meta.start;
    const end = data.mask.codes.length - 0.5;
    if (place !== mask || !Number.isInteger(node) || node >= rows) return [];
    const [low, high] = [node - 0.5, node + 0.5];
    return [{ type: "rect", x0: start, x1: end, y0: low, y1: high, line }, { type: "rect", x0: low, x1: high, y0: -0.5, y1: end, line }];
  }
  const previewed = () => (preview && preview.index === at.cursor - 1 && position().phase === "all" ? preview.preview : null);
  const drawn = () => previewed()?.tree ?? shown()?.tree;

  function draw() { // once a frame, however much has changed
    if (due) return;
    due = requestAnimationFrame(() => { due = 0; if (run.header && whole.clientWidth) drawNow(); controls(); });
  }
  function drawNow() {
    const data = shown(), now = position(), width = whole.clientWidth;
    readColors();
    drawTimeline(width);
    const staged = data !== null, committing = now.phase === "commit" && data?.cache;
    tree.hidden = !staged || committing;
    masked.hidden = !staged || committing;
    commit.hidden = !committing;
    if (committing) painted.stage = null;
    if (committing) fillPanel(commit, [keyOf(data), { ...data.cache, layout: { ...data.cache.layout, width } }], "speclab-cache");
    else if (staged && changed("stage", [data, at.tick, previewed(), width, at.compare])) drawStage(data, now, width);
    else if (staged) for (const one of [tree, mask]) Plotly.relayout(one, { shapes: [...one.own, ...marks(one, at.node, "solid")] });
    signs.innerHTML = staged ? legendOf(now) : "";
    asTable.hidden = !staged || asking();
    if (asking()) treeRows.hidden = true;
    if (!treeRows.hidden && staged && treeRows.of !== data) { treeRows.innerHTML = factsOf(data); treeRows.of = data; }
    said.textContent = statusOf(now);
    const most = run.header.max_tokens;
    const tokens = (data && reached("commit") ? data : run.iterations[at.cursor - 2])?.tokens ?? 1;
    count.textContent = `${tokens}${most ? ` of ${most}` : ""} tokens`;
    nodeLine.textContent = nodeWords(data);
    drawText(now);
    clearTimeout(later);
    later = setTimeout(() => drawTab(shown()), 20); // the stage is painted first
  }
  function changed(name, values) {
    const same = painted[name]?.every((value, i) => value === values[i]);
    painted[name] = values;
    return !same;
  }
  function drawStage(data, now, width) {
    const table = drawn(), ghost = previewed(), verified = reached("verify"), stacked = width < 560;
    const room = stacked ? width : width - Math.max(data.mask.figure.layout.width, 200) - 20;
    const tips = node => (data.nodes[node] ? data.nodes[node].tip[0] + (verified ? `<br>${data.nodes[node].tip[1]}` : "") : "");
    const notes = { ...data.notes, accept: data.notes.verify, commit: data.notes.all };
    const second = (ghost ? ghost.second : notes[now.phase]) ?? {};
    const options = { looks: run.header.looks, links: run.header.links, tips, second, fresh: ghost ? [] : now.fresh, verified };
    tree.columns = columns(table, room).x;
    plot(tree, drawTree(table, ghost ? ghost.kinds : now.kinds, room, options), `Draft tree. ${ghost?.sentence ?? now.sentence}`);
    plot(mask, drawMask(data.mask, run.header.mask.words, now, verified, at.compare));
    verdict.textContent = verified ? data.mask.verdict : "";
    verdict.classList.toggle("sl-wrong", data.mask.verdict.startsWith("✗"));
  }
  function drawTimeline(width) {
    const all = run.iterations.length;
    const first = Math.max(Math.min(at.cursor - MOST / 2, all - MOST), 0);
    const seen = run.iterations.slice(first, first + MOST);
    const end = first + seen.length;
    const line = { color: colors["var(--sl-ink)"], width: 1.5 };
    const frame = { type: "rect", yref: "paper", y0: 0, y1: 1 };
    const veil = { fillcolor: colors["var(--sl-paper)"], opacity: 0.6, line: { width: 0 } };
    const shapes = [{ ...frame, x0: at.cursor ? at.cursor - 0.5 : first + 0.4, x1: at.cursor ? at.cursor + 0.5 : first + 0.5, line }];
    if (at.cursor < end)
      shapes.push({ ...frame, x0: Math.max(at.cursor, first) + 0.5, x1: end + 0.5, ...veil });
    place.textContent = `${at.cursor} of ${all}`;
    const moved = changed("cursor", [at.cursor]);
    if (!changed("timeline", [first, predict.asked, width, all, run.iterations.at(-1)])) {
      if (moved) Plotly.relayout(timeline, { shapes });
      timeline.setAttribute("aria-label", `Timeline: ${all} iterations, ${at.cursor} shown.`);
      return;
    }
    const hides = (data, name) => predict.asked === data.index && ["accepted", "bonus", "corrected", "tip"].includes(name);
    const names = ["x", "reach", "accepted", "bonus", "corrected", "tip"];
    const column = name => seen.map(data => (hides(data, name) ? null : data.timeline[name]));
    const figure = fill(run.header.timeline, Object.fromEntries(names.map(name => [name, column(name)])));
    figure.layout.xaxis = { ...figure.layout.xaxis, ...axisOf(first, seen.length) };
    figure.layout.shapes = shapes;
    const sign = { y: 1, yref: "paper", yanchor: "top", showarrow: false };
    figure.layout.annotations = seen.filter(data => data.timeline.sign).map(({ timeline: { x, sign: text } }) => ({ ...sign, x, text }));
    plot(timeline, figure, `Timeline: ${all} iterations, ${at.cursor} shown.`);
  }
  function axisOf(first, length) {
    const every = [1, 2, 5, 10].find(each => length <= 25 * each) ?? 10;
    const numbers = Array.from({ length }, (_, i) => first + i + 1).filter(number => number % every === 0);
    return { range: [first + 0.4, first + Math.max(length, LEAST) + 0.6], tickvals: numbers };
  }
  function legendOf(now) {
    const codes = new Set(previewed()?.kinds ?? now.kinds);
    const entries = Object.entries(run.header.looks).filter(([code]) => codes.has(code) && code !== "r" && code !== "f");
    return entries.map(([, look]) => `<span><i style="color:${look.color}">${look.sign}</i> ${look.label}</span>`).join("");
  }
  function statusOf(now) {
    if (previewed()) return previewed().sentence;
    if (asking()) return "Which of these will be accepted? Click the last one.";
    return predict.said && now.phase === "accept" ? predict.said : now.sentence;
  }
  function nodeWords(data) {
    if (!data) return "";
    const node = data.nodes[at.node];
    if (at.node === "own") return data.ending;
    const whole = data.findings.find(([place]) => place === null);
    if (!node && at.node === null && whole) return `${whole[1]}: ${whole[2]}`;
    if (!node) return at.node === null ? "Click a node." : `A new node ${drawn().label[drawn().id.indexOf(at.node)] ?? ""}.`;
    return node.sentence[Number(reached("verify"))];
  }
  function drawText(now) {
    const seen = at.cursor - (at.cursor && now.phase !== "all" && now.phase !== "commit" ? 1 : 0);
    if (body.of !== run.header) {
      body.replaceChildren(made("span", { html: run.header.prompt }));
      legend.innerHTML = run.header.legend;
      body.of = run.header;
    }
    run.iterations.forEach((data, index) => {
      const old = body.children[index + 1];
      if (old?.of === data) return;
      const piece = made("span", { html: data.text });
      piece.of = data;
      old ? old.replaceWith(piece) : body.append(piece);
    });
    while (body.children.length > run.iterations.length + 1) body.lastChild.remove();
    [...body.children].forEach((piece, index) => { piece.hidden = index > seen; });
  }
  const keyOf = data => `<p class="sl-key">${data.cache_key.map(([meaning, color, sign]) =>
    `<span><i style="background:${color}${/^[1r]$/.test(sign) ? ";color:#fff" : ""}">${sign || "&nbsp;"}</i>${meaning}</span>`).join("")}</p>`;
  function factsOf(data) {
    const cells = (values, name) => values.map(value => `<${name}>${escaped(String(value))}</${name.split(" ")[0]}>`).join("");
    const rows = data.facts.map(row => `<tr>${cells(row, "td")}</tr>`).join("");
    const head = `<thead><tr>${cells(run.header.facts, 'th scope="col"')}</tr></thead>`;
    return `<table class="speclab-table"><caption>Draft tree of iteration ${data.index + 1}</caption>${head}<tbody>${rows}</tbody></table>`;
  }
  const escaped = words => plotText(words).replace(/"/g, "&quot;");
  function drawTab(data) {
    for (const tab of tabs.children) {
      tab.setAttribute("aria-selected", String(tab.dataset.tab === at.tab));
      tab.tabIndex = tab.dataset.tab === at.tab ? 0 : -1;
      tab.hidden = tab.dataset.tab === "check" && !host.live && !found().length;
    }
    const placed = Object.values(parts[at.tab] ?? {}).flat(), list = [];
    if (at.tab === "caches" && asking()) list.push("<p>The caches are shown after your answer.</p>");
    else if (at.tab === "caches" && data?.cache)
      list.push(keyOf(data), data.cache, data.cache_lines.map(one => `<p>${escaped(one)}</p>`).join(""));
    if (at.tab === "node") list.push(...nodeParts(data));
    if (at.tab === "metrics" && at.cursor) list.push(...metricsParts());
    if (at.tab === "check") list.push(...checkParts());
    if (at.tab === "settings" && byHand) { list.push(byHand.all); byHand.update(); }
    list.push(...placed);
    if (at.tab === "settings" && data?.drafts) list.push(`<p>${escaped(data.drafts.sentence)}</p>`, data.drafts.figure);
    if (at.tab === "settings" && data) list.push(data.decided);
    panel.setAttribute("aria-label", TABS[at.tab]);
    fillPanel(panel, list.filter(Boolean));
    for (const one of panel.querySelectorAll("[data-finding]"))
      one.setAttribute("aria-current", String(one.dataset.finding === JSON.stringify([at.cursor, at.node])));
  }
  const found = () => run.iterations.flatMap((data, index) => data.findings.map(([node, kind, words]) => ({ cursor: index + 1, node, kind, words })));
  function checkParts() { // what a check found, each a button that goes there
    const first = new Map(); // of each iteration and kind; the others are marked in the tree
    for (const one of found()) {
      const key = `${one.cursor} ${one.kind}`;
      first.set(key, { ...(first.get(key) ?? one), count: (first.get(key)?.count ?? 0) + 1 });
    }
    const rows = [...first.values()].slice(0, FINDINGS).map(({ cursor, node, kind, words, count }) =>
      `<li><button data-finding="${JSON.stringify([cursor, node])}">Iteration ${cursor}${node === null ? "" : `, node ${node}`}: <b>${kind}</b></button> ` +
      `${escaped(words)}${count > 1 ? ` And ${count - 1} more.` : ""}</li>`);
    const more = first.size > FINDINGS ? `<p>${first.size - FINDINGS} more lines are not shown.</p>` : "";
    const ask = `<p><button data-send='{"do":"check"}' ${lab.busy || lab.dead ? "disabled" : ""}>Check</button> Compares the records of this run with each other, and its answers with those of the target, run plainly on each path.</p>`;
    return [host.live ? ask : "", rows.length ? `<ol class="sl-findings">${rows.join("")}</ol>${more}` : ""];
  }
  function nodeParts(data) {
    const node = data?.nodes[at.node];
    if (!node) return ["<p>Click a node of the tree or a row of the mask.</p>", data?.block];
    if (!reached("verify")) return ["<p>The target's probabilities are known from the phase verify on.</p>", data.block];
    const columns = nodeColumns(data, at.node, run.header.looks), figure = fill(data.bars ?? run.header.node, columns), left = data.residual?.node === at.node ? data.residual : null;
    figure.layout.height = 60 + 22 * columns.place.length;
    const list = [`<p>${escaped(`${node.sentence[1]} ${node.beside}`)}</p>`, figure];
    return left ? [...list, `<p>${escaped(left.sentence)}</p>`, left.figure, left.table] : list;
  }
  function metricsParts() {
    const seen = run.iterations.slice(0, at.cursor).filter(data => data.index !== predict.asked), total = {};
    for (const data of seen) for (const [name, value] of Object.entries(data.metrics.counts)) total[name] = (total[name] ?? 0) + value;
    const shownAs = (value, form) => (form === ".0%" ? `${(100 * value).toFixed(0)} %` : value.toFixed(Number(form[1])));
    const numbers = run.header.numbers.map(([name, part, whole, form, definition]) => {
      const value = shownAs(total[whole] ? total[part] / total[whole] : 0, form);
      return `<div><b>${value}</b> ${name}<small>${definition}</small></div>`;
    });
    const first = Math.max(seen.length - MOST, 0);
    const window = seen.slice(first).map(data => data.metrics);
    const names = Object.keys(window[0] ?? {});
    const figure = fill(run.header.metrics, Object.fromEntries(names.map(name => [name, window.map(point => point[name])])));
    figure.layout.xaxis = { ...figure.layout.xaxis, ...axisOf(first, window.length) };
    const rows = seen.map(({ metrics: { x, accepted, own, counts } }) =>
      `<tr>${[x, accepted, own, (1000 * counts.seconds).toFixed(1)].map(value => `<td>${value}</td>`).join("")}</tr>`);
    const head = ["iteration", "accepted", "target's token", "ms"].map(name => `<th scope="col">${name}</th>`).join("");
    const table = `<table class="speclab-table"><caption>Iterations</caption><thead><tr>${head}</tr></thead>`;
    return [
      `<div class="sl-numbers">${numbers.join("")}</div>`, figure,
      `<details><summary>as table</summary>${table}<tbody>${rows.join("")}</tbody></table></details>`,
    ];
  }
  // Figures, HTML and elements from top to bottom; what is there already is drawn into again.
  function fillPanel(panel, list, name = "") {
    list.forEach((part, index) => {
      const kind = part instanceof Element ? "element" : typeof part === "string" ? "html" : "figure";
      let place = panel.children[index];
      if (!place || place.dataset.kind !== kind) {
        const fresh = made("div", { "data-kind": kind });
        if (place) { Plotly.purge(place); place.replaceWith(fresh); } else panel.append(fresh);
        place = fresh;
      }
      if (kind === "element") { if (part.parentElement !== place) place.replaceChildren(part); }
      else if (kind === "html") { if (place.of !== part) { place.innerHTML = part; place.of = part; } }
      else if (place.of !== part || place.wide !== whole.clientWidth || place.dark !== dark()) {
        [place.of, place.wide, place.dark] = [part, whole.clientWidth, dark()];
        const caches = part === shown()?.cache || name;
        place.classList.toggle("speclab-cache", Boolean(caches));
        place.classList.toggle("speclab-metrics", part.layout.meta?.name === "metrics");
        plot(place, part);
      }
    });
    while (panel.children.length > list.length) { Plotly.purge(panel.lastChild); panel.lastChild.remove(); }
  }
  const dark = () => getComputedStyle(element).getPropertyValue("--sl-paper");

  function controls() {
    const busy = Boolean(lab.busy);
    const data = shown();
    const alone = !host.live || Boolean(lab.dead);
    const ghost = lab.pending && !alone;
    title.textContent = lab.setup || run.header?.title || "";
    title.title = title.textContent;
    back.disabled = at.cursor <= 0;
    next.disabled = at.cursor >= run.iterations.length;
    step.textContent = ghost ? "Apply & step" : "Step";
    const forward = at.cursor < run.iterations.length && !lab.pending; // what is decoded already needs no kernel
    step.disabled = asking() || Boolean(lab.dead) || (!forward && (busy || !lab.can_step));
    until.runs.disabled = busy || alone || !lab.can_step || asking();
    change.disabled = Boolean(lab.dead);
    stop.hidden = !busy;
    until.hint.textContent = lab.error?.where === "until" ? lab.error.sentence : lab.hint;
    const names = run.header?.phases ?? [];
    if (phases.children.length !== names.length)
      phases.replaceChildren(...names.map(name => button(name, { "data-phase": name }, () => toPhase(name))));
    for (const one of phases.children) {
      one.setAttribute("aria-pressed", String(one.dataset.phase === position().phase));
      one.disabled = !data || (asking() && !["draft", "flatten"].includes(one.dataset.phase));
    }
    const seconds = Math.round((performance.now() - lab.began) / 1000);
    const progress = lab.progress ? ` (${Math.round(100 * lab.progress)} %)` : "";
    const work = busy ? `${lab.busy}${progress}${seconds > 1 ? ` … ${seconds} s` : ""}` : "";
    line.textContent = lab.dead || [run.iterations.length ? work : "", lab.pending ?? "", lab.sentence ?? ""].filter(Boolean).join(" ");
    line.classList.toggle("sl-wrong", Boolean(lab.dead));
    loading.hidden = Boolean(data);
    loading.textContent = work || (run.iterations.length ? "Before the first iteration: the prompt and the first token." : "");
    error.textContent = lab.error && !["prompt", "until", "settings"].includes(lab.error.where) ? lab.error.sentence : "";
    if (busy) clock ??= setInterval(controls, 1000);
    else { clearInterval(clock); clock = null; }
  }

  // -- what comes from the kernel
  function handle(message) {
    switch (message.type) {
      case "run":
        run.header = message.header;
        run.iterations = [...run.iterations.slice(0, message.keep ?? 0), ...message.iterations];
        if (message.id !== undefined && message.id === run.id) break; // another page said hello
        run.id = message.id;
        preview = predict.asked = null;
        at.node = null;
        at.cursor = -1;
        return move(message.cursor ?? run.iterations.length);
      case "iteration":
        run.iterations[message.index] = message.data;
        run.iterations.length = message.index + 1;
        preview = null;
        ask(message.index);
        return move(message.index + 1);
      case "show":
        if (message.cursor !== at.cursor) move(message.cursor);
        if (message.phase && message.phase !== position().phase && !asking()) toPhase(message.phase, message.level ?? Infinity, move);
        if (message.node !== undefined) at.node = message.node;
        if (message.tab) at.tab = message.tab;
        break;
      case "status": {
        const { type, predict: on, ...known } = message;
        Object.assign(lab, known);
        if (known.busy) lab.began = performance.now() - 1000 * (known.since ?? 0);
        if (on !== undefined) predict.on = on;
        const box = element.querySelector(".sl-predict");
        if (box) box.checked = predict.on;
        break;
      }
      case "preview": preview = message.preview ? message : null; break;
      case "parts": (parts[message.tab] ??= {})[message.place] = message.parts; break;
      case "hint": lab.hint = message.sentence; break;
      case "file": download(message); break;
      case "restarted":
        lab.dead = message.sentence ?? "The kernel was restarted: run the cell again. You can still step through the decoded iterations.";
        lab.busy = null;
    }
    draw();
  }
  function download({ name, data, mime }) {
    const bytes = Uint8Array.from(atob(data), letter => letter.charCodeAt(0));
    const url = URL.createObjectURL(new Blob([bytes], { type: mime }));
    made("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  // -- keys and clicks
  const keys = {
    ArrowLeft: () => go(at.cursor - 1), ArrowRight: () => go(at.cursor + 1), Home: () => go(0), End: () => go(run.iterations.length),
    PageUp: () => go(at.cursor - 10), PageDown: () => go(at.cursor + 10), "[": () => along(-1), "]": () => along(1),
    Escape: () => select(at.node), " ": onStep,
  };
  function onKey(event) {
    const target = event.target, typed = target.matches?.("input, textarea, select, [contenteditable], [role=slider]");
    if (!keys[event.key] || typed || event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    if (event.key === " " && (!host.live || target.matches?.("button, summary, a"))) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  }
  // In the tree: parent, first child, the neighbours of the column.
  tree.addEventListener("keydown", event => {
    const table = drawn(), kinds = previewed()?.kinds ?? position().kinds;
    if (!table || !["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    const seen = table.id.map((_, entry) => entry).filter(entry => kinds[entry] !== "-" && kinds[entry] !== "f");
    const here = table.id.indexOf(at.node);
    const column = seen.filter(entry => table.depth[entry] === table.depth[here]).sort((a, b) => table.row[a] - table.row[b]);
    const to = here < 0 ? 0 : {
      ArrowLeft: table.parent[here], ArrowRight: seen.find(entry => table.parent[entry] === here),
      ArrowUp: column[column.indexOf(here) - 1], ArrowDown: column[column.indexOf(here) + 1],
    }[event.key];
    if (to >= 0) { at.node = table.id[to]; draw(); tell(); }
  });
  tabs.addEventListener("keydown", event => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const all = [...tabs.children].filter(tab => !tab.hidden), to = all[(all.indexOf(document.activeElement) + by + all.length) % all.length];
    to.focus();
    to.click();
  });
  panel.addEventListener("click", event => {
    const finding = event.target.closest("[data-finding]");
    if (!finding) return;
    const [cursor, node] = JSON.parse(finding.dataset.finding);
    move(cursor);
    at.node = node;
    tell();
  });
  body.addEventListener("click", event => {
    const mark = event.target.closest("[data-iteration]");
    if (mark) go(Number(mark.dataset.iteration));
    event.target.closest(".sl-x")?.classList.toggle("sl-open");
  });
  element.addEventListener("pointerdown", event => {
    if (!event.target.closest("button, input, select, summary, textarea, [tabindex='0']")) whole.focus({ preventScroll: true });
  });
  const sizes = new ResizeObserver(() => draw());
  const themes = new MutationObserver(() => draw());
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  host.keys.addEventListener("keydown", onKey);
  sizes.observe(whole);
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  scheme.addEventListener("change", draw);
  host.on(handle);
  controls();
  host.send({ do: "hello" });
  return {
    handle,
    destroy() {
      pause();
      clearInterval(clock);
      clearTimeout(later);
      cancelAnimationFrame(due);
      sizes.disconnect();
      themes.disconnect();
      scheme.removeEventListener("change", draw);
      host.keys.removeEventListener("keydown", onKey);
      for (const place of element.querySelectorAll(".js-plotly-plot")) Plotly.purge(place);
    },
  };
}
