// The tab Caches: the caches slot by slot, with their checks.

import { cacheFigure, cacheKey, cacheLines } from "../../views/page/caches.js";
import { keyOf, made } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import CACHES_WORDS from "./words.json" with { type: "json" };

register(
  {
    name: "caches",
    page: () => ({
      tab: true,
      parts(tab, { header }, { step }) {
        if (tab !== "caches" || !step) return [];
        const figure = cacheFigure(step, header.prompt_ids.length);
        const key = made("p", { class: "sl-key" }, ...keyOf(cacheKey(figure), "background"));
        return [key, figure, ...cacheLines(step)];
      }
    })
  },
  CACHES_WORDS
);
