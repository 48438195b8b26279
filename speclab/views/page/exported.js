// Starts the exported page: unpacks plotly.js and the run, and mounts the page without a kernel.

import { rulesOf } from "../../live/grow.js";
import { made } from "./draw.js";
import { mount } from "./page.js";
import { bytesOf, unpacked } from "./unpack.js";

async function startExported() {
  const root = document.getElementById("page");
  const data = JSON.parse(document.getElementById("data").textContent);
  /** @param {string} packed */
  const textOf = packed => unpacked(new Blob([bytesOf(packed)]));
  try {
    document.head.append(made("script", {}, await textOf(data.plotly)));
    const run = JSON.parse(await textOf(data.run));
    const { handle } = mount(
      root,
      { kind: "none", send() {}, on() {}, keys: document },
      window.Plotly
    );
    handle({ type: "run", ...run });
    for (const [type, fields] of Object.entries(run.panels)) handle({ type, ...fields });
    const settings = run.steps[0]?.settings ?? {};
    if (!rulesOf(settings)) return;
    /** @type {Catalog} */
    const offer = {
      strategies: data.strategies,
      models: [],
      prompts: [],
      devices: [],
      current: ""
    };
    handle({ type: "catalog", ...offer });
    handle({ type: "status", wanted: { strategy: { name: settings.strategy, settings } } });
  } catch (error) {
    root.append(
      `The pictures cannot be shown (${error.message}): ` +
        "open the page in a browser of 2024 or later."
    );
  }
}

startExported();
