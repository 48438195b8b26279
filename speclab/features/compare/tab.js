// The tab Compare: several strategies on this prompt, side by side.

import { LOOKS, WORDS } from "../../views/page/data.js";
import {
  button,
  div,
  made,
  refusal,
  shows,
  span,
  tableOf,
  workWords
} from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { layoutOf, noteAt } from "../../views/page/figure.js";
import { clip, plotText } from "../../views/page/text.js";
import { words } from "../../views/page/words.js";
import COMPARE_WORDS from "./words.json" with { type: "json" };

/** @param {Context} context */
function compareOf({ send }) {
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

/** @param {number | undefined} value @param {number} digits */
function number(value, digits) {
  return value === undefined ? "" : Number(value.toFixed(digits));
}

/** @param {{rows: Values[]}} compared @returns {Table} */
function comparedTable({ rows }) {
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
  const text = rates.map(rate => (rate ? String(number(rate, 2)) : WORDS.compared.none));
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

/** @param {Context} context @returns {Partial<FeaturePage>} */
function comparePage(context) {
  const { kernel, dispatch, send, state } = context;
  if (!kernel) return {};
  const { element, update } = compareOf(context);
  return {
    tab: true,
    update,
    parts(tab, { compared }) {
      if (tab !== "compare") return [];
      const { rows = [] } = compared ?? {};
      const names = rows.map(row => row.name);
      const rates = rows.map(row => row.tokens_per_iteration);
      return [element, rows.length ? compareFigure(names, rates) : null];
    },
    next: () => ({
      label: WORDS.next.compare,
      go() {
        dispatch({ type: "tab", name: "compare" });
        send({ do: "compare", names: [state().catalog.current, "Autoregressive"] });
      }
    })
  };
}

register({ name: "compare", page: comparePage }, COMPARE_WORDS);
