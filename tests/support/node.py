"""The page's pure functions, run in Node; Playwright's wheel brings one."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import speclab
from speclab.views.run_data import PURE

VIEWS = Path(speclab.__file__).parent / "views"


def node() -> str | None:
    """The path of a Node, or None."""
    spec = find_spec("playwright")
    if spec is not None and spec.origin is not None:
        driver = Path(spec.origin).parent / "driver" / "node"
        if driver.exists():
            return str(driver)
    return shutil.which("node")


def evaluated(expression: str, data: Any, files: tuple[str, ...] = PURE) -> Any:
    """The value of a JavaScript expression, in the scope of the page's pure files; `data` is its input."""
    scripts = [(VIEWS / "page" / name).read_text(encoding="utf-8") for name in files]
    words, looks = (
        (VIEWS / name).read_text(encoding="utf-8") for name in ("words.json", "looks.json")
    )
    script = "\n".join([
        f"const WORDS = {words};",
        f"const LOOKS = {looks};",
        *scripts,
        'const data = JSON.parse(require("fs").readFileSync(0, "utf8"));',
        f"process.stdout.write(JSON.stringify({expression}));",
    ])  # fmt: skip
    path = node()
    assert path is not None, "no Node: install playwright"
    done = subprocess.run(
        [path, "-e", script],
        input=json.dumps(data),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert not done.returncode, done.stderr[-3000:]
    return json.loads(done.stdout)
