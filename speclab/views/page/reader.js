// Reads a run that somebody else has written, in a file, at an address or in a link. What is refused
// is said in one sentence, as Python says it (trace/files.py).

import RECORDS from "../records.json" with { type: "json" };

const VERSION = 3; // of a trace
const MOST_BYTES = 64 << 20; // that a file may unpack to
const MOST_LOG_PROB = 1e-3;
/** @type {Record<string, [(value: any) => boolean, string]>} */
const TYPES = {
  integer: [Number.isInteger, "a valid integer"],
  number: [Number.isFinite, "a valid number"],
  string: [value => typeof value === "string", "a valid string"],
  boolean: [value => typeof value === "boolean", "a valid boolean"],
  null: [value => value === null, "None"],
  array: [Array.isArray, "a valid tuple"],
  object: [isObject, "a valid dictionary"]
};
/** @type {[string, (value: number, bound: number) => boolean, string][]} */
const BOUNDS = [
  ["minimum", (value, bound) => value >= bound, "greater than or equal to"],
  ["maximum", (value, bound) => value <= bound, "less than or equal to"],
  ["exclusiveMaximum", (value, bound) => value < bound, "less than"]
];

const NOTHING = { enum: /** @type {any[]} */ ([]) };

/** A run that is refused; its message is a sentence. */
export class Refused extends Error {}

/** @param {any} value */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * What is wrong with a value: its place and why; empty if nothing is. What is left out gets its default.
 * @param {any} value
 * @param {any} schema JSON schema
 * @param {Values} records its definitions
 * @param {string[]} place
 * @returns {string}
 */
export function wrongField(value, schema, records = schema.$defs, place = []) {
  if (schema.$ref) return wrongField(value, records[schema.$ref.split("/").pop()], records, place);
  if (schema.anyOf) {
    const reasons = schema.anyOf.map((/** @type {any} */ one) =>
      wrongField(value, one, records, place)
    );
    return reasons.every(Boolean) ? reasons[0] : "";
  }
  const reason = schema === NOTHING ? "Unexpected keyword argument" : wrongValue(value, schema);
  if (reason) return `${place.join(".") || "the file"}: ${reason}`;
  for (const [name, part] of fieldsOf(value, schema)) {
    const inside = wrongField(value[name], part, records, [...place, name]);
    if (inside) return inside;
  }
  return "";
}

/** All digits of a number. @param {number} value */
function exact(value) {
  return Number.isInteger(value) ? BigInt(value) : value;
}

