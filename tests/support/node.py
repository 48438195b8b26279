"""Scripts run in Node, which Playwright's wheel brings."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path


def _node():
    spec = find_spec("playwright")
    if spec is not None and spec.origin is not None:
        driver = Path(spec.origin).parent / "driver" / "node"
        if driver.exists():
            return str(driver)
    path = shutil.which("node")
    assert path is not None, "no Node: install playwright"
    return path


def printed(script, data):
    """What a script prints; `data` is its standard input."""
    done = subprocess.run(
        [_node(), "-e", script],
        input=json.dumps(data),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert not done.returncode, done.stderr[-3000:]
    return done.stdout
