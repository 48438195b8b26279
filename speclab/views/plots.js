// Draws what views say (figures and HTML) into elements of a page; the lab and an exported page share it.
// `root` is the element whose theme, links and keys count; `tell` hears what a person points at, as {node: 6}.
function makePlots(Plotly, root, tell) {
  const WORDS = new Set(["text", "hovertext", "customdata", "ticktext"]);
  const figures = new Map(); // slot element -> plot elements in it
  let marked = null;

  function themed(value, look) {
    if (typeof value === "string") return value.startsWith("var(--") ? look(value.slice(4, -1)) : value;
    if (Array.isArray(value)) return value.map(one => themed(one, look));
    if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, WORDS.has(key) ? one : themed(one, look)]));
  }

  function looker() {
    const style = getComputedStyle(root), known = new Map();
    return name => {
      if (!known.has(name)) known.set(name, style.getPropertyValue(name).trim() || "#888");
      return known.get(name);
    };
  }

  const icon = d => ({ width: 24, height: 24, path: d });
  const BUTTONS = [[
    { name: "fit", title: "Fit: show everything", icon: icon("M3 3h7v2H5v5H3zM14 3h7v7h-2V5h-5zM3 14h2v5h5v2H3zM19 14h2v7h-7v-2h5z"), click: fit },
    { name: "reset", title: "Reset: as it was drawn", icon: icon("M12 5V1L6 6l6 5V7a5 5 0 1 1-5 5H5a7 7 0 1 0 7-7z"), click: reset },
    { name: "png", title: "Save as PNG", icon: icon("M5 20h14v-2H5zM19 9h-4V3H9v6H5l7 7z"), click: plot => save(plot, "png") },
    { name: "svg", title: "Save as SVG", icon: icon("M4 4h16v16H4zM6 6v12h12V6zM8 15l3-4 2 3 2-2 2 3z"), click: plot => save(plot, "svg") },
  ]];
  const CONFIG = { displaylogo: false, scrollZoom: true, responsive: false, doubleClick: "reset", modeBarButtons: BUTTONS };

  function fit(plot) {
    const view = plot.layout.meta?.fit;
    Plotly.relayout(plot, view ? { "xaxis.range": view.x, "yaxis.range": view.y } : { "xaxis.autorange": true, "yaxis.autorange": true });
  }
  function reset(plot) {
    const { xaxis, yaxis } = plot.speclab.layout, change = {};
    for (const [name, axis] of [["xaxis", xaxis], ["yaxis", yaxis]])
      if (axis?.range) change[`${name}.range`] = [...axis.range];
      else change[`${name}.autorange`] = axis?.autorange ?? true;
    Plotly.relayout(plot, change);
  }
  function save(plot, format) {
    const name = (plot.layout.meta?.name || "speclab");
    // A saved picture has a ground of its own: the page's.
    const ground = looker()("--sl-paper");
    const layout = { ...plot.layout, paper_bgcolor: ground, plot_bgcolor: ground };
    return Plotly.downloadImage({ data: plot.data, layout }, { format, filename: name, scale: 2, width: plot.offsetWidth, height: plot.offsetHeight });
  }

  // A heatmap of codes says in its tooltips what each means: the words of its meta, by code.
  function worded(trace) {
    const words = trace.meta?.words;
    if (!words) return trace;
    const codes = atob(trace.z.bdata), columns = Number(trace.z.shape.split(",")[1]), text = [];
    for (let at = 0; at < codes.length; at += columns)
      text.push(Array.from(codes.slice(at, at + columns), code => words[code.charCodeAt(0)]));
    return { ...trace, text };
  }

  function plotIn(plot, spec) {
    const drawn = themed(spec, looker()), first = !plot.speclab;
    drawn.data = drawn.data.map(worded);
    if (marked !== null) {
      drawn.layout.shapes = [...(drawn.layout.shapes ?? []), ...framed(drawn.layout, marked, "solid")];
      drawn.layout.meta = { ...drawn.layout.meta, selected: marked };
    }
    plot.speclab = { spec, layout: structuredClone(drawn.layout) };
    drawn.layout.width ??= plot.parentElement.clientWidth || 640;
    const done = Plotly.react(plot, drawn.data, drawn.layout, { ...CONFIG, displayModeBar: drawn.layout.meta?.bare ? false : "hover" });
    const said = spec.layout.meta?.label || "";
    plot.setAttribute("role", spec.layout.meta?.nodes ? "application" : "img");
    plot.setAttribute("aria-label", said + (spec.layout.meta?.nodes ? " Arrow keys go from node to node." : ""));
    if (spec.layout.meta?.nodes) plot.tabIndex = 0;
    if (first) listen(plot);
    return done;
  }

  function listen(plot) {
    plot.addEventListener("wheel", event => { if (!event.ctrlKey) event.stopImmediatePropagation(); }, { capture: true, passive: true });
    plot.addEventListener("keydown", event => walk(plot, event));
    plot.on("plotly_click", event => {
      const point = event.points[0], kind = point?.data.meta?.click;
      if (!kind) return;
      if (kind === "cell") return tell({ cell: [point.y, point.x] });
      const value = kind === "row" ? point.y : point.customdata;
      if (kind === "row" && plot.layout.meta?.rows && value >= plot.layout.meta.rows[1]) return; // a row that is no node
      if (value !== undefined && value !== null) tell({ [kind === "row" ? "node" : kind]: Array.isArray(value) ? value[0] : value });
    });
    plot.on("plotly_hover", event => {
      const point = event.points[0], kind = point?.data.meta?.click;
      if (["node", "row", "cell"].includes(kind)) link(plot, kind === "node" ? point.customdata : point.y);
    });
    plot.on("plotly_unhover", () => link(plot, null));
  }

  // What frames a node: its row and column of a mask, a ring in a tree.
  function framed(layout, node, dash) {
    const { rows, nodes } = layout.meta ?? {}, line = { color: looker()("--sl-ink"), width: dash === "dot" ? 1.2 : 2, dash };
    if (node === null || !(nodes || rows)) return [];
    const shapes = [], at = nodes?.find(one => one[0] === node);
    if (rows && node >= 0 && node < rows[1]) {
      const [x0, n] = rows;
      shapes.push({ type: "rect", x0: x0 - 0.5, x1: n - 0.5, y0: node - 0.5, y1: node + 0.5, line },
                  { type: "rect", x0: node - 0.5, x1: node + 0.5, y0: -0.5, y1: n - 0.5, line });
    }
    if (at) shapes.push({ type: "circle", xref: "x", yref: "y", xsizemode: "pixel", ysizemode: "pixel", xanchor: at[2], yanchor: at[3], x0: -12, x1: 12, y0: -12, y1: 12, line });
    return shapes;
  }

  // A node that is hovered in one picture is framed in the others; no message goes to the kernel.
  function link(from, node) {
    for (const plots of figures.values()) for (const plot of plots) {
      if (plot === from || !plot.isConnected) continue;
      const more = framed(plot.layout ?? {}, node, "dot");
      if (more.length || plot.linked) Plotly.relayout(plot, { shapes: [...(plot.speclab.layout.shapes ?? []), ...more] });
      plot.linked = more.length > 0;
    }
  }

  // Marks a node everywhere without the kernel, until another is marked: for a page whose figures know no selection.
  function mark(node) {
    if (node === marked) return;
    marked = node;
    for (const plots of figures.values()) for (const plot of plots)
      if (plot.isConnected && (plot.layout?.meta?.nodes || plot.layout?.meta?.rows)) plotIn(plot, plot.held);
  }

  // Arrow keys in a picture of nodes: parent, first child, the neighbours in its column.
  function walk(plot, event) {
    const nodes = plot.layout.meta?.nodes, keys = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "Enter"];
    if (!nodes || !keys.includes(event.key) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const chosen = plot.layout.meta.selected ?? plot.walked, at = nodes.find(one => one[0] === chosen) || nodes[0];
    const column = nodes.filter(one => one[2] === at[2]).sort((a, b) => a[3] - b[3]), place = column.indexOf(at);
    const to = chosen === undefined || chosen === null ? nodes[0] : {
      ArrowLeft: nodes.find(one => one[0] === at[1]), ArrowRight: nodes.find(one => one[1] === at[0]),
      ArrowUp: column[place - 1], ArrowDown: column[place + 1], Home: nodes[0], Enter: at,
    }[event.key];
    if (to) tell({ node: plot.walked = to[0] });
  }

  // Parts of a slot, from top to bottom; what stays equal is left as it is.
  function show(slot, parts) {
    parts.forEach((part, i) => {
      const kind = typeof part === "string" ? "sl-html" : "sl-figure";
      let place = slot.children[i];
      if (!place || !place.classList.contains(kind)) {
        const made = Object.assign(document.createElement("div"), { className: kind });
        if (place) { purge(place); place.replaceWith(made); } else slot.append(made);
        place = made;
      }
      if (kind === "sl-html") { if (place.held !== part) place.innerHTML = place.held = part; }
      else { place.held = part; plotIn(place, part); }
    });
    while (slot.children.length > parts.length) { purge(slot.lastChild); slot.lastChild.remove(); }
    figures.set(slot, [...slot.children].filter(place => place.speclab));
  }

  function purge(place) { if (place.speclab) Plotly.purge(place); }

  function redraw(only) { // another theme, another width
    for (const slot of figures.keys())
      if (!slot.isConnected) figures.delete(slot);
      else if (!only || slot === only) for (const place of slot.children) if (place.speclab) plotIn(place, place.held);
  }

  // "node 6" in a sentence is a link.
  root.addEventListener("click", event => {
    const at = event.target.closest?.("[data-node], [data-iteration]");
    if (!at || !root.contains(at)) return;
    event.preventDefault();
    tell(at.dataset.node !== undefined ? { node: Number(at.dataset.node) } : { iteration: Number(at.dataset.iteration) });
  });

  return { show, mark, redraw, plots: () => [...figures.values()].flat() };
}
