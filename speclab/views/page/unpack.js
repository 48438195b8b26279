// Packed parts of a page: base64 and gzip.

/** @param {string} text base64 @returns {Uint8Array<ArrayBuffer>} */
export function bytesOf(text) {
  return Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
}

/** The text of gzipped bytes. @param {Blob} packed @returns {Promise<string>} */
export function unpacked(packed) {
  return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).text();
}
