// The curve of a setting, below its slider: tokens per pass over its values, replayed on this text.

import { LOOKS, WORDS } from "../../views/page/data.js";
import { button, div } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { layoutOf, noteAt, shareOf } from "../../views/page/figure.js";
import { words } from "../../views/page/words.js";
import REPLAY_WORDS from "./words.json" with { type: "json" };

/**
 * Tokens per pass over the values of a setting, on the scale of its slider if it has one.
 * @param {Curve} curve
 * @param {any[]} [values] the slider's
 * @returns {Figure}
 */
export function curveFigure({ name, points, plain, here }, values) {
  const known = points.filter(point => !point.refused);
  /** @param {any} value */
  const place = value => (values ? shareOf(values, value) : value);
  /** @param {Values[]} list */
  const along = list => ({
    x: list.map(point => place(point.value)),
    y: list.map(point => point.tokens_per_iteration),
    text: list.map(point => point.value)
  });
  const shown = along(known);
  const same = shown.y.every(rate => rate === shown.y[0]);
  const level = plain.tokens_per_iteration ?? 1;
  const ticks = values?.filter((_, index) => index % Math.ceil(values.length / 5) === 0);
  const xaxis = values
    ? { range: [0, 1], tickvals: ticks.map(place), ticktext: ticks }
    : { type: "category" };
  return {
    data: [
      { ...LOOKS.traces.curve, ...shown },
      { ...LOOKS.traces.here, ...along(known.filter(point => point.value === here)) }
    ],
    layout: layoutOf("curve", words("curve", "sentence", { name }), {
      annotations: [noteAt(WORDS.curve[same ? "same" : "title"], 0, 1)],
      shapes: [{ ...LOOKS.level, y0: level, y1: level }],
      xaxis
    })
  };
}

/** @param {Context} context @returns {Partial<FeaturePage>} */
function replayPage({ send, kernel }) {
  if (!kernel) return {};
  /** @param {string} name of a setting with a slider @param {any[]} offers the slider's values */
  const cell = (name, offers) => {
    const look = { class: "sl-link", title: `tokens per pass over ${name.replaceAll("_", " ")}` };
    const place = div("sl-curve");
    /** @param {State} now @param {Plot} plot */
    const update = ({ curve }, plot) => {
      place.hidden = name !== curve?.name || !curve.points?.length;
      const { clientWidth } = place;
      if (clientWidth) plot(place, [curve, clientWidth], () => curveFigure(curve, offers));
    };
    return { elements: [button("∿", look, () => send({ do: "curve", name })), place], update };
  };
  return { cell };
}

register({ name: "replay", page: replayPage }, REPLAY_WORDS);
