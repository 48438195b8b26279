// Starts the live page: fetches its parts, and mounts the page with a worker as its kernel.

import { unpacked } from "../views/page/unpack.js";

/** The text of a packed part; some servers unpack it on their own. @param {string} name */
async function part(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} is not in this folder`);
  const bytes = await response.blob();
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
    const begin = `const BASE = ${base}, QUERY = ${JSON.stringify(location.search)};\n`;
    const worker = new Worker(URL.createObjectURL(new Blob([begin, decoder])));
    /** @param {(message: any) => void} handler */
    const hear = handler => {
      worker.onmessage = ({ data }) => handler(data);
    };
    const view = mount(
      place,
      { kind: "worker", send: message => worker.postMessage(message), on: hear, keys: document },
      window.Plotly
    );
    worker.onerror = ({ message }) =>
      view.handle({ type: "gone", sentence: `The decoder stopped (${message}): reload the page.` });
    // in the first three iterations, or as long as the link says
    view.handle({ type: "guessing", on: /[?&]predict\b/.test(location.search) || 3 });
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
