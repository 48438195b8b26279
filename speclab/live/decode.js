// Greedy speculative decoding, one iteration at a time; each is a Step as a trace writes it. As
// engine/decode.py and engine/record.py.

import { shapeOf } from "../views/page/phases.js";
import { accept, grow, rulesOf } from "./grow.js";

// most probable tokens of the draft and of the target in a record
const TOP = { drafted: 8, recorded: 5 };

/** @param {Float32Array} logits @returns {Float64Array} probabilities */
function softmax(logits) {
  const most = logits.reduce((one, other) => Math.max(one, other));
  const exps = new Float64Array(logits).map(logit => Math.exp(logit - most));
  const total = exps.reduce((sum, value) => sum + value, 0);
  return exps.map(value => value / total);
}

/**
 * The most probable tokens, best first.
 * @param {Float64Array} probs
 * @param {number} count
 * @returns {Top}
 */
function topTokens(probs, count) {
  /** @type {Top} */
  const best = [];
  probs.forEach((prob, token) => {
    if (best.length === count && prob <= best[count - 1][1]) return;
    const at = best.findIndex(([, other]) => other < prob);
    best.splice(at < 0 ? best.length : at, 0, [token, prob]);
    best.length = Math.min(best.length, count);
  });
  return best;
}

/**
 * For each node, its ancestors from the root down and itself.
 * @param {Columns} tree
 * @returns {number[][]}
 */
function pathsOf(tree) {
  /** @type {number[][]} */
  const paths = [];
  tree.parent.forEach((parent, node) => paths.push([...(paths[parent] ?? []), node]));
  return paths;
}

/** One text. Steps are added, never changed; to go back, fork. */
export class Session {
  /** @type {Models} */ models;
  /** @type {Settings} */ strategy;
  /** @type {number[]} */ prompt;
  /** @type {number} */ most;
  /** @type {number[]} */ tokens;
  /** @type {Step[]} */ steps;
  /** @type {number} */ prefill;

  /**
   * @param {Models} models
   * @param {Settings} strategy
   * @param {number[]} prompt token ids
   * @param {number} most new tokens
   */
  constructor(models, strategy, prompt, most) {
    Object.assign(this, { models, strategy, prompt, most, tokens: prompt, steps: [], prefill: 0 });
  }

  /** Why the text has ended; empty if it has not. */
  get finished() {
    if (this.tokens.at(-1) === this.models.tokenizer.end.id) return "end of text";
    return this.room > 0 ? "" : "max_new_tokens";
  }

  get room() {
    return this.prompt.length + this.most - this.tokens.length;
  }

  /** Prefills the prompt and commits the first token. */
  async start() {
    const began = performance.now();
    const { target, draft } = this.models;
    target.clear();
    draft.clear();
    const [[first]] = topTokens(softmax(await target.text(this.prompt)), 1);
    this.tokens = [...this.prompt, first];
    this.prefill = (performance.now() - began) / 1000;
    return this;
  }

  /**
   * A session with the first `at` iterations of this one.
   * @param {number} at
   * @param {Settings} strategy
   * @param {number} most
   */
  fork(at, strategy = this.strategy, most = this.most) {
    const fork = new Session(this.models, strategy, this.prompt, most);
    const steps = this.steps.slice(0, at);
    const tokens = [
      ...this.prompt,
      this.tokens[this.prompt.length],
      ...steps.flatMap(step => step.committed)
    ];
    return Object.assign(fork, { tokens, steps, prefill: this.prefill });
  }

  /** Leaves in both caches what they share with the text, without its newest token. */
  sync() {
    for (const model of [this.models.target, this.models.draft]) {
      const different = model.tokens.findIndex(
        (token, slot) => token !== this.tokens[slot] || slot === this.tokens.length - 1
      );
      if (different >= 0) model.keep(different);
    }
  }

