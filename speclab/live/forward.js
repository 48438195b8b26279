// A GPT-NeoX model in plain JavaScript: rows at any positions under a tree mask, with a cache of
// keys and values.

const FIRST_CAPACITY = 256;
const CHUNK = 64; // tokens of a text that run together, so that Stop is heard soon

/**
 * The tensors of a safetensors file in float16, as float32.
 * @param {ArrayBuffer} buffer
 * @returns {Record<string, Float32Array>}
 */
function weightsOf(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  /** @type {Record<string, {data_offsets?: [number, number]}>} */
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const wide = new Float32Array(1 << 16);
  const bits = new Uint32Array(wide.buffer);
  for (let narrow = 0; narrow < wide.length; narrow++) {
    bits[narrow] = ((narrow & 0x8000) << 16) | ((narrow & 0x7fff) << 13);
    wide[narrow] *= 2 ** 112; // the exponents' biases are 127 and 15
  }
  /** @type {Record<string, Float32Array>} */
  const weights = {};
  for (const [name, { data_offsets: offsets }] of Object.entries(header)) {
    if (!offsets) continue; // the file's metadata
    const narrow = new Uint16Array(buffer.slice(...offsets.map(offset => 8 + length + offset)));
    weights[name.replace(/^gpt_neox\.(layers\.)?/, "")] = new Float32Array(narrow.length).map(
      (_, index) => wide[narrow[index]]
    );
  }
  return weights;
}

/**
 * x Wᵀ + b, in blocks of two rows by four outputs.
 * @param {Float32Array} x `[rows, width]`
 * @param {Float32Array} weight `[outputs, width]`
 * @param {Float32Array | null} bias
 * @param {number} width
 * @returns {Float32Array} `[rows, outputs]`
 */
function linear(x, weight, bias, width) {
  const outputs = weight.length / width;
  const y = new Float32Array((x.length / width) * outputs);
  for (let out = 0; out < outputs; out += 4)
    for (let start = 0; start < x.length; start += 2 * width) {
      // an odd last row is computed twice
      const second = start + width < x.length ? start + width : start;
      block(
        x,
        start,
        second,
        weight,
        out * width,
        width,
        y,
        (start / width) * outputs + out,
        (second / width) * outputs + out
      );
    }
  if (bias) for (let index = 0; index < y.length; index++) y[index] += bias[index % outputs];
  return y;
}

/**
 * Two rows of x by four of the weight; a function of its own, since engines compile short functions
 * best.
 * @param {Float32Array} x
 * @param {number} x0
 * @param {number} x1
 * @param {Float32Array} weight
 * @param {number} w0
 * @param {number} width
 * @param {Float32Array} y
 * @param {number} y0
 * @param {number} y1
 */
function block(x, x0, x1, weight, w0, width, y, y0, y1) {
  let a0 = 0;
  let a1 = 0;
  let a2 = 0;
  let a3 = 0;
  let b0 = 0;
  let b1 = 0;
  let b2 = 0;
  let b3 = 0;
  const w1 = w0 + width;
  const w2 = w1 + width;
  const w3 = w2 + width;
  for (let k = 0; k < width; k++) {
    const u = x[x0 + k];
    const v = x[x1 + k];
    const p = weight[w0 + k];
    const q = weight[w1 + k];
    const r = weight[w2 + k];
    const s = weight[w3 + k];
    a0 += p * u;
    a1 += q * u;
    a2 += r * u;
    a3 += s * u;
    b0 += p * v;
    b1 += q * v;
    b2 += r * v;
    b3 += s * v;
  }
  y[y0] = a0;
  y[y0 + 1] = a1;
  y[y0 + 2] = a2;
  y[y0 + 3] = a3;
  y[y1] = b0;
  y[y1 + 1] = b1;
  y[y1 + 2] = b2;
  y[y1 + 3] = b3;
}

/**
 * @param {Float32Array} x
 * @param {Float32Array} weight
 * @param {Float32Array} bias
 * @param {number} epsilon
 */
function layerNorm(x, weight, bias, epsilon) {
  const width = weight.length;
  const y = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    const row = x.subarray(start, start + width);
    const mean = row.reduce((sum, value) => sum + value, 0) / width;
    const scale =
      1 / Math.sqrt(row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / width + epsilon);
    for (let k = 0; k < width; k++) y[start + k] = (row[k] - mean) * scale * weight[k] + bias[k];
  }
  return y;
}

