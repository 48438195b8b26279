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
    const host = { kind: "none", send() {}, on() {}, keys: document };
    const { handle } = mount(root, host, window.Plotly);
    // a link may ask for a guess of the last iteration, where the page opens
    handle({ type: "guessing", on: /[?&]predict\b/.test(location.search) });
    handle({ type: "run", keep: 0, ...run });
    handle({ type: "diffed", diff: run.diff });
    const { strategy: name, ...settings } = run.steps[0]?.settings ?? {};
    if (!rulesOf({ strategy: name, ...settings })) return;
    handle({ type: "catalog", strategies: data.strategies });
    handle({ type: "status", wanted: { strategy: { name, settings } } });
  } catch (error) {
    root.append(
      `The pictures cannot be shown (${error.message}): ` +
        "open the page in a browser of 2024 or later."
    );
  }
}

startExported();