  /**
   * Decodes one iteration; if it is stopped, nothing changed.
   * @param {Draft | null} built a tree built by hand
   * @returns {Promise<Step>}
   */
  async step(built = null) {
    const { target, draft, tokenizer } = this.models;
    this.sync();
    const prefix = this.tokens.length - 1;
    if (target.length < prefix) await target.text(this.tokens.slice(target.length, -1));
    const { length, calls } = draft;
    const times = [performance.now()];
    const drafted = built ?? (await this.propose());
    const { tree } = drafted;
    times.push(performance.now());
    const sees = pathsOf(tree);
    const before = [...Array(prefix).keys()];
    const probs = (
      await target.rows(
        tree.token,
        sees.map(path => [...before, ...path.map(node => prefix + node)])
      )
    ).map(softmax);
    times.push(performance.now());
    const tops = probs.map(row => topTokens(row, TOP.recorded));
    const path = accept(tree, node => tops[node][0][0]);
    const outcome = this.cut(tree, path);
    times.push(performance.now());
    this.commit(drafted.rows ?? new Map(), outcome, prefix);
    times.push(performance.now(), performance.now());
    const seconds = Object.fromEntries(
      ["draft", "verify", "accept", "commit", "learn"].map((phase, index) => [
        phase,
        (times[index + 1] - times[index]) / 1000
      ])
    );
    /** @type {Step} */
    const step = {
      ...EMPTY,
      index: this.steps.length,
      prefix_length: prefix,
      tree,
      ...outcome,
      settings: built ? { strategy: "ByHand" } : this.strategy,
      events: drafted.events ?? [],
      nodes: nodeRecords(tree, probs, tops, drafted.tops, outcome.accepted, prefix),
      caches: this.caches(prefix, length, draft.calls > calls),
      seconds,
      adaptation: adaptationOf(built ? {} : this.strategy, tree),
      counts: countsOf(tree, outcome, draft.calls - calls, seconds),
      mask: sees.map(seen => maskBits(seen, sees.length)),
      prefix_seen: sees.map(() => prefix),
      note: ""
    };
    step.texts = tokenizer.texts(tokensOf(step));
    this.steps = [...this.steps, step];
    return step;
  }

  /** The draft of the strategy; the root alone if nothing grows. @returns {Promise<Draft>} */
  async propose() {
    const { draft, target } = this.models;
    const root = this.tokens.at(-1);
    const rules = rulesOf(this.strategy);
    if (!rules)
      return {
        tree: {
          token: [root],
          parent: [-1],
          log_prob: [0],
          source: ["target"],
          candidate_sampling: "deterministic"
        },
        tops: new Map()
      };
    const width = Math.max(TOP.drafted, ...rules.branches);
    /** @type {Rows} of each node that ran: the slots of its text, of its ancestors, and its own */
    const rows = new Map();
    /** @param {Growing} tree @param {number[]} nodes */
    const next = async (tree, nodes) => {
      nodes.forEach((node, row) =>
        rows.set(
          node,
          node ? [...rows.get(tree.parent[node]), draft.length + row] : [...this.tokens.keys()]
        )
      );
      const logits = nodes[0]
        ? await draft.rows(
            nodes.map(node => tree.token[node]),
            nodes.map(node => rows.get(node))
          )
        : // also the committed tokens that the cache lacks
          [await draft.text(this.tokens.slice(draft.length))];
      return logits.map(row => topTokens(softmax(row), width));
    };
    const grown = await grow(
      rules,
      next,
      root,
      target.config.max_position_embeddings - this.tokens.length
    );
    return {
      ...grown,
      rows: new Map(grown.numbers.map((number, node) => [node, rows.get(number)]))
    };
  }

  /**
   * What is committed: the accepted tokens and the target's own, cut at the end of the text.
   * @param {Columns} tree
   * @param {{accepted: number[], bonus: number}} path
   */
  cut(tree, path) {
    const tokens = [...path.accepted.map(node => tree.token[node]), path.bonus].slice(0, this.room);
    const end = tokens.indexOf(this.models.tokenizer.end.id);
    const committed = tokens.slice(0, end + 1 || tokens.length);
    const accepted = path.accepted.slice(0, committed.length);
    return {
      accepted,
      committed,
      bonus: committed.length > accepted.length ? committed.at(-1) : null
    };
  }

  /**
   * @param {Rows} rows of the draft
   * @param {{accepted: number[], committed: number[]}} outcome
   * @param {number} prefix
   */
  commit(rows, { accepted, committed }, prefix) {
    const path = [0, ...accepted].slice(0, committed.length);
    this.models.target.keep(
      prefix,
      path.map(node => prefix + node)
    );
    if (rows.get(0))
      this.models.draft.keep(
        prefix,
        path.filter(node => rows.get(node)).map(node => rows.get(node).at(-1))
      );
    this.tokens = [...this.tokens, ...committed];
  }

  /**
   * @param {number} target entries of each cache before the iteration
   * @param {number} draft
   * @param {boolean} drafted
   */
  caches(target, draft, drafted) {
    /** @param {"target" | "draft"} name @param {number} before @returns {CacheRecord} */
    const record = (name, before) => {
      const { kept, length, capacity, cache, width } = this.models[name];
      const moved = kept.slots
        .map(/** @returns {[number, number]} */ (slot, index) => [slot, kept.prefix + index])
        .filter(([from, to]) => from !== to);
      return {
        name,
        before,
        written: kept.before - before,
        kept: kept.slots,
        moved,
        after: length,
        committed: this.tokens.length - 1,
        capacity,
        slot_bytes: 4 * width * cache.length
      };
    };
    const own = record("target", target);
    return drafted ? [own, record("draft", draft)] : [own];
  }
}

