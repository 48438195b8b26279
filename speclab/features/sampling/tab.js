// Where sampling stopped: the target's and the draft's distribution, and the residual.

import { WORDS } from "../../views/page/data.js";
import { barsFigure } from "../../views/page/bars.js";
import { register } from "../../views/page/features.js";
import { shapeOf } from "../../views/page/phases.js";
import { quoted } from "../../views/page/text.js";
import { words } from "../../views/page/words.js";
import SAMPLING_WORDS from "./words.json" with { type: "json" };

/** The children that were rejected where sampling stopped, in order. @param {Step} step */
function rejections(step) {
  const parent = step.residual?.node ?? -1;
  return step.trials.filter(trial => !trial.accepted && step.tree.parent[trial.node] === parent);
}

/**
 * The children where sampling stopped, by token.
 * @param {Step} step
 * @returns {Map<number, number>}
 */
function stoppedAt(step) {
  const { node, tokens } = step.residual;
  const recorded = new Set(tokens.map(one => one.token));
  const children = node === null ? [0] : shapeOf(step.tree).children[node];
  return new Map(
    children
      .map(/** @returns {[number, number]} */ child => [step.nodes[child].token, child])
      .filter(([token]) => recorded.has(token))
  );
}

/**
 * The distributions where sampling stopped: p, q (if candidates were drawn) and the residual; null
 * at temperature 0.
 * @param {Step} step
 */
export function residualFigure(step) {
  if (!step.residual) return null;
  const { tokens } = step.residual;
  /** @param {string} name @param {keyof ResidualToken} field */
  const panel = (name, field) => {
    const recorded = tokens.filter(entry => entry[field] !== null);
    return { name, probs: new Map(recorded.map(entry => [entry.token, entry[field]])) };
  };
  const every = [panel("p", "target"), panel("q", "draft"), panel("residual", "residual")];
  const panels = every.filter(({ probs }) => probs.size);
  const nodes = stoppedAt(step);
  const notes = new Map([...nodes].map(([token, node]) => [token, `node ${node}`]));
  for (const trial of rejections(step))
    notes.set(step.nodes[trial.node].token, `node ${trial.node} ${WORDS.bars.rejected}`);
  if (step.bonus !== null) notes.set(step.bonus, WORDS.bars.drawn);
  return barsFigure(step, panels, notes, nodes, residualSentence(step));
}

/** @param {Step} step */
function residualSentence(step) {
  if (step.bonus === null) return "";
  const { node, tokens } = step.residual;
  const prob = tokens.find(one => one.token === step.bonus)?.target ?? 0;
  /** @type {Values} */
  const values = {
    token: step.bonus,
    prob,
    where: words("residual", node === null ? "root" : "node", { node })
  };
  const tried = rejections(step);
  if (tried.length) {
    values.tests = tried
      .map(trial =>
        words(
          "residual",
          trial.block === null ? "test" : "block",
          {
            ...trial,
            token: step.nodes[trial.node].token,
            ratio: trial.against ? Math.min(1, trial.target / trial.against) : 1
          },
          step.texts
        )
      )
      .join("; ");
    return words("residual", "tried", values, step.texts);
  }
  const names = [...stoppedAt(step).keys()].map(token => quoted(token, step.texts)).join(" or ");
  return words("residual", names ? "once" : "alone", { ...values, names }, step.texts);
}

register(
  {
    name: "sampling",
    page: () => ({
      parts: (tab, _, { step }) => (tab === "node" && step ? [residualFigure(step)] : [])
    })
  },
  SAMPLING_WORDS
);
