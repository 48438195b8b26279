// How a draft tree grows (DynaTree's Algorithm 1, and EAGLE-2's rule), and what the target accepts
// of it.
// As drafters/grow.py; reads shapeOf of views/page/phases.js.

import { shapeOf } from "../views/page/phases.js";

const OPEN = {
  high_confidence: 0,
  low_confidence: 0,
  base_depth: 0,
  stop_probability: 0,
  deep_probability: 0,
  prune_probability: 0,
  token_probability: 0,
  best: 0,
  names: {}
};
/**
 * By strategy: its settings as those of Algorithm 1; `names`: what the strategy calls them.
 * @type {Record<string, (s: Settings) => any>}
 */
const GROWS = {
  DynaTree: s => ({
    ...s,
    branches: [s.min_branches, (s.min_branches + s.max_branches) >> 1, s.max_branches]
  }),
  FixedTree: s => ({
    ...s,
    max_depth: s.depth,
    branches: Array(3).fill(s.branching),
    names: { max_depth: "depth" }
  }),
  LinearSpeculation: s => ({
    max_depth: s.draft_tokens,
    node_budget: s.draft_tokens + 2,
    branches: [1, 1, 1],
    token_probability: s.confidence_stop,
    names: { max_depth: "draft_tokens", token_probability: "confidence_stop" }
  }),
  DraftHead: s => ({
    max_depth: s.depth,
    node_budget: s.node_budget,
    branches: Array(3).fill(s.children),
    best: s.children,
    names: { max_depth: "depth", best: "children" }
  })
};

/**
 * The gates and branches of a strategy; null if its trees do not grow.
 * @param {Settings} settings
 * @returns {Rules | null}
 */
export function rulesOf(settings) {
  const rules = GROWS[settings.strategy];
  return rules ? { ...OPEN, ...rules(settings) } : null;
}

/** p(u), the draft's probability of the whole path. @param {Growing} tree @param {number} node */
export function pathProb(tree, node) {
  return Math.exp(tree.path[node]);
}

/**
 * The `count` most probable of some nodes, best first; parents come before their children.
 * @param {Growing} tree
 * @param {number} count
 * @param {number[]} nodes
 */
function bestOf({ path, depth }, count, nodes) {
  return [...nodes]
    .sort((a, b) => path[b] - path[a] || depth[a] - depth[b] || a - b)
    .slice(0, count);
}

/**
 * The draft tree of some rules.
 * @param {Rules} rules
 * @param {(tree: Growing, nodes: number[]) => Promise<Top[]>} nextTokens one draft pass
 * @param {number} root the newest token of the text
 * @param {number} maxDepth the end of the models' context
 */
export async function grow(rules, nextTokens, root, maxDepth) {
  const tree = { token: [root], parent: [-1], depth: [0], logProb: [0], path: [0] };
  const { token, depth } = tree;
  /** @type {NodeEvent[]} */
  const events = [];
  /** @type {Tops} */
  const tops = new Map();
  const most = rules.best ? Infinity : rules.node_budget; // EAGLE-2 applies its budget at the end
  let level = [0]; // line 11: the active frontier
  while (level.length && token.length < most) {
    // line 12
    const stops = level.map(
      node =>
        gate(rules, tree, node, maxDepth) ??
        (rules.best ? outranked(rules, tree, node, level) : null)
    );
    // each of them adds a child
    const nodes = level.filter((_, index) => !stops[index]).slice(0, most - token.length);
    const answers = nodes.length ? await nextTokens(tree, nodes) : []; // line 26, a level per pass
    const first = token.length;
    level.forEach((node, index) => {
      // line 13
      const top = answers[nodes.indexOf(node)] ?? [];
      if (token.length >= most) return events.push(stopped(rules, tree, node, "node_budget"));
      if (stops[index]) return events.push(stops[index]);
      if (!top.length) return events.push(stopped(rules, tree, node, "blank"));
      const confidence = top[0][1]; // c(u)
      const { wanted, ...decided } = branches(rules, confidence); // line 27: B(u)
      const picked = top.slice(0, Math.min(wanted, most - token.length));
      for (const [child, prob] of picked) add(tree, node, child, Math.log(prob)); // line 28
      tops.set(node, top);
      const values = {
        confidence,
        branches: wanted,
        added: picked.length,
        path_prob: pathProb(tree, node),
        level: depth[node] + 1,
        ...decided
      };
      return events.push({ kind: "expand", node, values });
    });
    level = [...token.keys()].slice(first);
  }
  for (const node of level) events.push(stopped(rules, tree, node, "node_budget"));
  return pruned(rules, tree, events, tops);
}

/** @param {Growing} tree @param {number} parent @param {number} token @param {number} logProb */
function add(tree, parent, token, logProb) {
  tree.token.push(token);
  tree.parent.push(parent);
  tree.depth.push(tree.depth[parent] + 1);
  tree.logProb.push(logProb);
  tree.path.push(tree.path[parent] + logProb);
}

/**
 * Why a node stays a leaf (lines 14 to 25); null if it may be expanded.
 * @param {Rules} rules
 * @param {Growing} tree
 * @param {number} node
 * @param {number} maxDepth
 */
