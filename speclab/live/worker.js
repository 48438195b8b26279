// The lab of one tab: answers what the page asks a kernel (`Message` of types.d.ts), one command after
// another; Stop is heard between products.
// Begins with BASE, the folder's address; QUERY, the page's; SHOWN, whether that names a run; and LAB, what export.py wrote:
// catalog, files, configs, models, the first setup.

import { Session, traceOf } from "./decode.js";
import { Model } from "./forward.js";
import { Tokenizer } from "./tokenizer.js";
import { arrive } from "./arrive.js";

class Refusal extends Error {}

const DECODES = /^(hello|step|run|redo|verify)$/; // commands that take a while
const FROM_FILE =
  "This run was opened from a file or a link: Step at its end begins a text of your own.";
const PAUSE = 50; // milliseconds of work between two looks at the messages
/** @type {Lab} */
const lab = {
  wanted: LAB.wanted,
  applied: null,
  models: null,
  session: null,
  cursor: 0,
  number: 0,
  edits: [],
  busy: false,
  stopped: false,
  rested: 0
};
let queue = Promise.resolve();

/** @param {string} type @param {Values} fields */
const post = (type, fields) => postMessage({ type, ...fields });
/** @param {string} name */
const nameOf = name => name.replaceAll("_", " ");
/** @param {Wanted} wanted @returns {Settings} */
const settingsOf = ({ strategy: { name, settings } }) => ({ strategy: name, ...settings });
const stepShown = () => {
  if (!lab.session) throw new Refusal(FROM_FILE);
  return lab.session.steps[lab.cursor - 1];
};

async function breathe() {
  if (performance.now() - lab.rested < PAUSE) return;
  await new Promise(done => setTimeout(done));
  lab.rested = performance.now();
  if (lab.stopped) throw new Refusal("Stopped.");
}

/** The changes that the next Step applies, in words. */
function pending() {
  if (!lab.applied) return [];
  /** @param {Wanted} form @returns {Values} */
  const flat = form => ({
    prompt: form.prompt,
    length: form.session.max_new_tokens,
    ...settingsOf(form)
  });
  const before = flat(lab.applied);
  const after = flat(lab.wanted);
  return Object.keys(after)
    .filter(name => name in before && before[name] !== after[name])
    .map(name => `${nameOf(name)} → ${after[name]}`);
}

/** Whether Step begins a new text: another prompt, or the text shown has ended. */
function startsOver() {
  const { session, wanted, applied, cursor } = lab;
  const longer =
    session.finished === "max_new_tokens" && wanted.session.max_new_tokens > session.most;
  const ended = session.finished && cursor === session.steps.length;
  return applied.prompt !== wanted.prompt || (ended && !longer);
}

/** @param {Record<string, any>} more */
function status(more = {}) {
  const { session, wanted, applied, edits } = lab;
  const changes = pending();
  const error =
    session || more.busy || lab.cursor
      ? null
      : { where: "start", sentence: "Press Step to begin." };
  post("status", {
    busy: null,
    progress: null,
    message: null,
    error,
    finished: session?.finished ?? "",
    can_step: changes.length > 0 || !applied || !startsOver(),
    live: !!session,
    wanted,
    pending: changes,
    new_run: changes.length > 0 && startsOver(),
    by_hand: edits.length > 0,
    ...more
  });
}

/**
 * The bytes of a file, kept in the browser's store; checked by their number and SHA-256.
 * @param {any} file
 * @param {(bytes: number) => void} report
 */
