// Whether the chosen strategy should be slower here than plain decoding, before it is applied.

import { made } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import { words } from "../../views/page/words.js";
import PACE_WORDS from "./words.json" with { type: "json" };

register(
  {
    name: "pace",
    page: () => ({
      above({ pace }) {
        if (!pace?.strategy) return null;
        const look = { class: "sl-muted", role: "status" };
        return made("p", look, words("pace", "slower", pace));
      }
    })
  },
  PACE_WORDS
);
