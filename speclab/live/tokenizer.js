// Byte-level BPE from a tokenizer.json, both ways; a token that is part of a character is written
// as its bytes.

const PIECES = /'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

export class Tokenizer {
  /** @param {TokenizerFile} file a parsed tokenizer.json */
  constructor({ model, added_tokens: [end] }) {
    this.end = end;
    this.ids = model.vocab;
    this.pieces = Object.keys(model.vocab).sort((one, other) => this.ids[one] - this.ids[other]);
    this.ranks = new Map(model.merges.map((pair, rank) => [pair.join(" "), rank]));
    let spare = 256;
    /** @param {number} byte */
    const visible = byte => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    /** GPT-2's alphabet: a visible character for each byte. */
    this.alphabet = Array.from({ length: 256 }, (_, byte) =>
      String.fromCharCode(visible(byte) ? byte : spare++)
    );
  }

  /** Token ids of a text; each digit stands alone. @param {string} text @returns {number[]} */
  encode(text) {
    const { id, content } = this.end;
    /** @param {string} part */
    const plain = part =>
      part
        .split(/(\p{N})/u)
        .flatMap(run => (run.match(PIECES) ?? []).flatMap(piece => this.merged(piece)));
    return text.split(content).flatMap((part, index) => [...(index ? [id] : []), ...plain(part)]);
  }

  /** @param {string} piece @returns {number[]} */
  merged(piece) {
    let parts = Array.from(new TextEncoder().encode(piece), byte => this.alphabet[byte]);
    for (;;) {
      const ranks = parts
        .slice(1)
        .map((part, index) => this.ranks.get(`${parts[index]} ${part}`) ?? Infinity);
      const best = Math.min(...ranks);
      if (best === Infinity) return parts.map(part => this.ids[part]);
      const at = ranks.indexOf(best);
      parts.splice(at, 2, parts[at] + parts[at + 1]);
    }
  }

  /**
   * One token for display: " the", or "<0xE2>" for a part of a character.
   * @param {number} id
   * @returns {string}
   */
  text(id) {
    if (id === this.end.id) return this.end.content;
    const bytes = Uint8Array.from(this.pieces[id], char => this.alphabet.indexOf(char));
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      return Array.from(
        bytes,
        byte => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`
      ).join("");
    }
  }

  /** Texts by token. @param {number[]} ids @returns {Record<string, string>} */
  texts(ids) {
    return Object.fromEntries(ids.map(id => [id, this.text(id)]));
  }
}
