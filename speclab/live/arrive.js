// A file of the folder as it arrives. A server that falls silent is given up.

/**
 * Takes the parts of a file as they come; fails if the server refuses it or falls silent.
 * @param {string} address
 * @param {RequestInit} options
 * @param {(part: Uint8Array<ArrayBuffer>) => void} take
 */
export async function arrive(address, options, take) {
  const SILENCE = 30; // seconds without a byte
  const stop = new AbortController();
  const silent = new Error(`nothing came for ${SILENCE} seconds`);
  let alarm = 0;
  const listen = () => {
    clearTimeout(alarm);
    alarm = setTimeout(() => stop.abort(silent), 1000 * SILENCE);
  };
  try {
    listen();
    const response = await fetch(address, { ...options, signal: stop.signal });
    if (!response.ok) throw new Error(`${response.status}`);
    const reader = response.body.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      listen();
      take(part.value);
    }
  } finally {
    clearTimeout(alarm);
  }
}
