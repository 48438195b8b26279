// Version 1 of a link: iterations as compact JSON, and back to a run as a trace file has it.
// docs/link.md describes it, link.schema.json has its types.

import { namesOf } from "../../views/page/draw.js";
import { lastOnPath, shapeOf, verifiedRoot } from "../../views/page/phases.js";
import { wrongField } from "../../views/page/reader.js";
import SCHEMA from "./link.schema.json" with { type: "json" };

const FORMAT = 3; // of a trace
const MOST_NODES = 1024;
const SEPARATORS = "|~^¦§¶•";
const UNKNOWN = -1;
const NOT_RECORDED = 1295; // zz
const FAINTEST = 0.0005; // a drafted token with 000 of a thousand
const NOT_CARRIED = ["caches", "draft_top", "entropy", "events", "residual", "seconds"];
/** @type {Record<string, string>} */
const LETTERS = { root: "o", accepted: "a", rejected: "r", "not reached": "n" };
/** @type {Record<string, any>} */
const AS_WRITTEN = {
  note: "",
  rule: "greedy",
  trials: [],
  paths: [],
  position: [],
  hidden_prefix: [],
  rows: [],
  not_numbers: [],
  request: "",
  batch: "",
  findings: [],
  mask: null,
  prefix_seen: null
}; // fields that a link has as a trace writes them, where they are not this

const VERDICTS = Object.fromEntries(
  Object.entries(LETTERS).map(([name, letter]) => [letter, name])
);

class Wrong extends Error {}

// ---- what follows from the tree and the target's choices

/** Which child has the choice, from 1; 0: none; -1: it is not recorded.
 *  @param {Step} step @param {number} node */
function rankOf(step, node) {
  const choice = step.nodes[node].target_choice;
  if (choice === UNKNOWN) return UNKNOWN;
  return (
    1 + shapeOf(step.tree).children[node].findIndex(child => step.nodes[child].token === choice)
  );
}

/** Whether a node is the child that has its parent's choice. @param {Matched} match @param {number} node */
function isNamed({ parent, children, ranks }, node) {
  const above = parent[node];
  return children[above]?.[ranks[above] - 1] === node;
}

/** The accepted nodes, as long as the choice is a child. @param {Matched} match */
function pathOf({ children, ranks, drafted, same, ended }) {
  if (drafted && !same) return [];
  const path = [0];
  for (let node = 0; ranks[node] > 0; path.push(node)) node = children[node][ranks[node] - 1];
  return path.slice(drafted ? 0 : 1).slice(0, ended ?? path.length);
}

/**
 * A node below the path is rejected, unless the choice names it: then the text ended before.
 * @param {Matched} match
 * @param {number[]} accepted
 * @returns {string[]}
 */
function verdictsOf(match, accepted) {
  const { parent, drafted, same } = match;
  const path = drafted ? accepted : [0, ...accepted];
  return parent.map((above, node) => {
    if (accepted.includes(node)) return "accepted";
    if (!node && !drafted) return "root";
    const reached = node ? path.includes(above) && !isNamed(match, node) : !same;
    return reached ? "rejected" : "not reached";
  });
}

// ---- writing

/**
 * Probabilities in thousandths, each as two digits to the base 36; "zz" is one that is not recorded.
 * @param {(number | null)[]} probs
 */
function digitsOf(probs) {
  const numbers = probs.map(prob => (prob === null ? NOT_RECORDED : Math.round(1000 * prob)));
  return numbers.map(number => number.toString(36).padStart(2, "0")).join("");
}

/** A record with its numbers to three digits. @param {any} value @returns {any} */
function rounded(value) {
  /** @param {string} _ @param {any} part */
  const short = (_, part) => (typeof part === "number" ? Number(part.toPrecision(3)) : part);
  return JSON.parse(JSON.stringify(value, short));
}

/** Without the zeros at its end. @param {number[]} values */
function trimmed(values) {
  return values.slice(0, 1 + values.findLastIndex(value => value !== 0));
}

/** Characters for each row of an iteration, for each token of a run, and the least. */
const ROOM = { row: 28, iteration: 455, token: 56, run: 3400 };
/** What a link carries: token ids, the target's probabilities, characters of the text before. What
 *  comes later is for those that would be long.
 *  @type {Record<string, [ids: boolean, target: boolean, text: number][]>} */