/** GELU by the error function (Abramowitz and Stegun, 7.1.28: to 3e-7). @param {number} x */
function gelu(x) {
  const z = Math.abs(x) * Math.SQRT1_2;
  let power =
    1 +
    z *
      (0.0705230784 +
        z *
          (0.0422820123 +
            z * (0.0092705272 + z * (0.0001520143 + z * (0.0002765672 + z * 0.0000430638)))));
  for (let doubled = 0; doubled < 4; doubled++) power *= power;
  const tail = 0.5 / power; // of the normal distribution
  return x * (x < 0 ? tail : 1 - tail);
}

/**
 * One model and its cache. `tokens`: of the entries, inverted (~) for rows of a tree until they are
 * kept; `kept`: what the last `keep` left.
 */
export class Model {
  /** @type {number} */ capacity;
  /** @type {number[]} */ tokens;
  /** @type {Float32Array[]} keys, then values, of each layer: `[capacity, width]` */ cache;
  /** @type {{before: number, prefix: number, slots: number[]}} */ kept;

  /**
   * @param {any} config of config.json
   * @param {ArrayBuffer} file
   * @param {() => Promise<void> | void} breathe called between products: may wait, or throw to stop
   */
  constructor(config, file, breathe = () => {}) {
    this.config = config;
    this.breathe = breathe;
    this.weights = weightsOf(file);
    this.width = config.hidden_size;
    this.dim = this.width / config.num_attention_heads;
    this.calls = 0;
    this.clear();
  }

  /** Empties the cache. */
  clear() {
    this.capacity = 0;
    this.tokens = [];
    this.cache = Array.from(
      { length: 2 * this.config.num_hidden_layers },
      () => new Float32Array(0)
    );
  }

  get length() {
    return this.tokens.length;
  }

  /**
   * Appends rows of a tree; the logits of each.
   * @param {number[]} tokens
   * @param {number[][]} sees slots that each row sees, in the order of their positions, its own
   *   last: so many tokens make its position
   * @returns {Promise<Float32Array[]>}
   */
  async rows(tokens, sees) {
    const logits = await this.logits(await this.run(tokens, sees));
    this.tokens.push(...tokens.map(token => ~token));
    this.calls++;
    return logits;
  }

  /**
   * Appends tokens in causal order; the logits after the last.
   * @param {number[]} tokens
   * @returns {Promise<Float32Array>}
   */
  async text(tokens) {
    const first = tokens.slice(0, CHUNK);
    const states = await this.run(
      first,
      first.map((_, row) => [...Array(this.length + row + 1).keys()])
    );
    this.tokens.push(...first);
    if (tokens.length > CHUNK) return this.text(tokens.slice(CHUNK));
    this.calls++;
    return (await this.logits(states.slice(-this.width)))[0];
  }

  /**
   * @param {number[]} tokens
   * @param {number[][]} sees
   * @returns {Promise<Float32Array>} hidden states
   */
  async run(tokens, sees) {
    const { width } = this;
    this.reserve(this.length + tokens.length);
    let x = new Float32Array(tokens.length * width);
    tokens.forEach((token, row) =>
      x.set(
        this.weights["embed_in.weight"].subarray(token * width, (token + 1) * width),
        row * width
      )
    );
    for (let layer = 0; 2 * layer < this.cache.length; layer++) {
      const qkv = await this.product(
        this.norm(x, `${layer}.input_layernorm`),
        `${layer}.attention.query_key_value`
      );
      const attended = await this.product(
        this.attention(layer, qkv, sees),
        `${layer}.attention.dense`
      );
      const inner = await this.product(
        this.norm(x, `${layer}.post_attention_layernorm`),
        `${layer}.mlp.dense_h_to_4h`
      );
      const fed = await this.product(
        inner.map(gelu),
        `${layer}.mlp.dense_4h_to_h`,
        this.config.intermediate_size
      );
      x = x.map((value, k) => value + attended[k] + fed[k]); // parallel residual
    }
    return x;
  }

  /** @param {Float32Array} x hidden states @returns {Promise<Float32Array[]>} */
  async logits(x) {
    const size = this.config.vocab_size;
    const all = await this.product(this.norm(x, "final_layer_norm"), "embed_in");
    return Array.from({ length: all.length / size }, (_, row) =>
      all.subarray(row * size, (row + 1) * size)
    );
  }