function gate(rules, tree, node, maxDepth) {
  const path = pathProb(tree, node);
  const depth = tree.depth[node];
  /** @param {string} name */
  const stop = (name, more = {}) => stopped(rules, tree, node, name, more);
  if (depth >= maxDepth) return stop("context", { threshold: maxDepth });
  // lines 14 to 16: p(u) < tau
  if (path < rules.prune_probability) return stop("prune_probability");
  if (depth >= rules.max_depth) return stop("max_depth"); // lines 17 to 19: d(u) >= D_max
  // lines 20 to 22: p(u) < rho_stop
  if (path < rules.stop_probability) return stop("stop_probability");
  if (depth >= rules.base_depth && path < rules.deep_probability)
    return stop("deep_probability", { base_depth: rules.base_depth }); // lines 23 to 25
  const prob = Math.exp(tree.logProb[node]);
  return prob < rules.token_probability ? stop("token_probability", { token_prob: prob }) : null;
}

/**
 * EAGLE-2: why a node is not expanded though no gate closed: others are more probable.
 * @param {Rules} rules
 * @param {Growing} tree
 * @param {number} node
 * @param {number[]} level
 */
function outranked(rules, tree, node, level) {
  const rank = bestOf(tree, level.length, level).indexOf(node) + 1;
  if (rank > rules.best) return stopped(rules, tree, node, "best", { rank, count: level.length });
  // a child comes after its parent
  const mayExpand = bestOf(tree, rules.node_budget - 1, [...tree.token.keys()]);
  return mayExpand.includes(node)
    ? null
    : stopped(rules, tree, node, "node_budget", { gate: "outranked" });
}

/**
 * B(u): few children if the draft is confident, many if it is unsure (section 3.3).
 * @param {Rules} rules
 * @param {number} confidence
 * @returns {Record<string, any>}
 */
function branches({ branches: [fewest, some, most], high_confidence, low_confidence }, confidence) {
  if (fewest === most) return { wanted: most, rule: "fixed" };
  const bounds = { high_confidence, low_confidence };
  if (confidence >= high_confidence)
    return { wanted: fewest, rule: "high", setting: "high_confidence", ...bounds };
  if (confidence < low_confidence)
    return { wanted: most, rule: "low", setting: "low_confidence", ...bounds };
  return { wanted: some, rule: "middle", ...bounds };
}

/**
 * The event of a node without children.
 * @param {Rules} rules
 * @param {Growing} tree
 * @param {number} node
 * @param {string} closed
 * @param {Record<string, any>} more
 */
function stopped(rules, tree, node, closed, more = {}) {
  const setting =
    closed in rules ? { setting: rules.names[closed] ?? closed, threshold: rules[closed] } : {};
  return {
    kind: "stop",
    node,
    values: {
      gate: closed,
      path_prob: pathProb(tree, node),
      level: tree.depth[node],
      ...setting,
      ...more
    }
  };
}

/**
 * The nodes that are verified, with "prune" events for the others. `numbers`: of each node while
 * the tree grew.
 * @param {Rules} rules
 * @param {Growing} tree
 * @param {NodeEvent[]} events
 * @param {Tops} tops
 */
function pruned(rules, tree, events, tops) {
  const { token, parent, logProb } = tree;
  const all = [...token.keys()];
  const numbers = rules.best
    ? bestOf(tree, rules.node_budget, all).sort((a, b) => a - b)
    : all.filter(node => !node || pathProb(tree, node) >= rules.prune_probability);
  /** @param {number} node */
  const index = node => numbers.indexOf(node);
  const kept = events
    .filter(event => numbers.includes(event.node))
    .map(event => ({ ...event, node: index(event.node) }));
  const least = Math.min(...numbers.map(node => pathProb(tree, node)));
  numbers.forEach((above, node) => {
    const gone = all.filter(child => parent[child] === above && !numbers.includes(child));
    for (const child of rules.best ? gone.slice(0, 1) : gone) {
      // EAGLE-2 drops hundreds: one event per parent
      const why = rules.best
        ? {
            by: "best",
            setting: "node_budget",
            kept: numbers.length,
            dropped: gone.length,
            least_kept: least
          }
        : { setting: "prune_probability", threshold: rules.prune_probability };
      kept.push({
        kind: "prune",
        node,
        values: { token: token[child], path_prob: pathProb(tree, child), ...why }
      });
    }
  });
  /** @type {Columns} */
  const columns = {
    token: numbers.map(node => token[node]),
    parent: numbers.map(node => index(parent[node])),
    log_prob: numbers.map(node => logProb[node]),
    source: numbers.map(node => (node ? "draft" : "target")),
    candidate_sampling: "deterministic"
  };
  return {
    tree: columns,
    events: kept,
    tops: new Map(numbers.flatMap((node, row) => (tops.has(node) ? [[row, tops.get(node)]] : []))),
    numbers
  };
}

/**
 * The path that the target agrees with, and its own token after it.
 * @param {Columns} tree
 * @param {(node: number) => number} choose the target's token after a node
 * @returns {{accepted: number[], bonus: number}}
 */
export function accept(tree, choose) {
  const path = [0];
  for (;;) {
    const bonus = choose(path.at(-1));
    const next = shapeOf(tree).children[path.at(-1)].find(child => tree.token[child] === bonus);
    if (next === undefined) return { accepted: path.slice(1), bonus };
    path.push(next);
  }
}
