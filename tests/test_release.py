"""What is published: the sdist and the wheel that is built from it, what they hold, and that an installed one works."""

import email
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from installed import ROOT, works
from support.checkout import kept
from support.processes import python

import speclab

ADDRESS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
MOST_BYTES = 60_000_000
"""Of a wheel; package indexes take 100 MB. The models and heads are 57 MB of it."""
pytestmark = [pytest.mark.model, pytest.mark.night]
COURSE = f"speclab_decoding-{speclab.__version__}.data/data/share/speclab/notebooks/"
RECORDS = f"speclab_decoding-{speclab.__version__}.dist-info/"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An sdist of this tree, and the wheel made from what the sdist holds."""
    out = tmp_path_factory.mktemp("dist")
    python("-m", "build", "--no-isolation", "--outdir", out, ROOT)
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(built):
    with zipfile.ZipFile(built[1]) as opened:
        yield opened


def _kept(folder):
    """Files of a folder that git keeps, or would."""
    return set(kept("--cached", "--others", "--exclude-standard", folder))


def test_a_wheel_holds_the_package_the_course_and_nothing_else(wheel):
    found = {name for name in wheel.namelist() if not name.startswith(RECORDS)}
    course = {COURSE + name.removeprefix("notebooks/") for name in _kept("notebooks")}
    assert found == _kept("speclab") | course
    for part in (
        "speclab/py.typed",
        "speclab/models/mini/target/model.safetensors",
        COURSE + "00_lab.ipynb",
    ):
        assert part in found
    assert sum(info.compress_size for info in wheel.infolist()) < MOST_BYTES


def test_what_an_index_shows_leads_into_the_repository(wheel):
    shown = email.message_from_bytes(wheel.read(RECORDS + "METADATA"))
    assert shown["Version"] == speclab.__version__
    targets = re.findall(r"\]\(([^)\s#][^)\s]*)\)", str(shown.get_payload()))
    assert all(target.startswith("https://") for target in targets)
    into = [target.removeprefix(ADDRESS) for target in targets if target.startswith(ADDRESS)]
    paths = [re.sub(r"^/(?:blob|raw)/main/|#.*", "", target) for target in into]
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Programs of an environment of its own: the wheel as pip installs it, other packages from this environment."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(place), "platbase": str(place)}))
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", built[1]], check=True)
    return place / "bin"


@pytest.mark.skipif(sys.platform == "win32", reason="programs of an environment are elsewhere")
def test_an_installed_wheel_works_from_an_empty_folder(installed, tmp_path):
    assert works(installed, tmp_path)