const FULLNESS = {
  iteration: [
    [true, true, 80],
    [false, true, 80],
    [false, true, 24],
    [false, true, 0],
    [false, false, 0]
  ],
  run: [
    [true, false, 400],
    [false, false, 400],
    [false, false, 80]
  ]
};

/**
 * The JSON of a link in several lengths, and the characters from which on the next one is taken.
 * @param {Header} header
 * @param {Step[]} steps all of the run
 * @param {number} first
 * @param {number} last
 * @param {Values} defaults settings that it leaves out
 * @returns {{room: number, choices: Values[]}}
 */
export function linkChoices(header, steps, first, last, defaults) {
  const shown = steps.slice(first, last + 1);
  const alone = first === last;
  const tokens = shown.reduce((sum, step) => sum + step.committed.length, 0);
  const rows = shown[0].proposals.reduce(
    (sum, { tree }) => sum + tree.token.length,
    shown[0].nodes.length + shown[0].extra.length
  );
  const room = alone
    ? Math.max(ROOM.iteration, ROOM.row * rows)
    : Math.max(ROOM.run, ROOM.token * tokens);
  const choices = FULLNESS[alone ? "iteration" : "run"].map(([ids, target, text]) =>
    linkOf(header, steps, first, last, { ids, target, text }, defaults)
  );
  return { room, choices };
}

/**
 * Iterations of a run as the JSON of a link.
 * @param {Header} header
 * @param {Step[]} steps
 * @param {number} first
 * @param {number} last
 * @param {{ids: boolean, target: boolean, text: number}} fullness
 * @param {Values} defaults
 */
function linkOf(header, steps, first, last, fullness, defaults) {
  const shown = steps.slice(first, last + 1);
  const [start] = shown;
  /** @type {Texts} */
  const texts = Object.assign({ ...header.texts }, ...shown.map(step => step.texts));
  /** @type {number[]} */
  const ids = [];
  const t = shown.map(step => writtenStep(step, ids, fullness));
  const changed = Object.entries({ ...header.settings, ...start.settings }).filter(
    ([name, value]) => defaults[name] !== value && name !== "max_new_tokens"
  );
  const words = ids.map(id => texts[id] ?? `#${id}`);
  const separator = [...SEPARATORS].find(sign => !words.some(word => word.includes(sign)));
  const { target, draft } = namesOf(header, start);
  return {
    m: [
      header.models.target ? target : "",
      start.caches.length > 1 || header.models.drafts ? draft : ""
    ],
    s: Object.fromEntries(changed),
    f: [first, steps.length, start.prefix_length],
    b: textBefore(header, steps, first, texts, fullness.text),
    w: separator ? separator + words.join(separator) : words,
    ...(fullness.ids ? { i: ids } : {}),
    t
  };
}

/**
 * How many tokens before an iteration are left out, and the text of the others.
 * @param {Header} header
 * @param {Step[]} steps
 * @param {number} first
 * @param {Texts} texts
 * @param {number} most characters
 */
function textBefore({ prompt_ids, first_token }, steps, first, texts, most) {
  const own = first_token === null ? [] : [first_token];
  const ids = [...prompt_ids, ...own, ...steps.slice(0, first).flatMap(step => step.committed)];
  if (verifiedRoot(steps[first])) ids.pop(); // the newest token is the root of the tree
  let tail = "";
  while (ids.length) {
    const longer = (texts[ids[ids.length - 1]] ?? "") + tail;
    if (longer.length > most) break;
    tail = longer;
    ids.pop();
  }
  return [ids.length, tail];
}

/** @param {Step} step @param {number[]} ids takes its tokens, in order
 *  @param {{target: boolean}} fullness @returns {Values} */
