// What is known at each position of an iteration's phases.

export const PHASES = ["draft", "flatten", "verify", "accept", "commit", "all"];
export const OWN = "own"; // the target's own token, bonus or correction; drafted nodes have numbers

/** @type {WeakMap<object, Shape>} */
const SHAPES = new WeakMap();
/** @type {Position} */
export const WHOLE = { phase: "all", level: null };

/** Depths, children and probabilities of a tree's columns. @param {Columns} tree */
export function shapeOf(tree) {
  let shape = SHAPES.get(tree);
  if (shape) return shape;
  /** @type {number[][]} */
  const children = tree.parent.map(/** @returns {number[]} */ () => []);
  /** @type {number[]} */
  const depth = [];
  /** @type {number[]} */
  const logProb = [];
  tree.parent.forEach((parent, node) => {
    depth[node] = parent < 0 ? 0 : depth[parent] + 1;
    logProb[node] = Number(tree.log_prob[node] === "-inf" ? -Infinity : tree.log_prob[node]);
    if (parent >= 0) children[parent].push(node);
  });
  /** @type {number[]} */
  const path = [];
  tree.parent.forEach((parent, node) => {
    path[node] = logProb[node] + (parent < 0 ? 0 : path[parent]);
  });
  shape = { depth, children, pathProb: path.map(Math.exp), prob: logProb.map(Math.exp) };
  SHAPES.set(tree, shape);
  return shape;
}

/** Whether a phase has begun. @param {Position} position @param {string} phase */
export function reached(position, phase) {
  return PHASES.indexOf(position.phase) >= PHASES.indexOf(phase);
}

/** Whether node 0 was committed before the iteration. @param {Step} step */
export function verifiedRoot(step) {
  return step.nodes[0].verdict === "root";
}

/**
 * The node that the target's own token follows; -1 if a drafted root was rejected.
 * @param {Step} step
 */
export function lastOnPath(step) {
  if (step.accepted.length) return step.accepted[step.accepted.length - 1];
  return verifiedRoot(step) ? 0 : -1;
}

/** "bonus" if the path was accepted to a leaf, else "corrected". @param {Step} step */
export function ownKind(step) {
  const node = lastOnPath(step);
  return node < 0 || shapeOf(step.tree).children[node].length ? "corrected" : "bonus";
}

/** The decisions of acceptance in order. @param {Step} step @returns {Decision[]} */
export function decisions(step) {
  const { children } = shapeOf(step.tree);
  let node = verifiedRoot(step) ? 0 : -1;
  const before = step.root_choice ?? step.tree.token[0];
  const winners = [...step.accepted, ...(step.bonus === null ? [] : [null])];
  return winners.map(winner => {
    const candidates = node >= 0 ? children[node] : [0];
    const choice = node >= 0 ? step.nodes[node].target_choice : before;
    const decision = { node, choice, candidates, winner };
    node = winner ?? node;
    return decision;
  });
}

/**
 * When each node was drafted: its depth, or its number in the order of a heap.
 * @param {Step} step
 * @returns {number[]}
 */
export function growth(step) {
  const pops = step.events.filter(event => event.kind === "pop");
  if (!pops.length) return shapeOf(step.tree).depth;
  const order = new Map(pops.map(event => [event.node, event.values.order]));
  return step.nodes.map((_, node) => order.get(node) ?? 0);
}

/** Every position of an iteration in order. @param {Step} step @returns {Position[]} */
export function positions(step) {
  const last = Math.max(...growth(step));
  const draft = Array.from({ length: last + 1 }, (_, level) => ({ phase: "draft", level }));
  const accept = decisions(step).map((_, index) => ({ phase: "accept", level: index + 1 }));
  /** @type {Position[]} */
  const ends = ["flatten", "verify", "commit", "all"].map(
    /** @returns {Position} */ phase => ({ phase, level: null })
  );
  return [...draft, ends[0], ends[1], ...accept, ends[2], ends[3]];
}

/** A name of LOOKS.nodes for each node and for "own"; null if not known yet.
 *  @param {Step} step @param {Position} position @returns {Kinds} */
export function kindsAt(step, position = WHOLE) {
  const taken = decisions(step);
  const { phase, level } = position;
  /** @type {Kinds} */
  const kinds = {};
  const ended = phase === "accept" && (level ?? Infinity) >= taken.length;
  const all = ended || reached(position, "commit");
  const decided = phase === "accept" ? taken.slice(0, level ?? 0) : [];
  const known = new Set(decided.flatMap(decision => decision.candidates));
  const drafted = growth(step);
  step.nodes.forEach((record, node) => {
    kinds[node] = record.verdict;
    if (all) return;
    if (!known.has(node) && record.verdict !== "root") kinds[node] = "drafted";
    if (phase === "draft" && level !== null && drafted[node] > level) kinds[node] = null;
  });
  kinds[OWN] = step.bonus !== null && all ? ownKind(step) : null;
  return kinds;
}

/**
 * The nodes that this position adds or judges.
 * @param {Step} step
 * @param {Position} position
 * @returns {Set<number>}
 */
export function fresh(step, position) {
  const { phase, level } = position;
  if (level === null) return new Set();
  if (phase === "accept")
    return new Set(
      decisions(step)
        .slice(level - 1, level)
        .flatMap(one => one.candidates)
    );
  return new Set(
    growth(step).flatMap((drafted, node) => (drafted === level && node ? [node] : []))
  );
}

/**
 * The drafting events so far: a level's decisions come with the level that they made, pruning comes
 * last.
 * @param {Step} step
 * @param {Position} position
 */
export function eventsUntil(step, { phase, level }) {
  const drafted = growth(step);
  if (phase !== "draft" || level === null || level >= Math.max(...drafted)) return step.events;
  return step.events.filter(({ kind, node }) => {
    if (kind === "prune") return false;
    return node === null || drafted[node] < level + Number(kind === "pop");
  });
}

/** The findings of a check at a node. @param {Step} step @param {number | null} node */
export function findingsAt(step, node) {
  return step.findings.filter(finding => finding.node === node);
}