async function fetched({ name, size, sha256 }, report) {
  // on plain http there is none, nor a digest
  const store = await globalThis.caches?.open("speclab").catch(/** @returns {null} */ () => null);
  const address = `${BASE}${name}?${sha256.slice(0, 12)}`;
  const kept = await store?.match(address);
  const bytes = new Uint8Array(size);
  let length = 0;
  /** @param {Uint8Array} part */
  const take = part => {
    if (length + part.length <= size) bytes.set(part, length);
    length += part.length;
    report(length);
  };
  if (kept) take(new Uint8Array(await kept.arrayBuffer()));
  else
    await arrive(address, { cache: store ? "reload" : "no-cache" }, take).catch(error => {
      throw new Refusal(
        `${name} did not arrive (${error.message}): reload the page, or export the folder again.`
      );
    });
  const digest = await globalThis.crypto?.subtle?.digest("SHA-256", bytes);
  if (length !== size || (digest && String(new Uint8Array(digest)) !== sha256)) {
    await store?.delete(address);
    throw new Refusal(
      `${name} was cut short or changed: reload the page, or export the folder again.`
    );
  }
  if (!kept) await store?.put(address, new Response(bytes)).catch(() => {}); // the disk is full
  return bytes.buffer;
}

async function load() {
  const total = LAB.files.reduce((sum, file) => sum + file.size, 0);
  /** @type {ArrayBuffer[]} */
  const buffers = [];
  let before = 0;
  for (const file of LAB.files) {
    /** @param {number} bytes */
    const report = bytes =>
      status({
        busy: `Fetching ${(total / 1e6).toFixed(1)} MB, once`,
        progress: (before + bytes) / total
      });
    buffers.push(await fetched(file, report));
    before += file.size;
  }
  const [target, draft] = LAB.configs.map(
    (config, index) => new Model(config, buffers[index], breathe)
  );
  return {
    target,
    draft,
    tokenizer: new Tokenizer(JSON.parse(new TextDecoder().decode(buffers[2])))
  };
}

/** Shows a session from iteration `keep` on. @param {Session} session @param {number} keep */
function show(session, keep) {
  const { steps, ...header } = traceOf(session, LAB.models);
  Object.assign(lab, { session, applied: lab.wanted, cursor: keep, edits: [] });
  sendRun(header, keep, [], keep);
}

/**
 * @param {Record<string, any>} header
 * @param {number} keep
 * @param {any[]} steps
 * @param {number} cursor
 */
function sendRun(header, keep, steps, cursor) {
  post("run", { id: ++lab.number, header: { ...header, prompt_parts: [] }, keep, steps, cursor });
}

async function begin() {
  lab.models ??= await load();
  const {
    prompt,
    session: { max_new_tokens: most }
  } = lab.wanted;
  const ids = lab.models.tokenizer.encode(prompt);
  const context = LAB.configs[0].max_position_embeddings;
  if (!(most >= 1)) throw new Refusal("The length is the number of new tokens, from 1 on.");
  if (!prompt.trim()) throw new Refusal("The prompt is empty: write a text, or choose an example.");
  if (ids.length + most > context)
    throw new Refusal(
      `The prompt has ${ids.length} tokens and the length is ${most}, more than the models' ` +
        `context of ${context}: shorten one of them.`
    );
  show(await new Session(lab.models, settingsOf(lab.wanted), ids, most).start(), 0);
}

/** The session at the cursor with all changes applied. @param {string} [start] */
async function ready(start) {
  const { session, cursor } = lab;
  if (!session || start === "start" || startsOver()) await begin();
  else if (pending().length || cursor < session.steps.length) fork(cursor);
}

/** @param {number} at */
function fork(at) {
  show(lab.session.fork(at, settingsOf(lab.wanted), lab.wanted.session.max_new_tokens), at);
}

/** @param {Draft | null} built a tree built by hand */
async function decode(built = null) {
  const step = await lab.session.step(built);
  lab.cursor = lab.session.steps.length;
  post("step", { index: step.index, step });
  return step;
}

/** The iteration shown once more, in a fork. @param {Draft | null} built */
async function again(built = null) {
  const step = stepShown();
  fork(lab.cursor - 1);
  await decode(built);
  post("pinned", { step });
}

