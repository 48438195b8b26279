"""Does an installed speclab do what README says, where none of its source is? test_release.py and
`make release` ask.

`python tests/installed.py dist/speclab-….whl` makes an environment from nothing, installs torch and
the wheel with the tested pins, runs every check and every notebook from an empty folder, prints
what it did, and removes it all.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
USER = """\
import speclab
from speclab import host

pair: speclab.ModelPair = speclab.load_pair("mini")
session = speclab.Session(pair, speclab.DynaTree(base_depth=5), "Once upon a time", max_new_tokens=24)
step = session.step()
words: list[str] = [step.texts[token] for token in step.committed]
result: speclab.Generation = speclab.generate(pair, speclab.Goose(), "Once upon a time", max_new_tokens=24)
assert "".join(words) in result.text, (words, result.text)
every: list[speclab.Strategy] = [getattr(speclab, name)() for name in speclab.strategies(by_hand=False)]
print(speclab.__file__, len(every), speclab.Lab.__name__, host.jupyter_command(None, [])[3], sep="|")
"""
"""What a user writes; with every strategy, each by its name alone, and the course, as `speclab lab` copies it."""


def call(*command, folder):
    """What a command printed in a folder, this clone and this environment forgotten."""
    done = subprocess.run(
        command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (
        f"{command} gave {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout + done.stderr


def _environment():
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "JUPYTER_CONFIG_PATH", "JUPYTER_PATH")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def works(place, folder):
    """A user's file: it decodes with the models of the wheel, the lab is there, and the course is copied."""
    (folder / "user.py").write_text(USER)
    at, count, name, first = (
        call(place / "python", "user.py", folder=folder).strip().splitlines()[-1].split("|")
    )
    assert Path(at).resolve().is_relative_to(place.parent.resolve()), at
    assert name == "Lab"
    names = {path.name for path in (ROOT / "notebooks").glob("[!._]*")}
    copied = {path.name for path in (folder / first).parent.iterdir()}
    assert names <= copied, names - copied
    return f"decodes with {at}; {count} strategies; {len(names)} files beside {first}"


def _say(text, started):
    print(f"{time.monotonic() - started:6.1f} s  {text}", flush=True)


def main(wheel):
    """The whole way of somebody new, on a machine that has Python alone."""
    with TemporaryDirectory(prefix="speclab-release-") as scratch:
        place = Path(scratch) / "venv" / "bin"
        folder = Path(scratch) / "somewhere"
        started = time.monotonic()
        folder.mkdir()
        call(sys.executable, "-m", "venv", place.parent, folder=folder)
        pip = [
            place / "python",
            *["-m", "pip", "install", "-q", "--disable-pip-version-check", "-c"],
            CONSTRAINTS,
        ]
        call(*pip, "torch", folder=folder)
        _say("a new environment, and pip install torch", started)
        call(*pip, wheel.resolve(), folder=folder)
        _say(f"pip install {wheel.name}", started)
        _say(call(place / "python", "-m", "pip", "check", folder=folder).strip(), started)
        ran = call(place / "speclab", "run", "--pair", "mini", "Once upon a time", folder=folder)
        _say(f"speclab run: {' '.join(ran.split())[:120]}…", started)
        call(place / "speclab", "doctor", folder=folder)
        _say(works(place, folder), started)
        for notebook in sorted((folder / "speclab-notebooks").glob("*.ipynb")):
            call(place / "jupyter", "execute", notebook, folder=folder)
            _say(f"runs top to bottom: {notebook.name}", started)
    _say("the environment is removed", started)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
