// The tab Metrics: four numbers, tokens and milliseconds over the iterations.

import { LOOKS, WORDS } from "../../views/page/data.js";
import { div, made } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { layoutOf, noteAt, withValues } from "../../views/page/figure.js";
import { countsOf, firstShown, gainsOf, iterationAxis } from "../../views/page/metrics.js";
import { filled, words } from "../../views/page/words.js";
import METRICS_WORDS from "./words.json" with { type: "json" };

const LEAST = 16; // iterations that the axis has room for

/**
 * Tokens per iteration above milliseconds by phase.
 * @param {Step[]} steps up to the cursor
 * @param {number} first left out
 */
export function metricsFigure(steps, first = 0) {
  const shown = steps.slice(first);
  const x = shown.map(step => step.index + 1);
  const bar = { ...LOOKS.traces.metrics, x, customdata: x };
  const tokens = Object.entries(gainsOf(shown));
  const data = withValues([
    ...tokens.map(([kind, y]) => ({ ...bar, ...LOOKS.timeline[kind], y, showlegend: false })),
    ...Object.entries(LOOKS.phases).map(([name, color]) => ({
      ...bar,
      ...LOOKS.metrics.phase,
      y: shown.map(step => (step.seconds[name] ? 1000 * step.seconds[name] : null)),
      name,
      marker: { color },
      hovertemplate: `%{y:.2f} ms ${name}<extra></extra>`
    }))
  ]);
  const annotations = [
    noteAt(WORDS.metrics.tokens, 0, 1),
    noteAt(WORDS.metrics.milliseconds, 0, 0.42)
  ];
  const xaxis = iterationAxis(first, shown.length, LEAST);
  return { data, layout: layoutOf("metrics", metricsSentence(steps), { annotations, xaxis }) };
}

/**
 * Four numbers, each with its definition.
 * @param {Step[]} steps
 * @returns {{name: string, value: string, definition: string}[]}
 */
export function metricNumbers(steps) {
  const total = countsOf(steps);
  return WORDS.numbers.map(({ name, part, whole, format, definition }) => {
    const value = total[whole] ? total[part] / total[whole] : 0;
    return { name, definition, value: filled(`{value:${format}}`, { value }) };
  });
}

/** @param {Step[]} steps */
function metricsSentence(steps) {
  if (!steps.length) return WORDS.metrics.none;
  const [rate, share, , speed] = metricNumbers(steps).map(one => one.value);
  return words("metrics", "sentence", { count: steps.length, rate, share, speed });
}

/** @param {Step[]} steps up to the cursor */
function numbersOf(steps) {
  const numbers = metricNumbers(steps).map(({ name, value, definition }) =>
    made("div", {}, made("b", {}, value), name, made("small", {}, definition))
  );
  return div("sl-numbers", ...numbers);
}

register(
  {
    name: "metrics",
    page: () => ({
      tab: true,
      parts(tab, { steps, cursor }, { step }) {
        if (tab !== "metrics" || !step) return [];
        const known = steps.slice(0, cursor);
        return [numbersOf(known), metricsFigure(known, firstShown(cursor, cursor))];
      }
    })
  },
  METRICS_WORDS
);