function writtenStep(step, ids, { target }) {
  const { tree, nodes, root_choice, accepted, bonus } = step;
  const { children } = shapeOf(tree);
  const ranks = nodes.map((_, node) => rankOf(step, node));
  const drafted = root_choice !== null;
  const same = root_choice === tree.token[0];
  const ended = bonus === null ? step.committed.length : undefined;
  const match = { parent: tree.parent, children, ranks, drafted, same, ended };
  ids.push(...tree.token);
  nodes.forEach(({ target_choice }, node) => ranks[node] || ids.push(target_choice));
  if (drafted) ids.push(root_choice);
  const last = lastOnPath(step);
  const follows = last < 0 ? root_choice : nodes[last].target_choice;
  const other = bonus !== null && bonus !== follows;
  if (other) ids.push(bonus);
  const shown = drafted ? nodes : nodes.slice(1);
  const others = shown.filter(one => !isNamed(match, one.index));
  const verdicts = nodes.map(node => node.verdict);
  const letters = verdicts.map(verdict => LETTERS[verdict]).join("");
  const probs = step.missing.includes("log_prob") ? "" : digitsOf(shown.map(one => one.draft_prob));
  const plain = String(pathOf(match)) === String(accepted);
  /** @type {Values} */
  const fields = {
    k: trimmed(children.map(below => below.length)),
    c: trimmed(ranks),
    q: probs,
    o: target ? digitsOf(nodes.map(node => node.choice_prob)) : "",
    p: target ? digitsOf(others.map(one => one.target_prob)) : "",
    r: drafted,
    e: ended,
    a: plain ? undefined : accepted,
    v: String(verdictsOf(match, accepted)) === String(verdicts) ? "" : letters,
    g: other,
    ...sourcesOf(tree, drafted),
    ...restOf(step, ids)
  };
  const said = Object.entries(fields).filter(
    ([, value]) => value === 0 || (value && value.length !== 0)
  );
  return Object.fromEntries(said);
}

/** What proposed the nodes: a name, or names and for each node which. @param {Columns} tree
 *  @param {boolean} drafted @returns {Values} */
function sourcesOf({ source, candidate_sampling }, drafted) {
  const list = drafted ? source : source.slice(1);
  const names = [...new Set(list)];
  const u = names.length > 1 ? [names, list.map(name => names.indexOf(name))] : names[0];
  const z = candidate_sampling === "deterministic" ? "" : candidate_sampling;
  return { u: u === "draft" ? "" : u, z };
}

/** Rows beside the tree's, other proposed trees, and what few iterations have.
 *  @param {Step} step @param {number[]} ids @returns {Values} */
function restOf(step, ids) {
  const y = step.extra.map(({ token, target_choice, depth, sees, prefix_seen }) => {
    ids.push(token, target_choice);
    return [depth, sees, prefix_seen];
  });
  const j = step.proposals.map(({ name, tree, confidence, score, chosen }) => {
    ids.push(...tree.token);
    const { children, prob } = shapeOf(tree);
    const counts = trimmed(children.map(below => below.length));
    return [name, rounded(confidence), rounded(score), chosen, counts, digitsOf(prob.slice(1))];
  });
  const n = step.counts.target_calls === 1 ? undefined : step.counts.target_calls;
  const plain = {
    ...AS_WRITTEN,
    mask: maskOf(step.tree),
    prefix_seen: step.nodes.map(() => step.prefix_length)
  };
  const others = Object.entries(plain).filter(
    ([name, value]) => JSON.stringify(/** @type {any} */ (step)[name]) !== JSON.stringify(value)
  );
  const x = others.map(([name]) => [name, rounded(/** @type {any} */ (step)[name])]);
  return { y, j, n, x: x.length ? Object.fromEntries(x) : undefined };
}

/** The mask that a tree should have, as hexadecimal rows. @param {Columns} tree */
function maskOf({ parent }) {
  /** @type {number[][]} */
  const rows = [];
  parent.forEach((above, node) => {
    const row = above < 0 ? parent.map(() => 0) : [...rows[above]];
    row[node] = 1;
    rows.push(row);
  });
  const bytes = Array.from({ length: Math.ceil(parent.length / 8) }, (_, byte) => 8 * byte);
  /** @param {number[]} row @param {number} byte */
  const hex = (row, byte) => {
    const bits = Array.from({ length: 8 }, (_, bit) => row[byte + bit] ?? 0).join("");
    return parseInt(bits, 2).toString(16).padStart(2, "0");
  };
  return rows.map(row => bytes.map(byte => hex(row, byte)).join(""));
}

// ---- reading

/**
 * The run of a link's JSON, as a trace file has it; or in `wrong` what is wrong.
 * @param {any} data
 * @returns {{run?: Trace, wrong?: string}}
 */
export function runOfLink(data) {
  const wrong = wrongField(data, SCHEMA);
  if (wrong) return { wrong };
  try {
    return { run: linkedRun(data) };
  } catch (error) {
    if (error instanceof Wrong) return { wrong: error.message };
    throw error;
  }
}

