// The tab Check: the verdict of a check, what it found, and two runs beside each other.

import { LOOKS, WORDS } from "../../views/page/data.js";
import { asks, button, entryOf, made, tableOf } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { layoutOf, noteAt } from "../../views/page/figure.js";
import { MOST } from "../../views/page/metrics.js";
import { shapeOf } from "../../views/page/phases.js";
import { markOf, words } from "../../views/page/words.js";
import CHECK_WORDS from "./words.json" with { type: "json" };

/**
 * What a check with the models found, in one line; null if there was none.
 * @param {Step[]} steps
 */
export function checkVerdict(steps) {
  const gaps = steps.flatMap(step => step.gaps.filter(Boolean));
  if (!gaps.length) return null;
  const found = steps.flatMap(step => step.findings).filter(({ kind }) => kind !== "tie");
  return words("checked", found.length ? "wrong" : "right", {
    iterations: steps.filter(step => step.gaps.length).length,
    rows: gaps.length,
    findings: found.length,
    gap: Number(Math.max(...gaps.map(([gap]) => gap)).toPrecision(2))
  });
}

/**
 * Quantiles of the gaps by depth, recorded and of the reference; null if nothing was measured.
 * @param {Step[]} steps
 * @returns {Table | null}
 */
export function gapTable(steps) {
  /** @type {(number | null)[][][]} */
  const depths = [];
  for (const step of steps)
    step.gaps.forEach(
      (gap, node) => gap && (depths[shapeOf(step.tree).depth[node]] ??= []).push(gap)
    );
  /** @param {(number | null)[][]} gaps @param {number} side */
  const quantiles = (gaps, side) => {
    const known = gaps
      .map(gap => gap[side])
      .filter(value => value !== null)
      .sort((a, b) => a - b);
    return [0.5, 0.9, 1].map(share => {
      const value = known[Math.round(share * (known.length - 1))];
      return value === undefined ? "–" : Number(value.toPrecision(2));
    });
  };
  const rows = depths.map((gaps, depth) => [
    depth,
    gaps.length,
    ...quantiles(gaps, 0),
    ...quantiles(gaps, 1)
  ]);
  return rows.length ? { ...WORDS.gaps, rows } : null;
}

/**
 * Two runs along the text, joined where they part: by iteration the accepted tokens, then the
 * target's own.
 * @param {Diff} diff
 * @returns {Figure}
 */
export function diffFigure({ passes, names, text, answers, proposals, sentence }) {
  const { accepted, bonus } = LOOKS.nodes;
  const data = passes.flatMap((run, side) =>
    [accepted, bonus].map(({ color }, own) => ({
      ...LOOKS.traces.passes,
      y: run.map(() => -side),
      base: run.map(pass => pass[0] + own * pass[1]),
      x: run.map(pass => pass[1 + own]),
      customdata: run.map((_, index) => index + 1),
      marker: { color }
    }))
  );
  const partings = Object.entries({ text, answers, proposals }).filter(
    ([, position]) => position !== null
  );
  const shapes = partings.map(([, x]) => ({ ...LOOKS.upright, x0: x, x1: x }));
  const annotations = partings.map(([name, x], index) =>
    noteAt(words("diff", name), x, 1, { xref: "x", yshift: 14 * index })
  );
  const last = Math.max(...passes.map(run => run.at(-1).reduce((sum, count) => sum + count)));
  const first = Math.max((partings[0]?.[1] ?? 0) - MOST / 2, passes[0][0][0]);
  return {
    data,
    layout: layoutOf("diff", sentence, {
      shapes,
      annotations,
      xaxis: { range: [first, Math.min(first + MOST, last)] },
      yaxis: { ticktext: names }
    })
  };
}

/**
 * What a check found, each a button that goes there.
 * @param {State} state
 * @param {(event: PageEvent) => void} dispatch
 */
function findingsOf({ steps }, dispatch) {
  const groups = steps.flatMap(({ findings }) =>
    Object.values(Object.groupBy(findings, one => one.kind))
  );
  const entries = groups.slice(0, 50).map(([finding, ...more]) => {
    const { node, sentence } = finding;
    const cursor = finding.iteration + 1;
    const go = () => {
      dispatch({ type: "go", cursor });
      dispatch({ type: "set", values: { node } });
    };
    const label = `Iteration ${cursor}${node === null ? "" : `, node ${node}`}: ${markOf(finding)}`;
    return made(
      "li",
      {},
      button(label, { "data-finding": JSON.stringify([cursor, node]) }, go),
      ` ${sentence}${more.length ? ` And ${more.length} more.` : ""}`
    );
  });
  return entries.length ? made("ol", { class: "sl-findings" }, ...entries) : null;
}

/**
 * The verdict of a check first, then what it found, then its numbers.
 * @param {State} state
 * @param {Context} context
 * @returns {any[]}
 */
function checkParts(state, context) {
  const verdict = checkVerdict(state.steps);
  const table = gapTable(state.steps);
  const check = asks(context.send, "Check", { do: "check" }, WORDS.controls.check);
  const { numbers } = WORDS.checked;
  return [
    verdict && made("p", { class: "sl-verdict" }, verdict),
    context.kernel && made("p", {}, check, ` ${WORDS.checked.does}`),
    findingsOf(state, context.dispatch),
    ...diffParts(state, context),
    table && made("details", {}, made("summary", {}, numbers), tableOf(table))
  ];
}

/**
 * Buttons that compare the run shown with another one, and both timelines.
 * @param {State} state
 * @param {Context} context
 * @returns {any[]}
 */
function diffParts({ runs, diffed: compared }, { send }) {
  const diff = compared?.diff;
  const choices = runs
    .filter(run => !run.shown)
    .map(({ name, number: run }) =>
      asks(send, `Compare with ${name}`, { do: "diff", run }, { "data-diff": run })
    );
  return [
    made("p", { class: "sl-row" }, ...choices),
    ...(diff ? [diff.sentence, diffFigure(diff)] : [])
  ];
}

register(
  {
    name: "check",
    page: context => ({
      tab: true,
      hidden: ({ diffed, steps }) =>
        !diffed?.diff && !steps.some(step => step.findings.length || step.gaps.length),
      // the list of findings keeps the focus: it is drawn again only if it changes
      watched: ({ status, diffed, runs }) => [status.busy, diffed, runs],
      parts: (tab, state) => (tab === "check" ? checkParts(state, context) : []),
      entries: () =>
        context.kernel
          ? [entryOf(WORDS.tabs.check, () => context.dispatch({ type: "tab", name: "check" }))]
          : []
    })
  },
  CHECK_WORDS
);
