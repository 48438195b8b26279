"""A machine on which nobody has worked, as `scripts/bare.sh` shows it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "bare.sh"
LOOK = "command -v chromium node; ls -A $HOME; test -z ${BROWSER_PATH:-} || exit 1; exit 7"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_browser_node_and_home_are_hidden_and_the_command_s_status_is_kept(tmp_path):
    programs = tmp_path / "programs"
    home = tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    (home / "diary").touch()
    for name in ("chromium", "node"):
        program = programs / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(home),
        "BROWSER_PATH": "chromium",
    }
    done = subprocess.run(
        ["bash", SCRIPT, "sh", "-c", LOOK],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if "NOT RUN" in done.stderr:
        pytest.skip("no mount namespace here")
    assert (done.returncode, done.stdout) == (7, "")
    assert os.access(programs / "chromium", os.X_OK), "nobody else sees it"
    assert (home / "diary").exists()
