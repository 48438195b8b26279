// The exported page: steps through packed iterations and the ticks of their phases; see export.py for the blocks.
const find = id => document.getElementById(id), all = query => [...document.querySelectorAll(query)];
const data = JSON.parse(find("data").textContent), root = document.body;

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}
async function library() {
  const script = Object.assign(document.createElement("script"), { textContent: await unpack(data.plotly) });
  document.head.append(script);
  return window.Plotly;
}
const made = (name, text) => Object.assign(document.createElement(name), { textContent: text ?? "" });

function player(plots, once) {
  const last = data.frames.length - 1, pieces = all("[data-after]"), places = all("[data-view]");
  let wanted = -1, shown = -1, frame = null, tick = 0, node = null;
  const drawn = new Map(); // place -> what is in it, so that what stays is left alone

  async function go(to, at = Infinity) {
    to = wanted = Math.min(Math.max(to, 0), last);
    if (to !== shown) {
      const block = JSON.parse(await unpack(data.frames[to]));
      if (to !== wanted) return; // a newer wish came in between
      [frame, shown, node] = [block, to, null];
    }
    tick = Math.min(Math.max(at, 0), frame.ticks.length - 1);
    draw();
  }
  function draw() {
    const now = frame.ticks[tick];
    find("at").value = shown;
    find("place").textContent = `${shown} of ${last} ${last === 1 ? "iteration" : "iterations"}`;
    if (find("said").innerHTML !== now.said) find("said").innerHTML = now.said;
    pieces.forEach(piece => (piece.hidden = +piece.dataset.after > now.committed));
    all("[data-phase]").forEach(button => {
      button.setAttribute("aria-pressed", button.dataset.phase === now.phase);
      button.disabled = !frame.ticks.some(one => one.phase === button.dataset.phase);
    });
    for (const place of places) {
      const name = place.dataset.view, [parts, ticks] = frame.views[name] ?? [once[name]], fold = place.closest("details");
      const seen = ticks?.[Math.min(tick, ticks.length - 1)] ?? Object.keys(parts), key = JSON.stringify([ticks && shown, seen]);
      if (fold) fold.hidden = !parts.length;
      if ((fold && !fold.open) || drawn.get(place) === key) continue;
      drawn.set(place, key);
      plots.show(place, seen.map(part => parts[part]));
    }
    tables();
    plots.mark(node);
    facts();
  }
  function facts() {
    const place = find("node"), fact = node === null ? null : frame.facts?.[node];
    if (!fact) return place.replaceChildren(made("p", frame.facts ? "Click a node in the tree, or a row of the mask, to see its facts." : ""));
    const [why, values, draft, target] = fact, list = made("dl"), head = made("b", `Node ${node}`);
    values.forEach((value, i) => list.append(made("dt", data.facts[i]), made("dd", value ?? "–")));
    const said = made("p");
    said.innerHTML = why;
    place.replaceChildren(head, said, list, tops("draft, next token", draft), tops("target, next token", target));
  }
  function tables() {
    const place = find("tables"), table = made("table"), head = table.createTHead().insertRow();
    if (!place.closest("[open]") || place.shown === shown) return;
    place.shown = shown;
    place.innerHTML = frame.tables ?? "";
    table.createCaption().textContent = "Draft tree: one row per node";
    for (const name of ["node", ...data.facts]) head.append(made("th", name));
    const body = table.createTBody();
    frame.facts?.forEach(([, values], node) => { const row = body.insertRow(); for (const value of [node, ...values]) row.append(made("td", value ?? "–")); });
    if (frame.facts) place.prepend(table);
  }
  function tops(title, pairs) {
    const place = made("div"), table = made("table");
    for (const [token, prob] of pairs) {
      const row = table.insertRow(), bar = made("i");
      bar.style.width = `${90 * prob}px`;
      row.append(made("td", token), made("td", `${(100 * prob).toPrecision(3)}%`), made("td"));
      row.lastChild.append(bar);
    }
    place.append(made("small", pairs.length ? title : `${title}: not asked`), table);
    place.className = "tops";
    return place;
  }
  function tell(what) {
    if (what.iteration !== undefined) go(what.iteration);
    if (what.node !== undefined) { node = what.node === node ? null : what.node; plots.mark(node); facts(); }
  }
  async function along(by) { // ticks, on into the next iteration and back into the last
    if (tick + by >= 0 && tick + by < frame.ticks.length) return go(shown, tick + by);
    if (shown + by >= 0 && shown + by <= last) return go(shown + by, by > 0 ? 0 : Infinity);
  }
  const keys = {
    ArrowLeft: () => go(wanted - 1), ArrowRight: () => go(wanted + 1), PageUp: () => go(wanted - 10), PageDown: () => go(wanted + 10),
    Home: () => go(0), End: () => go(last), "[": () => along(-1), "]": () => along(1), Escape: () => tell({ node }),
  };
  document.addEventListener("keydown", event => {
    if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  all("[data-by]").forEach(button => button.addEventListener("click", () => go(wanted + Number(button.dataset.by))));
  all("[data-tick]").forEach(button => button.addEventListener("click", () => along(Number(button.dataset.tick))));
  all("[data-phase]").forEach(button => button.addEventListener("click", () => go(shown, frame.ticks.findIndex(one => one.phase === button.dataset.phase))));
  all("details").forEach(fold => fold.addEventListener("toggle", () => fold.open && frame && draw()));
  find("at").addEventListener("input", () => go(+find("at").value));
  return { go, tell };
}

async function open() {
  let told = () => {};
  try {
    const plots = makePlots(await library(), root, what => told(what));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.redraw());
    addEventListener("resize", () => { clearTimeout(open.due); open.due = setTimeout(() => plots.redraw(), 150); });
    if (data.parts) return plots.show(find("view"), JSON.parse(await unpack(data.parts)));
    const { go, tell } = player(plots, JSON.parse(await unpack(data.once)));
    told = tell;
    await go(data.at);
  } catch (error) {
    (find("said") ?? root).append(` The pictures cannot be shown here (${error.message}): open the page in a browser of 2023 or later.`);
  }
}
open();
