// Every sentence of the pictures: templates of words.json, filled with the numbers of a record.

import { LOOKS, WORDS } from "./data.js";
import {
  OWN,
  WHOLE,
  decisions,
  findingsAt,
  growth,
  ownKind,
  reached,
  verifiedRoot
} from "./phases.js";
import { labelOf, percent, plural, quoted } from "./text.js";

/**
 * A template of a group, filled.
 * @param {string} group
 * @param {string} name
 * @param {Record<string, any>} values
 * @param {Texts} [texts]
 */
export function words(group, name, values = {}, texts = {}) {
  return filled(WORDS[group][name], values, texts);
}

/** A template with its places filled; a value that is not recorded is `?`.
 *  @param {string} template @param {Record<string, any>} values @param {Texts} [texts] */
export function filled(template, values, texts = {}) {
  return template.replace(/\{(\w+)(?::([^}]*))?\}/g, (_, name, form) => {
    const value = values[name];
    return value == null ? "?" : formatted(value, form ?? "", texts);
  });
}

/** @param {any} value @param {string} form @param {Texts} texts @returns {string} */
export function formatted(value, form, texts) {
  if (form === "token") return quoted(value, texts);
  if (form === "label") return labelOf(value, texts);
  if (form === "percent") return percent(value);
  if (form === "name") return String(value).replaceAll("_", " ");
  if (form.startsWith("count of ")) {
    const [one, many] = form.slice(9).split("/");
    return plural(value, one, many);
  }
  if (form.endsWith("f")) return value.toFixed(Number(form.slice(1, -1)));
  if (form === "g") return String(Number(value.toPrecision(6)));
  return String(value);
}

/**
 * Why the drafter changed its settings; empty if it adapts nothing.
 * @param {{kind: string, values: object}} change
 */
export function adaptationWords(change) {
  return filled(WORDS.adapt[change.kind] ?? change.kind, change.values);
}

/**
 * A drafting decision: `2 children: confidence 0.62 between 0.40 and 0.90`.
 * @param {any} event
 * @param {Texts} [texts]
 */
export function eventWords(event, texts = {}) {
  const values = { ...event.values };
  const how = values.rule || values.gate || values.by;
  const names = [`${event.kind}.${how}.${values.route}`, `${event.kind}.${how}`, event.kind];
  const name = names.find(one => one in WORDS.event);
  if (!("added" in values)) values.added = values.branches;
  const sentence = name ? words("event", name, values, texts) : event.kind;
  return "part" in values ? filled(WORDS.part, { part: values.part, event: sentence }) : sentence;
}

/** `⚠ position`: how pictures mark a finding. @param {{kind: string}} finding */
export function markOf(finding) {
  return `${finding.kind === "tie" ? LOOKS.signs.tie : LOOKS.signs.fault} ${finding.kind}`;
}

/** @param {Step} step */
function factsOf({ index, counts, accepted, committed }) {
  const { drafted } = counts;
  return { number: index + 1, drafted, accepted: accepted.length, gained: committed.length };
}

/** How an iteration ends, as templates name it. @param {Step} step */
function endOf(step) {
  return step.bonus === null ? "ended" : ownKind(step);
}

/** `Iteration 3: 10 drafted, 2 accepted, 1 bonus: 3 tokens for one pass.` @param {Step} step */
function summary(step) {
  const values = factsOf(step);
  const sentence = words("summary", values.drafted ? endOf(step) : "plain", values);
  return `${[sentence, ...remarks(step)].join(". ")}.`;
}

/** What a check found, and the step's note. @param {Step} step @returns {string[]} */
export function remarks(step) {
  return [...new Set(step.findings.map(markOf)), ...(step.note ? [noteWords(step)] : [])];
}

/** The sentence of a step's note, or what another author wrote. @param {Step} step */
function noteWords(step) {
  const template = WORDS.note[step.note] ?? step.note;
  return filled(template, { missing: step.missing.join(", ") }).replace(/\.+$/, "");
}

/**
 * A phase of the iteration; for the whole iteration its summary.
 * @param {Step} step
 * @param {Position} position
 */
