// Saving and opening runs, by the menu and by dropping a file on the page.

import { entryOf, made, saveAs } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { openRun, readFile, refuse } from "../../views/page/reader.js";
import { bytesOf } from "../../views/page/unpack.js";

/** @param {File} file a saved run @param {Context} context */
function openFile(file, context) {
  const { send, kernel } = context;
  if (!kernel) {
    const read = readFile(file, file.name).then(run => openRun(context, run, file.name));
    read.catch(error => refuse(context, error));
    return;
  }
  const reader = new FileReader();
  reader.onload = () => {
    const [, data] = String(reader.result).split(",");
    send({ do: "open", name: file.name, data });
  };
  reader.readAsDataURL(file);
}

/** @param {{name: string, data: string, mime: string}} file */
function download({ name, data, mime }) {
  const url = URL.createObjectURL(new Blob([bytesOf(data)], { type: mime }));
  saveAs(url, name);
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** @param {Context} context @returns {Partial<FeaturePage>} */
function filesPage(context) {
  const { send, live, kernel } = context;
  const change = () => {
    openFile(file.files[0], context);
    file.value = "";
  };
  const file = made("input", { type: "file", accept: ".gz,.json,.jsonl", hidden: true, change });
  return {
    heard(event) {
      if (event.type === "file") download(event);
    },
    entries() {
      const page = entryOf("Save page", () => send({ do: "save", what: "page" }));
      const save = entryOf("Save run", () => send({ do: "save", what: "run" }));
      return [
        ...(live ? [save] : []),
        entryOf("Open run", () => file.click()),
        file,
        ...(kernel ? [page] : [])
      ];
    },
    mounted(element) {
      /** @type {any} */
      const area = kernel ? element : document; // a page of its own takes a file wherever it falls
      area.addEventListener("dragover", (/** @type {DragEvent} */ event) => event.preventDefault());
      area.addEventListener("drop", (/** @type {DragEvent} */ event) => {
        const [dropped] = event.dataTransfer.files;
        if (!dropped) return;
        event.preventDefault();
        openFile(dropped, context);
      });
    }
  };
}

register({
  name: "files",
  reduce(state, event) {
    return event.type === "file" ? [state, []] : null;
  },
  page: filesPage
});
