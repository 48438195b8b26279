// The templates of all sentences, the looks of all pictures, and the columns of a node, which
// scripts/write_types.py writes from trace/columns.py.

import templates from "../words.json" with { type: "json" };
import looks from "../looks.json" with { type: "json" };
import columns from "../columns.json" with { type: "json" };

/** @type {Words} */
export const WORDS = templates;
/** @type {Looks} */
export const LOOKS = looks;
export const COLUMNS = /** @type {Column[]} */ (columns);
