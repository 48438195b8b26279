// The lab's pictures and texts: each slot of the model is drawn into the element of the lab that has its class.
// plotly.js comes from the kernel, packed, once a page: no other address is asked.
async function unpacked(buffers) {
  const packed = buffers[0].buffer ? new Uint8Array(buffers[0].buffer, buffers[0].byteOffset, buffers[0].byteLength) : buffers[0];
  const source = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const module = `const module={exports:{}},exports=module.exports;let define;\n${source}\nexport default module.exports;`;
  const url = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
  try { return (await import(url)).default; } finally { URL.revokeObjectURL(url); }
}

// Shared once it is there; asked for by each lab until then, for a lab that is closed meanwhile gets no answer.
async function library(model) {
  if (globalThis.speclabPlotly) return globalThis.speclabPlotly;
  return new Promise((done, failed) => {
    const hear = (message, buffers) => {
      if (message.plotly === undefined) return;
      model.off("msg:custom", hear);
      if (!message.plotly) failed(new Error(message.why));
      else unpacked(buffers).then(Plotly => done(globalThis.speclabPlotly ??= Plotly), failed);
    };
    model.on("msg:custom", hear);
    model.send({ want: "plotly" });
  });
}

const KEYS = new Set(["ArrowLeft", "ArrowRight", " ", "[", "]", "Escape"]);
function keyOf(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return "apply";
  if (event.ctrlKey || event.altKey || event.metaKey || !KEYS.has(event.key)) return null;
  const at = event.target, typed = at.matches("input, textarea, select, [contenteditable], [role=slider]");
  if (event.key === "Escape") return "Escape";
  if (typed || (event.key === " " && at.matches("button, summary, a, [role=tab]"))) return null;
  if (event.key.startsWith("Arrow") && at.closest("[role=tab], .lm-TabBar-tab, [role=application]")) return null;
  return event.key;
}

const attached = el => new Promise(done => {
  const look = () => (el.closest(".speclab-lab") ? done(el.closest(".speclab-lab")) : setTimeout(look, 15));
  look();
});

export default {
  async render({ model, el, signal }) {
    const root = await attached(el), slots = model.get("slots"), tell = what => model.send(what);
    root.tabIndex = -1;
    root.dataset.lmSuppressShortcuts = "true";
    let plots = null, waiting = new Set(slots), asked = false;
    const place = slot => root.querySelector(`.speclab-${slot.replaceAll("_", "-")}`);
    const wide = new Map();
    const sizes = new ResizeObserver(entries => {
      for (const { target, contentRect } of entries) {
        const was = wide.get(target) ?? 0;
        wide.set(target, contentRect.width);
        if (plots && contentRect.width > 0 && Math.abs(contentRect.width - was) > 4) plots.redraw(target);
      }
      clearTimeout(sizes.due);
      sizes.due = setTimeout(report, 120);
    });
    let room = "";
    function report() { // the stage is laid out in its own pixels
      const tree = place("tree"), mask = place("mask");
      if (!tree?.clientWidth) return;
      const now = { tree: tree.clientWidth, mask: mask?.clientWidth || 0, height: tree.clientHeight };
      if (JSON.stringify(now) !== room) { room = JSON.stringify(now); tell({ room: now }); }
    }
    function draw() {
      for (const slot of [...waiting]) {
        const at = place(slot), value = model.get(slot);
        if (!at) continue;
        const parts = value ? JSON.parse(value) : [], figures = parts.some(part => typeof part !== "string");
        if (figures && !plots.ready) { request(); if (!parts.some(part => typeof part === "string")) continue; }
        waiting.delete(slot);
        if (figures && !plots.ready) { waiting.add(slot); continue; }
        if (!wide.has(at)) { wide.set(at, at.clientWidth); sizes.observe(at); }
        at.style.display = parts.length ? "" : "none";
        plots.show(at, parts);
      }
      for (const sign of root.querySelectorAll("button[title]:not([aria-label])")) // "▶" alone names nothing
        if (!/[a-z]/i.test(sign.textContent)) sign.setAttribute("aria-label", sign.title);
      if (!waiting.size) born.disconnect();
    }
    function request() {
      if (asked) return;
      asked = true;
      library(model).then(Plotly => { plots = makePlots(Plotly, root, tell); plots.ready = true; draw(); tell({ drawn: true }); },
        error => { asked = false; const at = place("tree"); if (at) { at.textContent = `The pictures cannot be drawn: ${error.message}`; at.setAttribute("role", "alert"); } });
    }
    plots = makePlots(null, root, tell);
    const born = new MutationObserver(draw);
    born.observe(root, { childList: true, subtree: true });
    for (const slot of slots) model.on(`change:${slot}`, () => { waiting.add(slot); queueMicrotask(draw); });
    root.addEventListener("keydown", event => {
      const key = keyOf(event);
      if (key === null) return;
      event.preventDefault();
      event.stopPropagation();
      tell({ key });
    }, { signal, capture: true });  // a text box keeps what it hears to itself
    const themes = new MutationObserver(() => plots.ready && plots.redraw());
    themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
    draw();
    return () => { born.disconnect(); themes.disconnect(); sizes.disconnect(); };
  },
};
