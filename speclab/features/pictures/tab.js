// Pictures of the stage, tree and mask beside each other, in a file or for the saved notebook.

import { entryOf, made, rolesOf, saveAs } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { asking, stepShown } from "../../views/page/state.js";

/**
 * Sends a picture of the stage when the page has been still, for the saved notebook; returns the
 * clock.
 * @param {Context} context
 * @param {HTMLElement} stage
 * @param {any} Plotly
 */
function keepSending({ state, send }, stage, Plotly) {
  /** @type {string | null} */
  let sent = null;
  /** @type {string | null} */
  let seen = null;
  /** @type {any} */
  const tree = stage.querySelector(".speclab-tree");
  return setInterval(async () => {
    const now = state();
    const key = [now.run, now.cursor, now.tick, now.steps.length].join();
    const ready =
      stepShown(now) &&
      !now.status.busy &&
      !now.gone &&
      !asking(now) &&
      tree.data &&
      tree.clientWidth;
    const still = ready && key === seen;
    seen = ready ? key : null;
    if (!still || key === sent) return;
    sent = key;
    const { width, height, png } = await pictureOf(stage, Plotly);
    const [, data] = png.split(",");
    const image = { name: "tree and mask", mime: "image/png", data, width, height };
    send({ do: "picture", cursor: now.cursor, images: [image] });
  }, 1500);
}

/**
 * The figures on the stage beside each other as one picture: its size, and addresses of its data.
 * @param {any} stage
 * @param {any} Plotly
 */
async function pictureOf(stage, Plotly) {
  const paper = rolesOf(stage)["var(--sl-paper)"]; // it may be seen in another theme
  let [width, height, inside] = [0, 0, ""];
  for (const { data, layout, clientWidth } of stage.querySelectorAll(".js-plotly-plot")) {
    if (!clientWidth) continue; // hidden
    const figure = { data, layout: { ...layout, paper_bgcolor: paper } };
    const look = { width: layout.width, height: layout.height, format: "svg", imageDataOnly: true };
    inside += `<svg x="${width}">${await Plotly.toImage(figure, look)}</svg>`;
    width += layout.width;
    height = Math.max(height, layout.height);
  }
  const start = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"`;
  const image = new Image();
  const whole = `${start} style="background:${paper}">${inside}</svg>`;
  image.src = `data:image/svg+xml,${encodeURIComponent(whole)}`;
  await image.decode();
  const canvas = made("canvas", { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return { width, height, svg: image.src, png: canvas.toDataURL() };
}

/** @param {Context} context @returns {Partial<FeaturePage>} */
function picturesPage(context) {
  /** @type {HTMLElement} */
  let stage;
  /** @type {any} */
  let plotly;
  let clock = 0;
  /** @param {"svg" | "png"} format */
  const save = async format => {
    const picture = await pictureOf(stage, plotly);
    saveAs(picture[format], `iteration_${context.state().cursor}.${format}`);
  };
  return {
    entries: () => [
      entryOf("Picture as SVG", () => save("svg")),
      entryOf("Picture as PNG", () => save("png"))
    ],
    mounted(element, Plotly) {
      stage = element.querySelector(".sl-stage");
      plotly = Plotly;
      if (context.kernel) clock = keepSending(context, stage, plotly);
    },
    ended: () => clearInterval(clock)
  };
}

register({ name: "pictures", page: picturesPage });