/** @param {Values} link @returns {any} */
function linkedRun({ m, s, f, b, w, i, t }) {
  const [first, count, start] = f;
  const words = typeof w === "string" ? w.slice(1).split(w[0]) : w;
  if (i && i.length !== words.length) throw new Wrong("i has another length than w");
  /** @type {Record<number, string>} */
  let own = {};
  // a text that comes again is the same token
  const numbers = new Map([...new Set(words)].map((word, number) => [word, number]));
  let at = 0;
  const token = () => {
    if (at >= words.length) throw new Wrong("w has too few texts");
    const word = words[at];
    const id = i ? i[at] : numbers.get(word);
    own[id] = word;
    at += 1;
    return id;
  };
  let nodes = 0;
  let prefix = start;
  const steps = t.map((/** @type {any} */ fields, /** @type {number} */ index) => {
    for (const below of [1, ...(fields.k ?? [])]) nodes += below;
    if (nodes > MOST_NODES) throw new Wrong(`it has more than ${MOST_NODES} nodes`);
    own = {};
    const step = { ...readStep(fields, index, prefix, token), settings: s, texts: own };
    prefix += step.committed.length;
    return step;
  });
  if (at < words.length) throw new Wrong("w has too many texts");
  const texts = Object.assign({}, ...steps.map((/** @type {any} */ step) => step.texts));
  /** @type {number[]} */
  const prompt = [];
  if (b[1]) {
    prompt.push(1 + Math.max(...Object.keys(texts).map(Number)));
    texts[prompt[0]] = b[1];
  }
  const last = first + t.length;
  return {
    prompt_ids: prompt,
    first_token: steps[0].root_choice === null ? steps[0].tree.token[0] : null,
    steps,
    settings: s,
    models: { target: m[0], drafts: m[1], link: `${first + 1} to ${last} of ${count}`, cut: b[0] },
    texts,
    version: FORMAT
  };
}

/** The parents of the nodes, and the children. @param {number[]} counts */
function shapeOfCounts(counts) {
  const parent = [-1];
  counts.forEach((below, node) => {
    if (node >= parent.length) throw new Wrong("k has a node before its parent");
    for (let child = 0; child < below; child += 1) parent.push(node);
  });
  /** @type {number[][]} */
  const children = parent.map(/** @returns {number[]} */ () => []);
  parent.forEach((above, node) => above >= 0 && children[above].push(node));
  return { parent, children };
}

/** @param {any} fields @param {number} index @param {number} prefix @param {() => number} next
 *  @returns {any} */
function readStep(fields, index, prefix, next) {
  const { k = [], c = [], r = false, e, g, n = 1, x = {} } = fields;
  const { parent, children } = shapeOfCounts(k);
  const tokens = parent.map(next);
  const ranks = parent.map((_, node) => c[node] ?? 0);
  if (c.length > tokens.length || ranks.some((rank, node) => rank > children[node].length))
    throw new Wrong(`t.${index}.c does not fit its tree`);
  const choices = ranks.map((rank, node) => {
    if (rank < 0) return UNKNOWN;
    return rank ? tokens[children[node][rank - 1]] : next();
  });
  const root_choice = r ? next() : null;
  const match = { parent, children, ranks, drafted: r, same: root_choice === tokens[0], ended: e };
  const accepted = fields.a ?? pathOf(match);
  if (accepted.some((/** @type {number} */ node) => node >= tokens.length))
    throw new Wrong(`t.${index}.a does not fit its tree`);
  const tree = readTree(fields, tokens, parent);
  const last = accepted.at(-1) ?? (r ? -1 : 0);
  const follows = last < 0 ? root_choice : choices[last];
  const bonus = g ? next() : follows;
  const path = accepted
    .slice(0, e ?? accepted.length)
    .map((/** @type {number} */ node) => tokens[node]);
  const committed = e === undefined ? [...path, bonus] : path;
  const nodes = readNodes(fields, match, tree, choices, accepted, prefix);
  const step = {
    ...AS_WRITTEN,
    index,
    prefix_length: prefix,
    tree,
    nodes,
    accepted,
    committed,
    bonus: e === undefined ? bonus : null,
    root_choice,
    events: [],
    caches: [],
    seconds: {},
    adaptation: {},
    counts: countsOfStep(tree, r, accepted, committed, n),
    mask: maskOf(tree),
    prefix_seen: parent.map(() => prefix),
    missing: [...NOT_CARRIED, ...absent(fields)],
    ...x
  };
  return { ...step, extra: readRows(fields, next), proposals: readProposals(fields, next) };
}

