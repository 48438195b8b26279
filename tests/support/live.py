"""The live page's decoder, run in Node on the shipped models."""

import json
from pathlib import Path

from support.node import printed

import speclab
from speclab.live.export import SCRIPTS
from speclab.views.modules import joined

MINI = Path(speclab.__file__).parent / "models" / "mini"
RUNS = """
const fs = require("fs");
const { folder, runs } = JSON.parse(fs.readFileSync(0, "utf8"));
const json = name => JSON.parse(fs.readFileSync(`${folder}/${name}`, "utf8"));
const model = name => {
  const weights = new Uint8Array(fs.readFileSync(`${folder}/${name}/model.safetensors`));
  return new Model(json(`${name}/config.json`), weights.buffer);
};
const tokenizer = new Tokenizer(json("tokenizer/tokenizer.json"));
const models = { target: model("target"), draft: model("draft"), tokenizer };
"""
FILES = (SCRIPTS / "decode.js", SCRIPTS / "forward.js", SCRIPTS / "tokenizer.js")
DECODED = """
(async () => {
  for (const { strategy, prompt, tokens } of runs) {
    const session = await new Session(models, strategy, tokenizer.encode(prompt), tokens).start();
    while (!session.finished) await session.step();
    const result = { trace: traceOf(session, {}) };
    process.stdout.write(`${JSON.stringify(result)}\\n`);
  }
})();
"""


def in_node(script, data):
    """What a script prints after the decoder's files; `data` is its standard input."""
    return printed(f"{joined(*FILES)}\n{script}", data)


def decoded(runs):
    """The traces; each run has a `strategy` as `describe` writes it, a `prompt` and a number of `tokens`."""
    lines = in_node(RUNS + DECODED, {"folder": str(MINI), "runs": runs}).splitlines()
    return [json.loads(line) for line in lines]
