// What is under the pointer, by mouse and by touch: hover shows, a click picks. No picture is drawn
// again for it.

import { div } from "./draw.js";
import { cellAt } from "./mask.js";
import { boxOn } from "./motion.js";
import { stepShown } from "./state.js";
import { positionSentence } from "./words.js";

const STILL = 6; // pixels that a click may move

/**
 * The node whose circle, word or second line is at a point; undefined without one.
 * @param {Hit[]} hits
 * @param {Point} point
 */
export function hitAt(hits, { x, y }) {
  return hits.find(hit => x >= hit.x0 && x <= hit.x1 && y >= hit.y0 && y <= hit.y1)?.id;
}

/**
 * A node and all above it.
 * @param {Columns | undefined} tree
 * @param {NodeId} node
 * @returns {number[]}
 */
export function pathTo(tree, node) {
  const path = [];
  for (let at = node; tree && at in tree.parent; at = tree.parent[at]) path.push(at);
  return path;
}

/**
 * A point of the screen on the axes of a figure.
 * @param {any} place
 * @param {PointerEvent} event
 * @returns {Point}
 */
function pointOf(place, { clientX, clientY }) {
  const { xaxis, yaxis, width } = place._fullLayout;
  const box = place.querySelector(".main-svg").getBoundingClientRect(); // it may be scrolled
  const scale = width / box.width;
  return {
    x: xaxis.p2l((clientX - box.left) * scale - xaxis._offset),
    y: yaxis.p2l((clientY - box.top) * scale - yaxis._offset)
  };
}

/**
 * Tells what the pointer is on, null without a thing, and what it clicks: plotly's own layer takes
 * clicks, and knows marks only.
 * @param {any} place of a figure
 * @param {(point: Point) => any} thingAt
 * @param {(thingNow: () => any) => void} hover
 * @param {(thing: any) => void} click
 */
function follow(place, thingAt, hover, click) {
  let clicks = new AbortController();
  /** @param {PointerEvent} event */
  const thingOf = event => (place.data ? thingAt(pointOf(place, event)) : null);
  place.addEventListener("pointermove", (/** @type {PointerEvent} */ event) =>
    hover(() => thingOf(event))
  );
  place.addEventListener("pointerleave", () => hover(() => null));
  place.addEventListener("pointerdown", (/** @type {PointerEvent} */ down) => {
    clicks.abort(); // the pointer went up elsewhere
    clicks = new AbortController();
    /** @param {PointerEvent} up */
    const end = up => {
      const moved = Math.hypot(up.clientX - down.clientX, up.clientY - down.clientY);
      const thing = thingOf(up);
      if (thing != null && moved < STILL) click(thing);
    };
    addEventListener("pointerup", end, { once: true, signal: clicks.signal });
  });
}

/**
 * Puts frames around a row and a column of the mask; null hides one.
 * @param {any} mask
 * @param {HTMLElement[]} frames
 * @param {number | null} row
 * @param {number | null} column
 */
function moveFrames(mask, [across, down], row, column) {
  across.hidden = row === null;
  down.hidden = column === null;
  if (!mask.data) return;
  const { start, size } = mask.figure;
  across.style.cssText = boxOn(mask, mask, [start, row - 0.5, size - 0.5, row + 0.5]);
  down.style.cssText = boxOn(mask, mask, [column - 0.5, -0.5, column + 0.5, size - 0.5]);
}

/** The row of a node in the mask; null without one. @param {any} mask @param {NodeId} node */
function rowOf(mask, node) {
  const row = mask.figure?.names.indexOf(node) ?? -1;
  return row < 0 ? null : row;
}

/**
 * Hover and click in tree, mask and timeline; returns what shows the hovered part again after a
 * change.
 * @param {Values} parts
 * @param {Context} context
 * @param {(node?: NodeId) => string} wordsOf what is said of a node; of the selected one
 */
export function watchPointer({ tree, mask, timeline, body, node: line }, context, wordsOf) {
  const { state, dispatch } = context;
  const frames = [div("sl-frame"), div("sl-frame")];
  mask.append(...frames);
  /** @param {Values} hovered */
  const show = ({ node, row = rowOf(mask, node), column = row, sentence = wordsOf(node) }) => {
    moveFrames(mask, frames, row, column);
    const path = pathTo(stepShown(state())?.tree, node);
    for (const word of body.querySelectorAll("[data-node]"))
      word.classList.toggle("sl-above", path.includes(Number(word.dataset.node)));
    line.textContent = sentence;
  };
  let again = () => show({});
  /** @param {(thing: any) => Values} valuesOf */
  const hover = valuesOf => (/** @type {() => any} */ thingNow) => {
    again = () => {
      const thing = thingNow();
      show(thing == null ? {} : valuesOf(thing));
    };
    again();
  };
  /** @param {NodeId} node */
  const select = node => dispatch({ type: "select", node });
  follow(
    tree,
    point => hitAt(tree.figure.hits, point),
    hover(node => ({ node })),
    select
  );
  follow(
    mask,
    point => cellAt(mask.figure, point),
    hover(cell => cell),
    ({ node }) => node !== undefined && select(node)
  );
  follow(
    timeline,
    ({ x }) => state().steps[Math.round(x) - 1],
    hover(step => (step.index === state().veiled ? {} : { sentence: positionSentence(step) })),
    step => dispatch({ type: "go", cursor: step.index + 1 })
  );
  return () => again();
}
