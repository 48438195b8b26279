"""Scripts run in Node, which Playwright's wheel brings; and what they compute, compared with Python's."""

import json
import math
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


def assert_equal(page, own, within=1e-6, where=""):
    """Numbers to a rounding error, everything else exactly; seconds are not compared."""
    if page == own or where.endswith(".seconds"):
        return
    if isinstance(own, dict):
        assert page.keys() == own.keys(), where
        for key, value in own.items():
            assert_equal(page[key], value, within, f"{where}.{key}")
    elif isinstance(own, list | tuple):
        assert len(page) == len(own), (where, page, own)
        for number, (mine, its) in enumerate(zip(page, own, strict=True)):
            assert_equal(mine, its, within, f"{where}.{number}")
    elif isinstance(own, float):
        assert math.isclose(page, own, rel_tol=within, abs_tol=within), (where, page, own)
    else:
        assert page == own, (where, page, own)
