// Links: the menu copies them, the page opens those of its address, of `?run=` and of other pages.

import { arrive } from "../../live/arrive.js";
import { WORDS } from "../../views/page/data.js";
import { button, entryOf, made } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { Refused, openRun, readFile, refuse } from "../../views/page/reader.js";
import { words } from "../../views/page/words.js";
import { addressOf, goTo, placeFrom, shownPlace } from "./address.js";
import { linkText, readLink } from "./text.js";
import LINK_WORDS from "./words.json" with { type: "json" };

const MOST_WRITTEN = 8000; // characters
const MOST_PACKED = 16 << 20; // bytes that an address may send
const SESSION = {
  temperature: 0,
  top_k: /** @type {null} */ (null),
  top_p: /** @type {null} */ (null)
};
const SESSION_DEFAULTS = { ...SESSION, seed: 0, stop_at_eos: true, check: false };

/** Settings that a link leaves out, as far as they are known. @param {State} state */
function defaultsOf({ catalog, header }) {
  const offer = catalog?.strategies?.find(one => one.name === header.settings.strategy);
  const fields = Object.entries(offer?.schema.properties ?? {});
  return {
    ...SESSION_DEFAULTS,
    ...Object.fromEntries(fields.map(([name, field]) => [name, field.default]))
  };
}

/** The bytes at an address. @param {string} address */
async function fetchedRun(address) {
  const url = new URL(address, location.href);
  if (url.protocol !== "https:" && url.origin !== location.origin)
    throw new Refused(words("link", "origin", { address }));
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const parts = [];
  let length = 0;
  await arrive(url.href, { credentials: "omit" }, part => {
    length += part.length;
    if (length > MOST_PACKED)
      throw new Refused(words("link", "large", { address, most: MOST_PACKED }));
    parts.push(part);
  }).catch(error => {
    if (error instanceof Refused) throw error;
    const status = /^\d+$/.test(error.message) ? error.message : null;
    throw new Refused(words("link", status ? "status" : "cors", { address, status }));
  });
  return readFile(new Blob(parts), url.pathname.split("/").pop());
}

/**
 * Shows what an address names; nothing if it names no run and no place.
 * @param {Context} context
 * @param {string} search
 * @param {string} hash
 */
