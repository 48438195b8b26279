// Saving and opening runs, by the menu and by dropping a file on the page.

import { entryOf, made, saveAs } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { bytesOf } from "../../views/page/unpack.js";

/** @param {File} file a saved run @param {(message: Message) => void} send */
function openFile(file, send) {
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
function filesPage({ send, live, kernel }) {
  if (!live) return {};
  const change = () => {
    openFile(file.files[0], send);
    file.value = "";
  };
  const file = made("input", { type: "file", accept: ".gz,.json,.jsonl", hidden: true, change });
  return {
    heard(event) {
      if (event.type === "file") download(event);
    },
    entries() {
      const page = entryOf("Save page", () => send({ do: "save", what: "page" }));
      return [
        entryOf("Save run", () => send({ do: "save", what: "run" })),
        entryOf("Open run", () => file.click()),
        file,
        ...(kernel ? [page] : [])
      ];
    },
    mounted(element) {
      element.addEventListener("dragover", event => event.preventDefault());
      element.addEventListener("drop", event => {
        const [dropped] = event.dataTransfer.files;
        if (!dropped) return;
        event.preventDefault();
        openFile(dropped, send);
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