export function positionSentence(step, position = WHOLE) {
  if (position.phase === "all") return summary(step);
  const values = { number: step.index + 1, phase: position.phase };
  return words("position", "start", values) + phaseSentence(step, position);
}

/** What a phase of the iteration does, here. @param {Step} step @param {Position} position */
function phaseSentence(step, position) {
  const { phase } = position;
  if (phase === "draft") return draftSentence(step, position);
  if (phase === "accept") return acceptSentence(step, position);
  const paths = step.paths.length;
  const values = { rows: step.nodes.length, gained: step.committed.length, paths };
  return words("position", paths ? `${phase} paths` : phase, values);
}

/**
 * The iteration in three parts: drafted, checked, kept. In a phase its part says more, and no part
 * says what comes later.
 * @param {Step} step
 * @param {Position} position
 * @param {Values} names who drafts, who checks
 * @returns {{text: string, strong: boolean}[]}
 */
export function story(step, position, names) {
  const { proposals: all, counts } = step;
  const means = all.map(one => `${one.name} ${one.confidence.toFixed(2)}`).join(", ");
  const chosen = all.filter(one => one.chosen);
  const values = { ...factsOf(step), ...names, means, name: chosen[0]?.name };
  const { drafted, longest_path: longest } = counts;
  let shape = drafted === longest ? "chain" : "tree";
  if (all.length) shape = chosen.length > 1 ? "merged" : "routed";
  const whole = [shape, "pass", endOf(step)];
  const { phase } = position;
  const here = ["draft", "flatten", "accept"].findLastIndex(name => reached(position, name));
  const why = step.events.find(event => event.kind === "route" && event.values.route);
  let none = "nothing";
  if (step.extra.length) none = "nothing.rows";
  else if (why) none = "nothing.why";
  Object.assign(values, { rows: step.extra.length, why: why && eventWords(why, step.texts) });
  return (drafted ? whole : [none, "alone", "plain"]).map((name, part) => {
    if (phase === "all") return { text: words("story", name, values), strong: true };
    const strong = part === here;
    const short = words("story", ["drafted", "checked", "kept"][part], values);
    return { text: strong ? phaseSentence(step, position).replace(/\.$/, "") : short, strong };
  });
}

/** @param {Step} step @param {Position} position */
function acceptSentence(step, { level }) {
  const taken = decisions(step);
  if (!taken.length) return words("position", "undecided");
  const number = Math.min(level ?? taken.length, taken.length);
  return words("position", "accept", {
    number,
    count: taken.length,
    outcome: outcomeWords(step, taken[number - 1])
  });
}

/** @param {Step} step @param {Position} position */
function draftSentence(step, position) {
  const drafted = growth(step);
  const last = Math.max(...drafted);
  const level = position.level ?? last;
  if (!last && verifiedRoot(step)) return words("position", "nothing");
  const popped = new Map(
    step.events.filter(one => one.kind === "pop").map(one => [one.values.order, one])
  );
  if (popped.size && position.level === null) return words("position", "heap", { nodes: last });
  if (popped.has(level)) {
    const event = popped.get(level);
    const token = step.tree.token[event.node];
    return words("position", "pop", { token, event: eventWords(event) }, step.texts);
  }
  const block = step.events
    .filter(one => one.kind === "marginal")
    .map(one => rankedTokens(one, step)[0]);
  if (block.length)
    return words("position", "block", { depths: block.length, tokens: block.join(", ") });
  if (!level) return words("position", "root");
  return words("position", "level", {
    level,
    last,
    nodes: drafted.filter(one => one === level).length
  });
}

/**
 * The tokens that an event names, best first: `' the' 41 %`.
 * @param {any} event
 * @param {Step} step
 */
export function rankedTokens({ values }, step) {
  const named = ["token", "second", "third"].filter(name => name in values);
  return named.map(
    name => `${quoted(values[name] ?? 0, step.texts)} ${percent(values[`${name}_prob`] ?? 0)}`
  );
}

/** The outcome of a decision. @param {Step} step @param {Decision} decision */
function outcomeWords(step, decision) {
  let name = "bonus";
  if (decision.winner !== null) name = "winner";
  else if (decision.candidates.length) name = "rejected";
  const values = { ...decision, after: step.tree.token[decision.node] };
  return words("outcome", decision.node < 0 ? `${name}.root` : name, values, step.texts);
}