/** Why a value itself is wrong, whatever it contains. @param {any} value @param {any} schema */
function wrongValue(value, schema) {
  if (value === undefined) return "Field required";
  const { type, title, properties, minItems, maxItems, enum: choices } = schema;
  if (choices && !choices.includes(value)) {
    const names = choices.map((/** @type {any} */ one) => `'${one}'`);
    return `Input should be ${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
  }
  if (!type) return "";
  const [fits, words] = TYPES[type];
  if (!fits(value))
    return `Input should be ${properties ? `a dictionary or an instance of ${title}` : words}`;
  if (type === "array" && value.length > (maxItems ?? Infinity))
    return `Tuple should have at most ${maxItems} items after validation, not ${value.length}`;
  if (type === "array" && !schema.prefixItems && value.length < (minItems ?? 0))
    return `Tuple should have at least ${minItems} items after validation, not ${value.length}`;
  if (schema.pattern && !RegExp(schema.pattern).test(value))
    return `String should match pattern '${schema.pattern}'`;
  for (const [name, holds, bound] of BOUNDS)
    if (name in schema && !holds(value, schema[name]))
      return `Input should be ${bound} ${exact(schema[name])}`;
  return "";
}

/**
 * What a value contains: names and schemas.
 * @param {any} value
 * @param {any} schema
 * @returns {[string, any][]}
 */
function fieldsOf(value, { type, properties = {}, prefixItems, items, ...schema }) {
  if (prefixItems)
    return prefixItems.map((/** @type {any} */ part, /** @type {number} */ at) => [`${at}`, part]);
  if (type === "array") return items ? Object.keys(value).map(at => [at, items]) : [];
  if (type !== "object") return [];
  for (const [name, part] of Object.entries(properties))
    if (!(name in value) && "default" in part) value[name] = part.default;
  const optional = Object.keys(properties).filter(name => !schema.required?.includes(name));
  const absent = optional.filter(name => !(name in value));
  const parts = Object.entries(properties).filter(([name]) => !absent.includes(name));
  const { additionalProperties: others, propertyNames: keys } = schema;
  for (const name of Object.keys(value)) {
    if (name in properties) continue;
    if (others === false) parts.push([name, NOTHING]);
    else if (others) parts.push([name, keys && !/^\d+$/.test(name) ? keys : others]);
  }
  return parts;
}

/**
 * A run from the JSON of a trace.
 * @param {any} raw
 * @param {string} name of the file, for what is refused
 * @returns {{header: Header, steps: Step[]}}
 */
export function readRun(raw, name) {
  const version = isObject(raw) ? raw.version : undefined;
  if (Number.isInteger(version) && version !== VERSION) {
    const wayOut = version > VERSION ? "upgrade speclab" : "decode it again";
    throw new Refused(
      `${name} has trace format ${exact(version)}, and this speclab reads format ${VERSION}: ${wayOut}`
    );
  }
  const wrong = wrongField(raw, RECORDS) || wrongSteps(raw.steps);
  if (wrong)
    throw new Refused(
      `${name} is not a speclab trace of format ${VERSION}: ${wrong}; save it again`
    );
  const { steps, ...header } = raw;
  return { header: { ...header, prompt_parts: [] }, steps };
}

/** What does not fit its tree. @param {Step[]} steps */
function wrongSteps(steps) {
  for (const [number, step] of steps.entries()) {
    if (step.index !== number) return `steps.${number}.index must be ${number}`;
    const tree =
      wrongTree(step.tree) || step.proposals.map(one => wrongTree(one.tree)).find(Boolean);
    if (tree) return `steps.${number}.tree: Value error, ${tree}`;
    if (!isSquare(step.mask))
      return `steps.${number}.mask: Value error, must be square: one hexadecimal text per row, one bit per column`;
    const field = misfit(step);
    if (field) return `steps.${number}.${field} does not fit its tree`;
  }
  return "";
}

/** @param {any} mask */
function isSquare(mask) {
  if (!Array.isArray(mask)) return false;
  const width = 2 * Math.ceil(mask.length / 8);
  return mask.length > 0 && mask.every(row => row?.length === width && /^[0-9a-f]*$/i.test(row));
}

/** Why columns are no draft tree (tree.py). @param {Columns} tree */
function wrongTree({ token, parent, log_prob, source }) {
  const n = token.length;
  if (log_prob.some(value => value !== "-inf" && !(Number(value) <= MOST_LOG_PROB)))
    return "has a log-probability that is above 0 or not a number";
  if (!n || [parent, log_prob, source].some(column => column.length !== n))
    return "a draft tree needs at least a root, and columns of one length";
  const [root, ...others] = parent;
  if (root !== -1 || others.some((above, index) => above < 0 || above > index))
    return "node 0 of a draft tree must be its only root, and parents come before their children";
  if (others.some((above, index) => index && above < others[index - 1]))
    return "the nodes of a draft tree must be in breadth-first order";
  return "";
}

/** The field that does not fit the tree of its iteration. @param {Step} step */
function misfit(step) {
  const n = step.tree.token.length;
  const rows = n + step.extra.length;
  const lengths = { nodes: step.nodes, mask: step.mask, prefix_seen: step.prefix_seen };
  for (const [name, values] of Object.entries(lengths)) if (values.length !== n) return name;
  if (![0, n].includes(step.gaps.length)) return "gaps";
  const numbers = {
    accepted: step.accepted,
    nodes: step.nodes.map(node => node.index),
    events: step.events.map(event => event.node ?? 0),
    trials: step.trials.map(trial => trial.node),
    residual: [step.residual?.node ?? 0]
  };
  for (const [name, nodes] of Object.entries(numbers))
    if (nodes.some(node => node >= n)) return name;
  return step.extra.some(row => row.sees.some(other => other >= rows)) ? "extra" : "";
}

/**
 * A run from the bytes of a saved file.
 * @param {Blob} packed
 * @param {string} name
 */
export async function readFile(packed, name) {
  const [first, second] = new Uint8Array(await packed.slice(0, 2).arrayBuffer());
  if (first !== 0x1f || second !== 0x8b)
    throw new Refused(`${name} is not a trace: it is not gzipped; save one with trace.save()`);
  const damaged = `${name} is cut short or damaged; save the trace again`;
  const large =
    `${name} unpacks to more than ${MOST_BYTES.toLocaleString("en")} bytes: open it in Python with ` +
    `speclab.load_trace(path, max_bytes=${4 * MOST_BYTES})`;
  const text = await unpackedWithin(packed, "gzip", MOST_BYTES, damaged, large);
  return readRun(
    parsedJson(text, `${name} is not a speclab trace: it is not JSON; save it again`),
    name
  );
}

/** @param {string} text @param {string} sentence if it is no JSON */
export function parsedJson(text, sentence) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Refused(sentence);
  }
}

/**
 * The text of packed bytes; refused as soon as it is longer than `most` bytes.
 * @param {Blob} packed
 * @param {CompressionFormat} format
 * @param {number} most
 * @param {string} damaged what is said then
 * @param {string} large
 */
export async function unpackedWithin(packed, format, most, damaged, large) {
  const reader = packed.stream().pipeThrough(new DecompressionStream(format)).getReader();
  const parts = [];
  let length = 0;
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      length += part.value.length;
      if (length > most) break;
      parts.push(part.value);
    }
  } catch {
    throw new Refused(damaged);
  }
  if (length > most) {
    reader.cancel().catch(() => {});
    throw new Refused(large);
  }
  return new Blob(parts).text();
}

let openedRuns = 0;

/**
 * Shows a run that was read on a page without a kernel.
 * @param {Context} context
 * @param {{header: Header, steps: Step[]}} run
 * @param {string} name what was opened
 */
export function openRun({ dispatch, send }, { header, steps }, name) {
  openedRuns -= 1; // runs that are decoded have numbers from 0 on
  dispatch({ type: "status", error: null, message: `${name}.` });
  dispatch({
    type: "run",
    id: openedRuns,
    header,
    keep: 0,
    steps,
    cursor: Math.min(1, steps.length)
  });
  send({ do: "open", name, data: "" });
}

/** Says why a run is refused; what was shown stays. @param {Context} context @param {Error} error */
export function refuse({ state, dispatch }, { message }) {
  const where = state().header ? "page" : "start";
  dispatch({ type: "status", busy: null, error: { where, sentence: message } });
}
