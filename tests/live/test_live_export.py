"""The exported folder: whole, and without an address but its own."""

from __future__ import annotations

import gzip
import json
import re
from hashlib import sha256

import pytest
from support.command import speclab_command

import speclab
from speclab.features.link import PAGE

OWN = {"http://www.w3.org/2000/svg", "http://localhost:8000", PAGE.rstrip("/")}
"""The name of SVG's elements, what a page that was opened as a file advises, and where links open."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "new" / "page"
    done = speclab_command("live", path)
    assert done.exit_code == 0, done.output
    assert str(path) in done.output
    return path


def scripts(folder):
    return {
        name: gzip.decompress((folder / name).read_bytes()).decode()
        for name in ("page.js.gz", "worker.js.gz")
    }


def setup(folder):
    text = scripts(folder)["worker.js.gz"]
    return json.JSONDecoder().raw_decode(text, text.index("{"))[0]


def test_the_code_is_small_and_names_no_other_address(folder):
    texts = [*scripts(folder).values(), (folder / "index.html").read_text()]
    assert {
        address for text in texts for address in re.findall(r"https?://[\w.:/]*\w", text)
    } <= OWN
    code = ("index.html", "page.js.gz", "worker.js.gz")
    assert sum((folder / name).stat().st_size for name in code) < 150_000


def test_a_space_is_a_folder_with_a_readme(tmp_path):
    done = speclab_command("live", tmp_path / "page", "--space")
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "page" / "README.md").read_text().splitlines()
    assert "sdk: static" in lines


def test_the_worker_knows_the_size_and_the_hash_of_each_file(folder):
    lab = setup(folder)
    assert {one["name"] for one in lab["files"]} == {
        "target.safetensors",
        "draft.safetensors",
        "tokenizer.json",
    }
    for one in lab["files"]:
        data = (folder / one["name"]).read_bytes()
        assert one["size"] == len(data)
        assert one["sha256"] == ",".join(map(str, sha256(data).digest()))


def test_every_offered_preset_and_default_is_valid_and_needs_no_kernel(folder):
    lab = setup(folder)
    known = speclab.strategies()
    for offered in lab["catalog"]["strategies"]:
        for settings in (
            offered["settings"],
            *[preset["settings"] for preset in offered["presets"]],
        ):
            strategy = known[offered["name"]](**settings)
            assert strategy.model_dump(mode="json") == settings
            assert getattr(strategy, "root", "verified") == "verified"
            assert getattr(strategy, "history", "off") == "off"


def test_models_that_no_browser_runs_are_refused(tmp_path):
    with pytest.raises(speclab.UnsupportedModelError, match="smollm2"):
        speclab.export_live(tmp_path, "smollm2")
    with pytest.raises(speclab.SpeclabError):
        speclab.export_live(tmp_path, "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(speclab.SpeclabError, match="file"):
        speclab.export_live(tmp_path / "file")
