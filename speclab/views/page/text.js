// Tokens and numbers as text: no invisible characters, no accidental markup.

/** @type {Record<string, string>} */
const VISIBLE = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍" };
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Zs}]/u;
const MARKS = /[\p{Mn}\p{Mc}\p{Me}]/u;
const WIDE = [
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff]/,
  /[\ufe10-\ufe19\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]/u,
  /\p{Emoji_Presentation}/u
];
const BYTES = /<0x([0-9A-Fa-f]{2})>/g;

/** Whitespace as symbols, other hidden characters as code points. @param {string} text */
function display(text) {
  if (!text) return "∅";
  const visible = [...text].map(char => {
    if (char in VISIBLE) return VISIBLE[char];
    if (!HIDDEN.test(char)) return char;
    return codePoint(char);
  });
  if (MARKS.test([...text][0])) visible.unshift("◌");
  return visible.join("").replace(/([␣⏎⇥])\1{3,}/g, run => `${run[0]}×${run.length}`);
}

/** The visible text of a token id. @param {number} token @param {Texts} texts */
export function labelOf(token, texts) {
  return token in texts ? display(texts[token]) : `#${token}`;
}

/** @param {number[]} tokens @param {Texts} texts */
export function labels(tokens, texts) {
  return tokens.map(token => labelOf(token, texts));
}

/**
 * A token in a sentence, with plain spaces: `' the'`.
 * @param {number} token
 * @param {Texts} texts
 */
export function quoted(token, texts) {
  if (!(token in texts)) return `'#${token}'`;
  let visible = display(texts[token]);
  if (!visible.includes("×") && texts[token].trim()) visible = visible.replaceAll("␣", " ");
  return `'${clip(visible, 24)}'`;
}

/**
 * Columns in a monospaced font: wide characters take two, combining marks none.
 * @param {string} text
 */
export function columnsOf(text) {
  let columns = 0;
  for (const char of text)
    if (!MARKS.test(char)) columns += WIDE.some(wide => wide.test(char)) ? 2 : 1;
  return columns;
}

/** @param {string} text @param {number} columns */
export function clip(text, columns) {
  if (columnsOf(text) <= columns) return text;
  const chars = [...text];
  while (chars.length && columnsOf(chars.join("")) >= columns) chars.pop();
  return `${chars.join("")}…`;
}

/** Escapes for plotly, which reads `<b>` as markup and `$…$` as a formula. @param {string} text */
export function plotText(text) {
  return text
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/\$/g, "&#36;");
}

/** 0.934 → `93 %`, 0.0374 → `3.7 %`, 0.0002 → `<0.1 %`. @param {number} probability */
export function percent(probability) {
  const share = 100 * probability;
  if (share >= 9.95 || share === 0) return `${share.toFixed(0)} %`;
  return share >= 0.1 ? `${share.toFixed(1)} %` : "<0.1 %";
}

/** @param {number} count @param {string} noun @param {string} [nouns] */
export function plural(count, noun, nouns) {
  return `${count} ${count === 1 ? noun : (nouns ?? `${noun}s`)}`;
}

/** Texts with byte tokens joined to characters; a byte stays `<0xE2>` where it forms none. The
 *  character stands where its last byte is. @param {string[]} texts @returns {string[]} */
export function joinedBytes(texts) {
  const joined = texts.map(() => "");
  /** @type {[number, number][]} */
  let run = []; // index of the text, byte
  const flush = () => {
    while (run.length) {
      const length = sequenceLength(run.map(([, byte]) => byte));
      const bytes = run.splice(0, length || 1);
      const [last, byte] = bytes[bytes.length - 1];
      const chars = charsOf(bytes.map(pair => pair[1]));
      joined[last] += length ? chars : `<0x${hexOf(byte)}>`;
    }
  };
  texts.forEach((text, index) => {
    let end = 0;
    for (const match of text.matchAll(BYTES)) {
      if (match.index > end) {
        flush();
        joined[index] += text.slice(end, match.index);
      }
      run.push([index, parseInt(match[1], 16)]);
      end = match.index + match[0].length;
    }
    if (end < text.length) {
      flush();
      joined[index] += text.slice(end);
    }
  });
  flush();
  return joined;
}

/** @param {number} number @param {number} digits */
function hexOf(number, digits = 2) {
  return number.toString(16).toUpperCase().padStart(digits, "0");
}

/** `<U+202E>`. @param {string} char */
function codePoint(char) {
  return `<U+${hexOf(char.codePointAt(0), 4)}>`;
}

/** The characters of bytes of UTF-8; null if they form none. @param {number[]} bytes */
function charsOf(bytes) {
  try {
    return decodeURIComponent(bytes.map(byte => `%${hexOf(byte)}`).join(""));
  } catch {
    return null;
  }
}

/**
 * How many of the first bytes form a character of UTF-8; 0 if they form none.
 * @param {number[]} bytes
 */
function sequenceLength(bytes) {
  const lengths = [1, 2, 3, 4].filter(length => length <= bytes.length);
  return lengths.find(length => charsOf(bytes.slice(0, length)) !== null) ?? 0;
}

/**
 * Text with control characters written out; line breaks, and what joins emoji, stay.
 * @param {string} text
 */
export function readable(text) {
  return text.replace(/(?![\n\t\u200d])[\p{Cc}\p{Cf}\p{Co}]/gu, codePoint);
}
