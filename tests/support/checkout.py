"""The files that git keeps, and copies of them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def copy_or_link(source, to):
    """Copies a file for `shutil.copytree`; large ones, which are weights, are links."""
    (os.symlink if os.path.getsize(source) > 1 << 20 else shutil.copy)(source, to)


def kept(*options):
    """Names from `git ls-files`, relative to the checkout; skips a test outside of one."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    command = ["git", "ls-files", "-z", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [name for name in done.stdout.split("\0") if (ROOT / name).is_file()]