/** A strategy within its bounds. @param {{name: string, settings: Settings}} given */
function strategyOf({ name, settings }) {
  const {
    schema,
    ascending,
    settings: defaults
  } = LAB.catalog.strategies.find(one => one.name === name);
  const { strategy } = lab.wanted;
  const all = { ...defaults, ...(strategy.name === name ? strategy.settings : {}), ...settings };
  for (const [field, { minimum: low, maximum: high }] of Object.entries(schema.properties))
    if (all[field] < low || all[field] > high)
      throw new Refusal(`${nameOf(field)} is ${low} to ${high}, not ${all[field]}.`);
  for (const [low, high] of ascending)
    if (all[low] > all[high])
      throw new Refusal(
        `${nameOf(low)} (${all[low]}) is above ${nameOf(high)} (${all[high]}): ` +
          "lower the first or raise the second."
      );
  return { name, settings: all };
}

/**
 * The rows of the edited tree, at first those of the iteration shown; `recorded`: the same node of
 * the iteration.
 * @returns {EditedRow[]}
 */
function edited() {
  const { tree } = stepShown();
  return (
    lab.edits.at(-1) ??
    tree.token.map((token, row) => ({
      token,
      parent: tree.parent[row],
      log_prob: tree.log_prob[row],
      source: tree.source[row],
      recorded: row
    }))
  );
}

/** @param {keyof EditedRow} name @returns {any[]} */
function column(name) {
  return edited().map(row => row[name]);
}

/** @returns {Columns} */
function editedTree() {
  return {
    token: column("token"),
    parent: column("parent"),
    log_prob: column("log_prob"),
    source: column("source"),
    candidate_sampling: "deterministic"
  };
}

/**
 * Shows an edit in breadth-first order; without rows the last one is undone.
 * @param {EditedRow[]} [rows]
 */
function edit(rows) {
  if (rows) {
    const order = [0];
    for (const node of order)
      rows.forEach((row, child) => {
        if (row.parent === node) order.push(child);
      });
    lab.edits.push(
      order.map(node => ({ ...rows[node], parent: order.indexOf(rows[node].parent) }))
    );
  } else lab.edits.pop();
  const tree = editedTree();
  /** @type {WhatIf} */
  const what_if = {
    tree,
    recorded: column("recorded"),
    accepted: null,
    bonus: null,
    unknown: [],
    settled: false,
    texts: lab.models.tokenizer.texts(tree.token),
    by: "hand"
  };
  post("preview", { index: lab.cursor - 1, what_if: lab.edits.length ? what_if : null });
}

/** One token from what was typed: `#17`, or a text as displayed. @param {string} typed */
function typedToken(typed) {
  const { tokenizer } = lab.models;
  /** @type {number[]} */
  const ids = /^#\d+$/.test(typed)
    ? [+typed.slice(1)]
    : tokenizer.encode(typed.replaceAll("␣", " "));
  if (ids.length === 1 && ids[0] < tokenizer.pieces.length) return ids[0];
  throw new Refusal(
    ids.length > 1
      ? `“${typed}” is ${ids.length} tokens: add one after the other.`
      : `There is no token ${typed}.`
  );
}

/** What a link asks for: `?prompt=…&strategy=FixedTree&depth=3&length=40`. */
function asked() {
  const {
    prompt = lab.wanted.prompt,
    strategy: name = lab.wanted.strategy.name,
    length,
    ...given
  } = Object.fromEntries(new URLSearchParams(QUERY));
  const known = LAB.catalog.strategies.find(one => one.name === name);
  if (!known)
    throw new Refusal(
      `The link names ${name}, which needs a lab with a kernel: press Step to begin without it.`
    );
  /** @type {Values} */
  const settings = {};
  for (const [field, value] of Object.entries(given))
    if (field in known.schema.properties) settings[field] = Number(value);
  return {
    prompt,
    strategy: { name, settings },
    session: +length ? { max_new_tokens: +length } : {}
  };
}

