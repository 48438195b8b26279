// Starts the live page: fetches its parts, and mounts the page with a worker as its kernel.

import { unpacked } from "../views/page/unpack.js";
import { arrive } from "./arrive.js";

const PATIENCE = 60; // seconds until the worker answers a ping, which it hears between products

/** The text of a packed part; some servers unpack it on their own. @param {string} name */
async function part(name) {
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const parts = [];
  await arrive(name, {}, each => parts.push(each)).catch(error => {
    throw new Error(`${name} did not arrive: ${error.message}`);
  });
  const bytes = new Blob(parts);
  const [first] = new Uint8Array(await bytes.slice(0, 1).arrayBuffer());
  return first === 0x1f ? unpacked(bytes) : bytes.text();
}

async function startLive() {
  const place = document.getElementById("page");
  try {
    const [plotly, page, decoder] = await Promise.all(
      ["plotly", "page", "worker"].map(name => part(`${name}.js.gz`))
    );
    for (const text of [plotly, page])
      document.head.append(Object.assign(document.createElement("script"), { textContent: text }));
    const base = JSON.stringify(new URL(".", location.href));
    const query = JSON.stringify(location.search);
    const shown = /[?&]run=/.test(location.search) || /[#&]r=/.test(location.hash);
    const begin = `const BASE = ${base}, QUERY = ${query}, SHOWN = ${shown};\n`;
    const worker = new Worker(URL.createObjectURL(new Blob([begin, decoder])));
    let alarm = 0;
    /** @param {string} reason */
    const gone = reason =>
      view.handle({ type: "gone", sentence: `The decoder stopped (${reason}): reload the page.` });
    /** @param {any} message */
    const send = message => {
      worker.postMessage(message);
      worker.postMessage({ do: "ping" });
      alarm ||= setTimeout(() => gone(`no answer for ${PATIENCE} seconds`), 1000 * PATIENCE);
    };
    /** @param {(message: any) => void} handler */
    const hear = handler => {
      worker.onmessage = ({ data }) => {
        clearTimeout(alarm);
        alarm = 0;
        if (data.type !== "pong") handler(data);
      };
    };
    const view = mount(place, { kind: "worker", send, on: hear, keys: document }, window.Plotly);
    worker.onerror = ({ message }) => gone(message);
    // in the first three iterations of the start page, or as long as the link says
    const guess = /[#&]guess\b/.test(location.hash);
    const plain = location.search || shown ? 0 : 3;
    view.handle({ type: "guessing", on: guess || plain });
  } catch (error) {
    place.textContent =
      location.protocol === "file:"
        ? "A browser does not let a page that was opened as a file fetch its models: run " +
          "“python -m http.server” in this folder, and open http://localhost:8000."
        : `The lab cannot start (${error.message}): export the folder again, or open the page ` +
          "in a browser of 2024 or later.";
  }
}

startLive();
