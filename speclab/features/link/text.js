// A link as text: its JSON in raw deflate and base64url, written and read in the browser.

import { bytesOf } from "../../views/page/unpack.js";
import { Refused, parsedJson, readRun, unpackedWithin } from "../../views/page/reader.js";
import { linkChoices, runOfLink } from "./format.js";

const NAME = "The link";
const LINK_VERSION = "1";
const MOST_READ = 64_000; // characters
const MOST_UNPACKED = 1 << 20; // bytes
const LINK = /(?:^|[#&]r=)(\d+)\.([A-Za-z0-9_-]*)/;

/**
 * The text of a link after `#r=`: of the choices the first that has room.
 * @param {Header} header
 * @param {Step[]} steps
 * @param {number} first
 * @param {number} last
 * @param {Values} defaults
 */
export async function linkText(header, steps, first, last, defaults) {
  const { room, choices } = linkChoices(header, steps, first, last, defaults);
  let text = "";
  for (const data of choices) {
    text = await packed(data);
    if (text.length <= room) break;
  }
  return text;
}

/** @param {Values} data */
async function packed(data) {
  const json = new Blob([JSON.stringify(data)]).stream();
  const body = new Response(json.pipeThrough(new CompressionStream("deflate-raw")));
  const letters = String.fromCharCode(...new Uint8Array(await body.arrayBuffer()));
  const base64 = btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `${LINK_VERSION}.${base64}`;
}

/** The run of a link. @param {string} text */
export async function readLink(text) {
  if (text.length > MOST_READ)
    throw new Refused(`${NAME} has more than 64,000 characters: open the run as a file`);
  const [, version, body] = LINK.exec(text.trim()) ?? [];
  if (!version) throw new Refused(`${NAME} has no run: copy all of it, with what follows its #r=`);
  if (version !== LINK_VERSION)
    throw new Refused(
      `${NAME} has version ${version}, and this speclab reads version 1: upgrade speclab`
    );
  const damaged = `${NAME} is cut short or damaged; copy it again`;
  const large = `${NAME} unpacks to more than 1,048,576 bytes: open the run as a file`;
  /** @type {Uint8Array<ArrayBuffer>} */
  let bytes;
  try {
    bytes = bytesOf(body.replaceAll("-", "+").replaceAll("_", "/"));
  } catch {
    throw new Refused(damaged);
  }
  const json = await unpackedWithin(
    new Blob([bytes]),
    "deflate-raw",
    MOST_UNPACKED,
    damaged,
    large
  );
  const { run, wrong } = runOfLink(parsedJson(json, damaged));
  if (wrong)
    throw new Refused(`${NAME} is not a speclab link of version 1: ${wrong}; copy it again`);
  return readRun(run, NAME);
}