  /** @param {Float32Array} x @param {string} name */
  norm(x, name) {
    return layerNorm(
      x,
      this.weights[`${name}.weight`],
      this.weights[`${name}.bias`],
      this.config.layer_norm_eps
    );
  }

  /** @param {Float32Array} x @param {string} name @param {number} width */
  async product(x, name, width = this.width) {
    await this.breathe();
    return linear(x, this.weights[`${name}.weight`], this.weights[`${name}.bias`], width);
  }

  /**
   * @param {number} layer
   * @param {Float32Array} qkv `[rows, heads, 3, dim]`
   * @param {number[][]} sees
   */
  attention(layer, qkv, sees) {
    const { width, dim } = this;
    const [keys, values] = this.cache.slice(2 * layer);
    const out = new Float32Array(sees.length * width);
    /** @param {(slots: number[], at: number, from: number) => void} visit */
    const each = visit => {
      for (let at = 0; at < out.length; at += dim) visit(sees[Math.floor(at / width)], at, 3 * at);
    };
    each((slots, at, from) => {
      this.rotate(qkv, from, slots.length - 1);
      this.rotate(qkv, from + dim, slots.length - 1);
      keys.set(qkv.subarray(from + dim, from + 2 * dim), this.length * width + at);
      values.set(qkv.subarray(from + 2 * dim, from + 3 * dim), this.length * width + at);
    });
    each((slots, at, from) => {
      const starts = Int32Array.from(slots, slot => slot * width + (at % width));
      attend(qkv.subarray(from, from + dim), keys, values, starts, out.subarray(at, at + dim));
    });
    return out;
  }

  /**
   * Rotates the first features of a head, by halves, in place.
   * @param {Float32Array} x
   * @param {number} start
   * @param {number} position
   */
  rotate(x, start, position) {
    const { partial_rotary_factor: part, rope_theta: base } = this.config.rope_parameters;
    const half = (part * this.dim) / 2;
    for (let k = 0; k < half; k++) {
      const angle = position / base ** (k / half);
      const low = x[start + k];
      const high = x[start + k + half];
      x[start + k] = low * Math.cos(angle) - high * Math.sin(angle);
      x[start + k + half] = high * Math.cos(angle) + low * Math.sin(angle);
    }
  }

  /** Grows the buffers by at least doubling. @param {number} slots */
  reserve(slots) {
    if (slots <= this.capacity) return;
    this.capacity = Math.max(slots, 2 * this.capacity, FIRST_CAPACITY);
    this.cache = this.cache.map(old => {
      const wider = new Float32Array(this.capacity * this.width);
      wider.set(old);
      return wider;
    });
  }

  /**
   * Keeps the first `prefix` entries, then those of `slots`, a path; moves them down.
   * @param {number} prefix
   * @param {number[]} slots
   */
  keep(prefix, slots = []) {
    const { width } = this;
    this.kept = { before: this.length, prefix, slots };
    for (const buffer of this.cache)
      slots.forEach((slot, index) =>
        buffer.copyWithin((prefix + index) * width, slot * width, (slot + 1) * width)
      );
    this.tokens = [
      ...this.tokens.slice(0, prefix),
      ...slots.map(slot => Math.max(this.tokens[slot], ~this.tokens[slot]))
    ];
  }
}

/**
 * One head of one row: softmax(q Kᵀ / √dim) V.
 * @param {Float32Array} query
 * @param {Float32Array} keys
 * @param {Float32Array} values
 * @param {Int32Array} slots where the visible keys and values begin
 * @param {Float32Array} out `[dim]`
 */
function attend(query, keys, values, slots, out) {
  const scores = new Float64Array(slots.length);
  const scale = 1 / Math.sqrt(out.length);
  let most = -Infinity;
  for (let index = 0; index < scores.length; index++) {
    let score = 0;
    for (let k = 0, at = slots[index]; k < out.length; k++) score += query[k] * keys[at + k];
    scores[index] = score * scale;
    most = Math.max(most, scores[index]);
  }
  let total = 0;
  for (let index = 0; index < scores.length; index++)
    total += scores[index] = Math.exp(scores[index] - most);
  for (let k = 0; k < out.length; k++) {
    let sum = 0;
    for (let index = 0; index < scores.length; index++)
      sum += scores[index] * values[slots[index] + k];
    out[k] = sum / total;
  }
}