/** The columns of a link that say nothing about their nodes. @param {any} fields */
function absent({ q, o }) {
  return [...(q ? [] : ["log_prob"]), ...(o ? [] : ["choice_prob", "target_prob"])];
}

/** Probabilities from their digits. @param {string} digits @returns {(number | null)[]} */
function probsOf(digits) {
  const numbers = (digits.match(/../g) ?? []).map(two => parseInt(two, 36));
  return numbers.map(number => (number === NOT_RECORDED ? null : number / 1000));
}

/** A value for each node; if there are any there are as many as nodes.
 *  @param {any[] | undefined} values @param {number} count @param {string} name */
function column(values, count, name) {
  if (values && values.length !== count) throw new Wrong(`${name} does not fit its tree`);
  return values ?? Array.from({ length: count }, /** @returns {any} */ () => null);
}

/** @param {any} fields @param {number[]} token @param {number[]} parent @returns {any} */
function readTree({ q, r, u = "draft", z = "deterministic" }, token, parent) {
  const root = r ? [] : [0];
  const probs = column(q && probsOf(q), token.length - root.length, "q");
  const drafted = probs.map(prob => (prob === null ? 0 : Math.log(Math.max(prob, FAINTEST))));
  const [names, which] = typeof u === "string" ? [[u], drafted.map(() => 0)] : u;
  const sources = column(which, drafted.length, "u").map(number => names[number] ?? "");
  return {
    token,
    parent,
    log_prob: [...root, ...drafted],
    source: [...root.map(() => "target"), ...sources],
    candidate_sampling: z
  };
}

/**
 * @param {any} fields
 * @param {Matched} match
 * @param {Columns} tree
 * @param {number[]} choices
 * @param {number[]} accepted
 * @param {number} prefix
 */
function readNodes({ o, p = "", v }, match, tree, choices, accepted, prefix) {
  const { prob, pathProb } = shapeOf(tree);
  const after = column(o && probsOf(o), tree.token.length, "o");
  const derived = verdictsOf(match, accepted);
  const verdicts = v ? [...v].map(letter => VERDICTS[letter]) : derived;
  column(verdicts, tree.token.length, "v");
  const others = probsOf(p);
  return tree.token.map((token, index) => {
    let target_prob = null;
    if (o && isNamed(match, index)) target_prob = after[tree.parent[index]];
    else if (o && (index || match.drafted)) target_prob = others.shift() ?? null;
    return {
      index,
      token,
      draft_prob: prob[index],
      path_prob: pathProb[index],
      target_prob,
      target_choice: choices[index],
      verdict: verdicts[index],
      kv_slot: prefix + index,
      entropy: 0,
      choice_prob: after[index],
      target_top: after[index] === null ? [] : [[choices[index], after[index]]],
      draft_top: /** @type {Top} */ ([])
    };
  });
}

/** @param {Columns} tree @param {boolean} drafted @param {number[]} accepted
 *  @param {number[]} committed @param {number} target_calls */
function countsOfStep(tree, drafted, accepted, committed, target_calls) {
  const own = Number(drafted);
  const { children, depth } = shapeOf(tree);
  const ended = committed.length === accepted.length;
  const last = accepted.at(-1) ?? 0;
  const judged = children[last].length > 0 || (drafted && !accepted.length);
  return {
    iterations: 1,
    committed: committed.length,
    drafted: tree.token.length - 1 + own,
    accepted: accepted.length,
    longest_path: Math.max(...depth) + own,
    target_calls,
    draft_calls: 0,
    seconds: 0,
    looked: accepted.length + Number(!ended && judged)
  };
}

/** @param {any} fields @param {() => number} next */
function readRows({ y = [] }, next) {
  return y.map((/** @type {any[]} */ [depth, sees, prefix_seen]) => {
    const token = next();
    return { token, target_choice: next(), depth, sees, prefix_seen };
  });
}

/** @param {any} fields @param {() => number} next */
function readProposals({ j = [] }, next) {
  return j.map((/** @type {any[]} */ [name, confidence, score, chosen, counts, q]) => {
    const { parent } = shapeOfCounts(counts);
    const tree = readTree({ q }, parent.map(next), parent);
    return { name, tree, confidence, score, chosen };
  });
}
