// The tab Caches: the caches slot by slot, with their checks.

import { cacheFigure, cacheKey, cacheLines } from "../../views/page/caches.js";
import { made } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import CACHES_WORDS from "./words.json" with { type: "json" };

/** @param {Step} step */
function keyLine(step) {
  return made(
    "p",
    { class: "sl-key" },
    ...cacheKey(step).map(({ label, color, sign }) =>
      made("span", {}, made("i", { style: `background:${color}` }, sign || "\u00a0"), label)
    )
  );
}

register(
  {
    name: "caches",
    page: () => ({
      tab: true,
      parts(tab, { header }, { step }) {
        if (tab !== "caches" || !step) return [];
        const figure = cacheFigure(step, header.prompt_ids.length);
        return [keyLine(step), figure, ...cacheLines(step)];
      }
    })
  },
  CACHES_WORDS
);