/** Why the accepted path ends. @param {Step} step */
export function ending(step) {
  const taken = decisions(step);
  const sentence = taken.length ? outcomeWords(step, taken[taken.length - 1]) : WORDS.outcome.ended;
  return sentence[0].toUpperCase() + sentence.slice(1);
}

/** What is known of a node: its draft, its verdict, what a check found, why it has children.
 *  @param {Step} step @param {NodeId} node @param {Position} position */
export function nodeSentence(step, node, position = WHOLE) {
  if (node === null) return WORDS.node.none;
  if (node === OWN) return ending(step);
  const record = step.nodes[node];
  if (!record) return WORDS.node.none;
  const known = reached(position, "verify");
  let kind = step.missing.includes("log_prob") ? "unknown" : "drafted";
  if (record.verdict === "root") kind = "root";
  if (!known) kind = kind === "drafted" ? "open" : `open.${kind}`;
  const values = {
    token: record.token,
    draft_prob: record.draft_prob,
    choice: choiceWords(step, node),
    verdict: verdictWords(step, node)
  };
  const sentences = [words("node", kind, values, step.texts)];
  if (known)
    sentences.push(...findingsAt(step, node).map(one => `${markOf(one)}: ${one.sentence}`));
  const grown = step.events.filter(event => event.node === node && event.kind !== "prune");
  for (const each of grown.map(event => eventWords(event, step.texts)))
    sentences.push(`${each[0].toUpperCase()}${each.slice(1)}.`);
  if (grown.some(({ values }) => "confidence" in values)) sentences.push(WORDS.node.confidence);
  return sentences.join(" ");
}

/**
 * The verdict of a node and why, from the numbers of the record.
 * @param {Step} step
 * @param {number} node
 */
export function verdictWords(step, node) {
  const trial = step.trials.find(one => one.node === node);
  const name = verdictName(step, node, trial);
  /** @type {Values} */
  const values = { target_prob: step.nodes[node].target_prob, ...trial };
  if (name === "rejected.root")
    values.choice = words("choice", "bare", { token: step.root_choice }, step.texts);
  else if (name === "rejected") values.choice = choiceWords(step, step.tree.parent[node]);
  return words("verdict", name, values);
}

/** @param {Step} step @param {number} node @param {Trial} [trial] */
function verdictName(step, node, trial) {
  const { verdict, target_prob } = step.nodes[node];
  const parent = step.tree.parent[node];
  if (verdict === "root") return "root";
  if (verdict !== "not reached") {
    if (trial) return `${verdict}.${trial.block === null ? "trial" : "block"}`;
    if (verdict === "accepted") return target_prob === null ? "accepted.bare" : "accepted";
    return parent >= 0 ? "rejected" : "rejected.root";
  }
  if (parent >= 0 && !["root", "accepted"].includes(step.nodes[parent].verdict))
    return target_prob === null ? "path" : "path.known";
  return step.trials.length ? "candidate" : "ended";
}

/** The target's choice after a node: `' iconic' (14 %)`. @param {Step} step @param {number} node */
function choiceWords(step, node) {
  const { target_choice, choice_prob, beyond_draft } = step.nodes[node];
  if (target_choice === -1) return WORDS.choice.unknown;
  const values = { token: target_choice, prob: choice_prob };
  const sentence = words("choice", choice_prob === null ? "bare" : "known", values, step.texts);
  return beyond_draft ? sentence + WORDS.choice.beyond : sentence;
}

/**
 * Compares the path of a node, run plainly, with the record; empty without a check.
 * @param {Step} step
 * @param {number} node
 */
export function plainSentence(step, node) {
  if (!step.plain.length) return "";
  const [token, prob] = step.plain[node].reduce((best, one) => (one[1] > best[1] ? one : best));
  const recorded = new Map(step.nodes[node].target_top).get(token);
  return words(
    "plain",
    recorded === undefined ? "alone" : "both",
    { token, prob, recorded },
    step.texts
  );
}
