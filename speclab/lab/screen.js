// anywidget's side of the page: plotly.js once a browser page, messages in their order, and the kernel's end.
async function plotlyFrom(model) {
  if (globalThis.speclabPlotly) return globalThis.speclabPlotly;
  const packed = await new Promise(done => {
    const hear = (message, buffers) => {
      if (!message.plotly) return;
      model.off("msg:custom", hear);
      done(buffers[0]);
    };
    model.on("msg:custom", hear);
    model.send({ do: "plotly" });
  });
  const bytes = packed.buffer ? new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength) : packed;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const source = await new Response(stream).text();
  const module = `const module={exports:{}},exports=module.exports;let define;\n${source}\nexport default module.exports;`;
  const url = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
  try {
    return (globalThis.speclabPlotly ??= (await import(url)).default);
  } finally {
    URL.revokeObjectURL(url);
  }
}

export default {
  async render({ model, el, signal }) {
    const plotly = await plotlyFrom(model);
    let gone = false, moves = 0; // where the kernel put the page last: what the page says of earlier places comes late
    const send = message => {
      if (message.do === "shown") el.closest(".speclab-lab")?.setAttribute("data-tab", message.tab);
      if (!gone) model.send({ ...message, moves });
    };
    const hear = handler => content => content.messages?.forEach(message => {
      if (message.type === "show") moves = message.moves;
      handler(message);
    });
    const host = { live: true, send, on: handler => model.on("msg:custom", hear(handler)), keys: el };
    const page = mount(el, host, plotly);
    const kernel = model.widget_manager?.kernel; // JupyterLab's and Notebook's; other hosts mark their widgets alone
    const restarted = (_, status) => {
      if (!/restarting|dead|terminating/.test(status)) return;
      gone = true;
      page.handle({ type: "restarted" });
    };
    const connected = (_, status) => status === "connected" && send({ do: "hello" }); // messages were lost meanwhile
    kernel?.statusChanged.connect(restarted);
    kernel?.connectionStatusChanged.connect(connected);
    el.addEventListener("click", event => {
      const button = event.target.closest("[data-send]");
      if (button) send(JSON.parse(button.dataset.send));
    });
    return () => {
      kernel?.statusChanged.disconnect(restarted);
      kernel?.connectionStatusChanged.disconnect(connected);
      page.destroy();
    };
  },
};