/** What no greedy iteration of a draft model has. @type {any} */
const EMPTY = {
  root_choice: null,
  extra: [],
  rule: "greedy",
  trials: [],
  residual: null,
  proposals: [],
  paths: [],
  position: [],
  hidden_prefix: [],
  rows: [],
  missing: [],
  findings: [],
  plain: [],
  gaps: [],
  not_numbers: [],
  request: "",
  batch: ""
};

/** @param {Settings} settings @param {Columns} tree */
function adaptationOf({ history }, tree) {
  const drafted = tree.token.length > 1 ? "off" : "nothing drafted";
  return { kind: history ? drafted : "", values: {}, before: {}, after: {} };
}

/**
 * @param {Columns} tree
 * @param {{accepted: number[], committed: number[]}} outcome
 * @param {number} calls
 * @param {Record<string, number>} phases
 */
function countsOf(tree, { accepted, committed }, calls, phases) {
  const seconds = Object.values(phases).reduce((sum, part) => sum + part, 0);
  return {
    iterations: 1,
    committed: committed.length,
    drafted: tree.token.length - 1,
    accepted: accepted.length,
    longest_path: shapeOf(tree).depth.at(-1),
    target_calls: 1,
    draft_calls: calls,
    seconds,
    // the target looked at the children of the last node, too, unless the text ended there
    looked: Math.min(
      committed.length,
      accepted.length + shapeOf(tree).children[accepted.at(-1) ?? 0].length
    )
  };
}

/**
 * The rows of a pass: probabilities and verdicts.
 * @param {Columns} tree
 * @param {Float64Array[]} probs
 * @param {Top[]} tops
 * @param {Map<number, Top>} drafted
 * @param {number[]} accepted
 * @param {number} prefix
 */
function nodeRecords(tree, probs, tops, drafted, accepted, prefix) {
  const shape = shapeOf(tree);
  const path = new Set([0, ...accepted]);
  /** @param {number} node @param {number} parent */
  const verdict = (node, parent) => {
    if (path.has(node)) return node ? "accepted" : "root";
    // the text may end before it
    return path.has(parent) && tops[parent][0][0] !== tree.token[node] ? "rejected" : "not reached";
  };
  return tree.token.map((token, node) => {
    const [[choice, prob]] = tops[node];
    const parent = tree.parent[node];
    return {
      index: node,
      token,
      draft_prob: shape.prob[node],
      path_prob: shape.pathProb[node],
      target_prob: node ? probs[parent][token] : null,
      target_choice: choice,
      verdict: verdict(node, parent),
      kv_slot: prefix + node,
      choice_prob: prob,
      entropy: probs[node].reduce((sum, value) => sum - (value && value * Math.log(value)), 0),
      target_top: tops[node],
      draft_top: drafted.get(node) ?? []
    };
  });
}

/** A row of a mask as hexadecimal text. @param {number[]} seen @param {number} count */
function maskBits(seen, count) {
  const bytes = new Uint8Array(Math.ceil(count / 8));
  for (const node of seen) bytes[node >> 3] |= 128 >> (node & 7);
  return Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");
}

/** Every token that a step names. @param {Step} step @returns {number[]} */
function tokensOf({ tree, committed, nodes, events }) {
  const tops = nodes
    .flatMap(node => [...node.target_top, ...node.draft_top])
    .map(([token]) => token);
  return [
    ...tree.token,
    ...committed,
    ...tops,
    ...events.flatMap(event => event.values.token ?? [])
  ];
}

/**
 * A run as a trace file holds it.
 * @param {Session} session
 * @param {Record<string, any>} models what ran where
 * @returns {Values}
 */
export function traceOf(
  { prompt, tokens, steps, strategy, most, prefill, finished, models: { tokenizer } },
  models
) {
  return {
    prompt_ids: prompt,
    first_token: tokens[prompt.length],
    steps,
    models,
    texts: tokenizer.texts(tokens),
    prefill_seconds: prefill,
    prefill_calls: 1,
    settings: {
      ...strategy,
      max_new_tokens: most,
      temperature: 0,
      top_k: null,
      top_p: null,
      seed: 0,
      stop_at_eos: true,
      check: false
    },
    finished,
    messages: [],
    version: 3
  };
}
