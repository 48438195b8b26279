"""The live page's decoder, run in Node on the shipped models, and how its steps differ from a session's."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.node import node

import speclab
from speclab.live.export import decoder

MINI = Path(speclab.__file__).parent / "models" / "mini"
NEAR = 0.005
"""Log-probabilities closer than this may be ordered either way."""
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


def in_node(script: str, data: Any) -> str:
    """What a script prints after the decoder's files; `data` is its standard input."""
    path = node()
    assert path is not None, "no Node: install playwright"
    source = f"{decoder()}\n{script}"
    done = subprocess.run(
        [path, "-e", source],
        input=json.dumps(data),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert not done.returncode, done.stderr[-3000:]
    return done.stdout


def decoded(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The traces; each run has a `strategy` as `describe` writes it, a `prompt` and a number of `tokens`."""
    lines = in_node(RUNS + DECODED, {"folder": str(MINI), "runs": runs}).splitlines()
    return [json.loads(line) for line in lines]


def differences(live: Any, own: Any, where: str = "") -> Iterator[str]:
    """Where two records differ by more than rounding; seconds are not compared."""
    if where.endswith(".seconds"):
        return
    if isinstance(own, dict | list) and isinstance(live, type(own)):
        mine, its = (
            each if isinstance(each, dict) else dict(enumerate(each)) for each in (live, own)
        )
        for name in sorted(mine.keys() | its.keys(), key=str):
            yield from differences(
                mine.get(name, "absent"), its.get(name, "absent"), f"{where}.{name}"
            )
    elif isinstance(own, float) and isinstance(live, int | float):
        if not math.isclose(live, own, rel_tol=1e-3, abs_tol=1e-3):
            yield f"{where}: {live} and {own}"
    elif live != own:
        yield f"{where}: {live!r} and {own!r}"
