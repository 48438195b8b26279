// The row of runs above the timeline.

import { LOOKS, WORDS } from "../../views/page/data.js";
import { asks, made, span } from "../../views/page/draw.js";
import { register } from "../../views/page/features.js";
import RUNS_WORDS from "./words.json" with { type: "json" };

/**
 * The runs and forks of this lab, each with its colour; nothing for one run.
 * @param {State} state
 * @param {(message: Message) => void} send
 */
function runsOf({ runs }, send) {
  if (runs.length < 2) return null;
  const buttons = runs.map(({ name, number, iterations, shown }) => {
    const color = LOOKS.sources[number % LOOKS.sources.length];
    const dot = made("i", { style: `color:${color}` }, "● ");
    const look = { "aria-pressed": String(shown), "data-run": number };
    const show = asks(send, "", { do: "switch", run: number }, look);
    show.append(dot, `${name} · ${iterations}`);
    const title = `close ${name}`;
    const close = asks(send, "×", { do: "close", run: number }, { title });
    close.hidden = shown;
    return span("sl-run", show, close);
  });
  return made("div", WORDS.controls.runs, ...buttons);
}

register(
  {
    name: "runs",
    state: { runs: [] },
    reduce: (state, event) => (event.type === "runs" ? [{ ...state, runs: event.runs }, []] : null),
    page: ({ send }) => ({ above: state => runsOf(state, send) })
  },
  RUNS_WORDS
);
