// Several strategies on this prompt, side by side; and the curve of a setting.

import { LOOKS, WORDS } from "./data.js";
import { button, div, made, refusal, shows, span, tableOf, workWords } from "./draw.js";
import { layoutOf, noteAt, shareOf } from "./figure.js";
import { clip, plotText } from "./text.js";
import { words } from "./words.js";

/** @param {Context} context */
export function compareOf({ send }) {
  const list = div("sl-choices");
  const run = button("Compare", { class: "sl-compare" }, () => {
    const names = [...list.querySelectorAll("input:checked")].map(box => box.value);
    send({ do: "compare", names });
  });
  const result = made("div");
  const work = span("sl-muted");
  const element = made("div", {}, list, div("sl-row", run, work, refusal("compare")), result);
  /** @param {State} now */
  const update = now => {
    const { catalog, status } = now;
    if (catalog && !list.childElementCount) {
      const first = [catalog.current, "Autoregressive", "LinearSpeculation"];
      list.append(
        ...[catalog.current, ...catalog.strategies.map(one => one.name)].map(name => {
          const look = { type: "checkbox", value: name, checked: first.includes(name) };
          return made("label", { "data-name": name }, made("input", look), ` ${name}`);
        })
      );
    }
    for (const label of list.children) {
      const sentence = status.missing?.[label.dataset.name] ?? "";
      label.title = sentence;
      label.firstChild.disabled = Boolean(sentence);
      if (sentence) label.firstChild.checked = false;
    }
    run.disabled = Boolean(status.busy || now.gone);
    work.textContent = workWords(status);
    if (!shows(result, [now.compared]))
      result.replaceChildren(now.compared ? tableOf(comparedTable(now.compared)) : "");
  };
  return { element, update };
}

/** @param {{rows: Values[]}} compared @returns {Table} */
function comparedTable({ rows }) {
  /** @param {number | undefined} value @param {number} digits */
  const number = (value, digits) => (value === undefined ? "" : Number(value.toFixed(digits)));
  return {
    ...WORDS.compared,
    rows: rows.map(row => [
      row.name,
      row.tokens,
      number(row.iterations, 0),
      number(row.tokens_per_iteration, 2),
      number(row.draft_calls, 0),
      number(row.throughput, 1),
      row.problem ||
        (row.differs_at === null ? "the same" : `differs from token ${row.differs_at + 1} on`)
    ])
  };
}

/**
 * Tokens per pass of several runs, a bar each, the best bold, and a line at plain decoding.
 * @param {string[]} names
 * @param {(number | null | undefined)[]} rates none: it did not run
 */
export function compareFigure(names, rates) {
  const y = names.map((_, row) => row);
  const text = rates.map(rate => rate?.toFixed(2) ?? WORDS.compared.none);
  const best = Math.max(1, ...rates.filter(Boolean));
  const data = [{ ...LOOKS.traces.rates, x: rates, y, text }];
  const ticktext = names.map((name, row) => {
    const label = plotText(clip(name, 30));
    return rates[row] === best ? `<b>${label}</b>` : label;
  });
  const sentence = words("compared", "rates", {
    rates: names.map((name, row) => `${name} ${text[row]}`).join("; ")
  });
  const layout = layoutOf("comparison", sentence, {
    height: 30 * names.length + 70,
    xaxis: { range: [0, 1.15 * best] },
    yaxis: { tickvals: y, ticktext },
    shapes: [{ ...LOOKS.upright, x0: 1, x1: 1 }],
    annotations: [noteAt(WORDS.compared.plain, 1, 1, { xref: "x" })]
  });
  return { data, layout };
}

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
