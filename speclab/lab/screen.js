// anywidget's side of the page: plotly.js once a browser page, messages in their order, and the
// kernel's end.

import { mount } from "../views/page/page.js";
import { unpacked } from "../views/page/unpack.js";

const GONE =
  "The kernel is gone: run the cell again. You can still step through the decoded iterations.";
const PATIENCE = 4000; // milliseconds that a connection may be lost

/** @param {any} model the widget's @returns {Promise<any>} */
async function plotlyFrom(model) {
  if (globalThis.speclabPlotly) return globalThis.speclabPlotly;
  const packed = await new Promise(done => {
    /** @param {any} message @param {DataView[]} buffers */
    const hear = (message, buffers) => {
      if (!message.plotly) return;
      model.off("msg:custom", hear);
      done(buffers[0]);
    };
    model.on("msg:custom", hear);
    model.send({ do: "plotly" });
  });
  const bytes = packed.buffer
    ? new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength)
    : packed;
  const module = [
    "const module={exports:{}},exports=module.exports;let define;",
    await unpacked(new Blob([bytes])),
    "export default module.exports;"
  ].join("\n");
  const url = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
  try {
    return (globalThis.speclabPlotly ??= (await import(url)).default);
  } finally {
    URL.revokeObjectURL(url);
  }
}

// JupyterLab takes single letters for its commands, as x to cut the cell, and the arrows that a
// slider or a select needs.
/** @param {KeyboardEvent} event */
function keepKey(event) {
  const { ctrlKey, altKey, metaKey, shiftKey, key } = event;
  if (!ctrlKey && !altKey && !metaKey && !(shiftKey && key === "Enter")) event.stopPropagation();
}

// Calls `gone` when the kernel ends in any way, and `back` when a lost connection is there again;
// returns how to stop.
// JupyterLab and Notebook have these signals; other hosts mark their widgets themselves.
/** @param {any} manager @param {() => void} gone @param {() => void} back */
function watchKernel(manager, gone, back) {
  const kernel = manager?.kernel;
  const session = manager?.context?.sessionContext;
  let lost = 0;
  const found = () => clearTimeout(lost);
  /** @param {any} _ @param {string} name */
  const status = (_, name) => {
    found();
    if (/restarting|dead|terminating/.test(name)) gone();
    if (name === "unknown") lost = setTimeout(gone, PATIENCE);
  };
  /** @param {any} _ @param {string} name */
  const connection = (_, name) => {
    if (name === "connected") {
      found();
      back();
    }
  };
  /** @param {any} _ @param {{newValue: any}} change */
  const changed = (_, { newValue }) => newValue !== kernel && gone();
  const signals = [
    [kernel?.statusChanged, status],
    [kernel?.connectionStatusChanged, connection],
    [kernel?.disposed, gone],
    [session?.kernelChanged, changed]
  ].filter(([signal]) => signal?.connect);
  for (const [signal, heard] of signals) signal.connect(heard);
  return () => {
    found();
    for (const [signal, heard] of signals) signal.disconnect(heard);
  };
}

export default {
  /** @param {{model: any, el: HTMLElement}} widget */
  async render({ model, el }) {
    const plotly = await plotlyFrom(model);
    el.classList.add("speclab-lab"); // now the static output below may hide
    let gone = false;
    // how often the kernel moved the page; what the page says of earlier places comes late
    let moves = 0;
    /** @param {Message} message */
    const send = message => {
      if (!gone) model.send(message.do === "shown" ? { ...message, moves } : message);
    };
    /** @type {((message: any) => void)[]} */
    const heard = [];
    /** @param {{messages?: any[]}} content */
    const hear = content =>
      content.messages?.forEach(message => {
        if (message.type === "show") moves = message.moves;
        for (const handler of heard) handler(message);
      });
    model.on("msg:custom", hear);
    /** @type {Host} */
    const host = { kind: "kernel", send, on: handler => heard.push(handler), keys: el };
    const page = mount(el, host, plotly);
    el.addEventListener("keydown", keepKey); // after the page's own keys
    const end = () => {
      gone = true;
      page.handle({ type: "gone", sentence: GONE });
    };
    const again = () => {
      gone = false;
      send({ do: "hello" }); // messages were lost meanwhile
    };
    const forget = watchKernel(model.widget_manager, end, again);
    return () => {
      forget();
      model.off("msg:custom", hear);
      page.destroy();
    };
  }
};