/** @type {Record<string, (step: Step, value: any) => boolean>} */
const HOLDS = {
  end: () => false,
  accepts_fewer: (step, value) => step.accepted.length < value,
  nodes_more: (step, value) => step.nodes.length > value,
  token: (step, value) =>
    step.committed
      .map(token => step.texts[token])
      .join("")
      .includes(value)
};

/**
 * By the page's message; what the status says then.
 * @type {Record<string, (fields: any) => any>}
 */
const COMMANDS = {
  async hello() {
    post("catalog", LAB.catalog);
    COMMANDS.want(asked());
    if (!SHOWN) await COMMANDS.step({});
  },
  async step({ start }) {
    await ready(start);
    await decode();
  },
  async run({ until: { kind, value } }) {
    await ready();
    while (!lab.session.finished)
      if (HOLDS[kind](await decode(), value)) return { message: "Stopped: the condition holds." };
    return undefined;
  },
  want({ strategy, session, ...prompt }) {
    const { wanted } = lab;
    lab.wanted = {
      ...wanted,
      ...prompt,
      session: { ...wanted.session, ...session },
      strategy: strategy ? strategyOf(strategy) : wanted.strategy
    };
  },
  reset() {
    lab.wanted = lab.applied ?? lab.wanted;
  },
  redo: () => again(),
  add({ node, token, text }) {
    const rows = edited();
    const id = token ?? typedToken(text);
    if (rows.some(row => row.parent === node && row.token === id))
      throw new Refusal("That child is there already: add another.");
    const prob =
      stepShown().nodes[rows[node].recorded]?.draft_top.find(([one]) => one === id)?.[1] ?? 1;
    edit([
      ...rows,
      { token: id, parent: node, log_prob: Math.log(prob), source: "hand", recorded: null }
    ]);
  },
  prune({ node }) {
    const gone = [node];
    if (!node)
      throw new Refusal("Node 0 is the root, the newest token of the text: it cannot be pruned.");
    const rows = edited();
    rows.forEach((row, index) => {
      if (gone.includes(row.parent)) gone.push(index);
    });
    edit(rows.map((row, index) => (gone.includes(index) ? { ...row, parent: NaN } : row)));
  },
  undo: () => edit(),
  verify() {
    const { nodes } = stepShown();
    const tops = new Map(
      column("recorded").map((same, node) => [node, nodes[same]?.draft_top ?? []])
    );
    return again({ tree: editedTree(), tops });
  },
  open({ name }) {
    Object.assign(lab, { session: null, applied: null, cursor: 1, edits: [] });
    return { message: `${name}. ${FROM_FILE}` };
  },
  async save() {
    stepShown();
    const text = new Blob([JSON.stringify(traceOf(lab.session, LAB.models))]);
    const blob = await new Response(
      text.stream().pipeThrough(new CompressionStream("gzip"))
    ).blob();
    post("file", {
      name: "run.json.gz",
      mime: "application/gzip",
      data: new FileReaderSync().readAsDataURL(blob).split(",")[1]
    });
  }
};

/** @param {any} message */
async function perform({ do: name, ...fields }) {
  Object.assign(lab, { busy: true, stopped: false });
  if (DECODES.test(name)) status({ busy: "Decoding" });
  try {
    status(await COMMANDS[name](fields));
  } catch (error) {
    if (!(error instanceof Refusal)) console.error(error);
    const where = lab.session || lab.cursor ? Object.keys(fields)[0] : "start"; // beside the field that was sent
    status(
      lab.stopped ? { message: error.message } : { error: { where, sentence: error.message } }
    );
  }
  lab.busy = false;
}

onmessage = ({ data }) => {
  if (data.do === "ping") post("pong", {});
  else if (data.do === "stop") lab.stopped = true;
  else if (data.do !== "shown") queue = COMMANDS[data.do] ? queue.then(() => perform(data)) : queue;
  else if (!lab.busy && data.cursor !== lab.cursor) {
    Object.assign(lab, { cursor: data.cursor, edits: [] });
    status();
  }
};
