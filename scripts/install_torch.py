"""Installs the build of torch for this machine; `make setup` calls it in the new environment.

For Linux, the package index has torch with CUDA: 2.7 GB to download, whether or not there is a GPU.
PyTorch has builds without (0.2 GB) on its own indexes. uv knows them, and looks for a GPU.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PIP = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile")
TORCH = ("-c", str(CONSTRAINTS), "torch")
UV = ("pip", "install", "--python", sys.executable, "--torch-backend", "auto", "--no-deps")
"""Without what torch depends on, which pip installs next, as pinned."""


def succeeds(*command: str) -> bool:
    return subprocess.run(command, check=False).returncode == 0


def install() -> bool:
    """Whether torch is installed, from the first place that has it."""
    # installed already, or a file in a folder that pip's find-links names
    known = subprocess.run(
        [*PIP, "--quiet", "--no-index", "--no-deps", *TORCH], capture_output=True, check=False
    )
    if known.returncode == 0:
        return True
    print("Looking for the build of torch for this machine (0.2 GB without a GPU)…", flush=True)
    with TemporaryDirectory() as folder:
        uv = str(Path(folder, "bin", "uv"))
        if succeeds(*PIP, "--quiet", "--target", folder, "uv") and succeeds(uv, *UV, *TORCH):
            return True
    print(
        "PyTorch's own indexes have no build for this machine, or cannot be reached, so torch comes "
        "from the package index: about 2.7 GB on Linux. Stop this and install a build by hand with "
        f"{sys.executable} -m pip, if you have one.",
        flush=True,
    )
    return succeeds(*PIP, *TORCH)


if __name__ == "__main__":
    sys.exit(not install())
