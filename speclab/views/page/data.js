// The templates of all sentences, and the looks of all pictures.

import templates from "../words.json" with { type: "json" };
import looks from "../looks.json" with { type: "json" };

/** @type {Words} */
export const WORDS = templates;
/** @type {Looks} */
export const LOOKS = looks;
