// What moves on the stage when a step or a phase begins: the stage itself stands still. Nothing
// moves for those who asked their system for less motion.

import { LOOKS } from "./data.js";
import { made } from "./draw.js";
import { fresh } from "./phases.js";

/**
 * A point on the axes of a figure, in pixels of an element around it.
 * @param {HTMLElement} stage
 * @param {any} place of the figure
 * @param {number} x
 * @param {number} y
 * @returns {number[]}
 */
function onStage(stage, place, x, y) {
  const { xaxis, yaxis, width } = place._fullLayout;
  const box = place.querySelector(".main-svg").getBoundingClientRect(); // it may be scrolled
  const whole = stage.getBoundingClientRect();
  const scale = box.width / width;
  return [
    (box.left - whole.left) / scale + xaxis._offset + xaxis.l2p(x),
    (box.top - whole.top) / scale + yaxis._offset + yaxis.l2p(y)
  ];
}

/**
 * A box on the axes of a figure, as a style in an element around it.
 * @param {HTMLElement} stage
 * @param {any} place of the figure
 * @param {number[]} box its left, top, right and bottom
 */
export function boxOn(stage, place, [x0, y0, x1, y1]) {
  const [left, top] = onStage(stage, place, x0, y0);
  const [right, bottom] = onStage(stage, place, x1, y1);
  return `left:${left}px;top:${top}px;width:${right - left}px;height:${bottom - top}px`;
}

/**
 * Moves a sign over the stage from one point to another, and takes it away.
 * @param {HTMLElement} stage
 * @param {string} text
 * @param {number[][]} way two points
 * @param {number} delay milliseconds
 * @param {string} look of the element
 */
function fly(stage, text, way, delay, look = "") {
  const sign = made("div", { class: "sl-flying", style: look }, text);
  stage.append(sign);
  const transform = way.map(([x, y]) => `translate(${x}px, ${y}px)`);
  const motion = sign.animate({ transform, opacity: [0, 1, 1, 0] }, { ...LOOKS.flight, delay });
  motion.onfinish = () => sign.remove();
}

/**
 * Milliseconds from one row to the next: a large tree takes no longer.
 * @param {Step} step
 */
function paceOf(step) {
  return Math.min(LOOKS.rhythm.row, LOOKS.rhythm.whole / step.nodes.length);
}

/** The words of the tree become rows of the mask. @param {Values} parts @param {Step} step */
function flyToRows({ stage, tree, mask }, step) {
  const labels = new Map(tree.figure.table.map((/** @type {Entry} */ one) => [one.id, one.label]));
  for (const { id, x0, y0 } of tree.figure.hits) {
    if (!Number.isInteger(id)) continue;
    const way = [onStage(stage, tree, x0, y0), onStage(stage, mask, mask.figure.start, id - 0.5)];
    fly(stage, labels.get(id), way, paceOf(step) * id);
  }
}

/** One row of the mask after another is lit. @param {Values} parts @param {Step} step */
function lightRows({ stage, mask }, step) {
  const { start, size } = mask.figure;
  const here = [0, 0];
  for (const row of step.nodes.keys()) {
    const box = boxOn(stage, mask, [start, row - 0.5, size - 0.5, row + 0.5]);
    fly(stage, "", [here, here], paceOf(step) * row, `${box};background:var(--sl-light)`);
  }
}

/** The slots that are kept slide to where they are after the commit. @param {Values} parts */
function slideCells({ stage, cache }) {
  const paint = `;background:${LOOKS.caches.kept.color}`;
  for (const [index, slide] of cache.figure.slides.entries()) {
    const [x, y] = slide[0];
    const [from, to] = slide.map((/** @type {number[]} */ [x, y]) => onStage(stage, cache, x, y));
    const way = [from, to].map(point => [point[0] - from[0], point[1] - from[1]]);
    const look = boxOn(stage, cache, [x - 0.5, y - 0.5, x + 0.5, y + 0.4]) + paint;
    fly(stage, "", way, LOOKS.rhythm.row * index, look);
  }
}

/** Whether this person asked the system for less motion. */
function isStill() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Scrolls no further than needed to see an element. @param {HTMLElement} element */
export function reveal(element) {
  element.scrollIntoView({ block: "nearest", behavior: isStill() ? "instant" : "smooth" });
}

/**
 * What a step or a phase adds appears, level by level, the links of the path are drawn, and what
 * becomes of nodes, rows and slots moves there.
 * @param {Values} parts
 * @param {Step} step
 * @param {Position} now
 */
export function animate(parts, step, now) {
  const { stage, tree } = parts;
  for (const sign of stage.querySelectorAll(".sl-flying")) sign.remove();
  if (isStill()) return;
  if (now.phase === "flatten") flyToRows(parts, step);
  if (now.phase === "verify") lightRows(parts, step);
  if (now.phase === "commit" && step.caches.length) slideCells(parts);
  appear(tree, step, now);
}

/**
 * @param {any} tree
 * @param {Step} step
 * @param {Position} now
 */
function appear(tree, step, now) {
  const whole = now.phase === "all";
  const added = fresh(step, now);
  const shown = tree.figure.table.filter((/** @type {Entry} */ entry) => entry.kind);
  for (const name of [".points path", ".textpoint"])
    tree.querySelectorAll(name).forEach((/** @type {Element} */ mark, /** @type {number} */ at) => {
      const { id, depth } = shown[at] ?? { depth: 0 }; // the lines below the labels come last
      const answer = !shown[at] && now.phase === "verify"; // with the row of its node
      const delay = whole ? 45 * depth : paceOf(step) * (at - shown.length) * Number(answer);
      if (whole || added.has(id) || answer)
        mark.animate({ opacity: [0, 1] }, { ...LOOKS.motion, delay });
    });
  if (whole || now.phase === "accept")
    for (const line of tree.querySelectorAll(".js-line"))
      line.animate({ strokeDasharray: ["0 999", "999 0"] }, LOOKS.motion);
}