async function openAddress(context, search, hash) {
  const place = placeFrom(hash);
  const run = new URLSearchParams(search).get("run");
  try {
    if (/[#&]r=/.test(hash)) openRun(context, await readLink(hash), "the link");
    else if (run) openRun(context, await fetchedRun(run), run);
    if (place && context.state().header) goTo(context, place);
  } catch (error) {
    refuse(context, error);
  }
}

/**
 * Opens what another page sends, and answers it: `{speclab: "open", link}` or `{speclab: "open", file}`.
 * @param {Context} context
 * @param {MessageEvent} event
 */
async function openMessage(context, { data, source, origin }) {
  if (data?.speclab !== "open") return;
  let sentence = "";
  try {
    const { link, file } = data;
    const run = link ? await readLink(String(link)) : await readFile(new Blob([file]), "The run");
    openRun(context, run, words("link", "from", { origin }));
  } catch (error) {
    sentence = error.message;
    refuse(context, error);
  }
  const answer = { speclab: sentence ? "refused" : "opened", sentence };
  /** @type {any} */ (source)?.postMessage(answer, origin === "null" ? "*" : origin);
}

/**
 * Makes the links of a page.
 * @param {Context} context
 * @param {boolean} own whether links open in this very page
 * @param {HTMLInputElement} field that holds the link
 */
function writerOf(context, own, field) {
  const { state, dispatch } = context;
  const page = () => {
    if (own) return location.href.split(/[?#]/)[0];
    return state().address?.page || WORDS.link.page;
  };
  /** @param {boolean} whole the run, or the iteration shown @param {Partial<Place>} more */
  const written = async (whole, more = {}) => {
    const { header, steps, cursor } = state();
    const alone = !whole && cursor > 0;
    const [first, last] = alone ? [cursor - 1, cursor - 1] : [0, steps.length - 1];
    const text = await linkText(header, steps, first, last, defaultsOf(state()));
    if (text.length > MOST_WRITTEN)
      throw new Refused(words("link", "long", { characters: text.length }));
    const place = { ...shownPlace(state()), tab: "", ...more };
    return `${page()}#r=${text}&${addressOf(alone ? { ...place, i: 1 } : place)}`;
  };
  /** @param {string} address @param {string} sentence @param {string[]} [rows] of a QR code */
  const show = (address, sentence, rows) => {
    field.value = address;
    const link = { address, sentence, rows };
    dispatch({ type: "set", values: { link, tab: "link" } });
  };
  /** @param {string} text */
  const copy = async text => {
    const copied = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false
    );
    show(text, words("link", copied ? "copied" : "made", { characters: text.length }));
  };
  return { written, show, copy };
}

/** @param {Context} context @returns {Partial<FeaturePage>} */
function linkPage(context) {
  const { send, live, kernel } = context;
  const own = !kernel && live && location.protocol.startsWith("http");
  // made once: what is typed outlives every drawing of the tab
  const field = made("input", { type: "url", "aria-label": "link" });
  const { written, show, copy } = writerOf(context, own, field);
  let begun = kernel;
  /** @type {Place} */
  let pending = null;
  let arrived = false;
  const opens = () => openAddress(context, location.search, location.hash);
  /** @param {MessageEvent} event */
  const hear = event => openMessage(context, event);
  /** @param {string} text */
  const open = text => {
    if (kernel) {
      pending = placeFrom(text.slice(text.indexOf("#")));
      send({ do: "link", text });
    } else openAddress(context, "", text.includes("#") ? text : `#r=${text}`);
  };
  return {
    tab: true,
    hidden: () => true,
    watched: now => [now.link, now.header],
    entries: () => entriesOf(context, written, copy, show),
    parts(tab, now) {
      const carried = now.header.models.link ? [WORDS.link.carries] : [];
      if (tab !== "link") return carried;
      const again = own ? decodedHere(now) : null;
      return [
        ...linkParts(now, field, open),
        again,
        !own && now.link?.address && WORDS.link.assumed
      ];
    },
    mounted() {
      if (kernel) return;
      addEventListener("message", hear);
      addEventListener("hashchange", opens);
    },
    ended() {
      removeEventListener("message", hear);
      removeEventListener("hashchange", opens);
    },
    heard(event) {
      if (event.type === "phones") show(event.text, WORDS.link.phones, event.rows);
      if (event.type === "run") arrived = Boolean(pending);
      if (arrived && event.type === "show") {
        arrived = false; // the kernel has shown the first iteration of the run
        goTo(context, pending);
        pending = null;
      }
      // a page without a kernel is ready when it has its run, one that decodes when it is idle
      const ready = live ? event.type === "status" && event.busy === null : event.type === "run";
      if (begun || !ready) return;
      begun = true;
      opens();
    }
  };
}

/**
 * The entries of the menu.
 * @param {Context} context
 * @param {(whole: boolean, more?: Partial<Place>) => Promise<string>} written
 * @param {(text: string) => Promise<void>} copy
 * @param {(address: string, sentence: string) => void} show
 */
function entriesOf(context, written, copy, show) {
  const nothing = /** @type {null} */ (null);
  const asked = { guess: true, phase: "all", level: nothing, node: nothing };
  /** @param {string} label @param {() => Promise<any>} made */
  const entry = (label, made) =>
    entryOf(label, () => made().catch(error => refuse(context, error)));
  /** @param {string} text */
  const framed = text => `<iframe src="${text}" width="100%" height="640"></iframe>`;
  const scanned = async () => {
    const text = await written(false, asked);
    context.send({ do: "phones", text });
  };
  return [
    entry("Copy link", () => written(false).then(copy)),
    entry("Copy link of the run", () => written(true).then(copy)),
    entry("Embed", () => written(false).then(text => copy(framed(text)))),
    ...(context.kernel ? [entry("Show on phones", scanned)] : []),
    entryOf("Open link", () => show("", ""))
  ];
}

/**
 * What the tab shows: the link that was made, its QR code, what an opened link is, and a field.
 * @param {State} state
 * @param {HTMLInputElement} field
 * @param {(text: string) => void} open
 */
function linkParts({ link, header }, field, open) {
  const given = () => field.value && open(field.value);
  const row = made("p", {}, field, " ", button("Open", {}, given));
  const parts = [row, link?.sentence, link?.rows ? codeOf(link.rows) : null];
  if (link?.address) parts.push(WORDS.link.carries);
  const { link: where, cut } = header.models;
  if (where) parts.push(words("link", "opened", { link: where }));
  if (cut) parts.push(words("link", "cut", { cut }));
  if (where) {
    const command = `speclab open '${location.href}'`;
    parts.push(made("p", {}, WORDS.link.lab, made("code", {}, command)));
  }
  return parts;
}

/** A link that decodes the text of a link anew, where the page has its models and all of its text.
 *  @param {State} state */
function decodedHere({ header, catalog }) {
  const { models, settings, prompt_ids, texts } = header;
  const { strategy, ...others } = settings;
  const known = catalog?.strategies?.some(one => one.name === strategy);
  if (!models.link || models.cut || models.target !== WORDS.link.live || !known) return null;
  const prompt = prompt_ids.map(token => texts[token]).join("");
  const query = new URLSearchParams({ prompt, strategy, .../** @type {any} */ (others) });
  return made("p", {}, made("a", { href: `?${query}` }, WORDS.link.here));
}

/** A QR code as a picture. @param {string[]} rows a sign for each module, 1 if it is dark */
function codeOf(rows) {
  const size = rows.length;
  const squares = rows.flatMap((row, y) =>
    [...row].map((sign, x) => (sign === "1" ? `M${x} ${y}h1v1h-1z` : ""))
  );
  const name = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(name, "svg");
  const path = document.createElementNS(name, "path");
  svg.setAttribute("viewBox", `-4 -4 ${size + 8} ${size + 8}`);
  svg.setAttribute("style", "width: min(480px, 100%); background: #fff");
  path.setAttribute("d", squares.join(""));
  svg.append(path);
  return svg;
}

register({ name: "link", page: linkPage }, LINK_WORDS);
