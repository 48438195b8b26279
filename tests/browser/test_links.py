"""Links, files and messages in Chromium: what is right is shown, what is wrong gets a sentence and loses nothing."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from opened import CURSOR, ERROR, TREE, Opened, text
from serving import served

import speclab

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "features/link/golden.json").read_text(encoding="utf-8")
)
ITERATION = GOLDEN["an iteration of DynaTree"]["link"]
RUN = GOLDEN["a run of DynaTree"]["link"]
DROP = """([name, bytes]) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([Uint8Array.from(bytes)], name));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
}"""
PHASE = "document.querySelector('[data-phase][aria-pressed=true]')?.dataset.phase"
ADDRESS = "(document.querySelector('.sl-panel input[type=url]')?.value ?? '')"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The live page below a path prefix, with a run beside it."""
    root = tmp_path_factory.mktemp("site")
    folder = speclab.export_live(root / "a" / "lab")
    speclab.open_link(RUN).save(folder / "run.json.gz")
    (folder / "notes.json.gz").write_bytes(b"no run")
    with served(root) as address:
        yield address.replace("index.html", "a/lab/index.html")


@pytest.fixture
def opened(browser, site):
    page = Opened.at(browser, f"{site}#r={RUN}&i=3&phase=accept&node=5&tab=node")
    yield page
    assert page.strangers == []
    page.page.close()


def test_a_link_is_shown_at_its_place_without_models_and_goes_on(opened, site):
    opened.wait(f"{CURSOR} === '3 of 16' && {PHASE} === 'accept'")
    opened.wait(
        "document.querySelector('[data-tab=node]').getAttribute('aria-selected') === 'true'"
    )
    opened.wait("speclab.state().node === 5")
    assert opened.read(f"{text('sl-node-line')}.length")
    assert not any(url.endswith((".safetensors", "tokenizer.json")) for url in opened.requests)
    opened.page.click("button.sl-back")
    opened.wait(f"{CURSOR} === '2 of 16'")
    opened.menu("Copy link")
    opened.wait(f"{ADDRESS}.includes('#r=1.')")
    address = opened.read(ADDRESS)
    assert address.startswith(site + "#r=1.")
    assert len(address) - len(site) < 500
    (step,) = speclab.open_link(address).steps
    known = speclab.open_link(RUN).steps[1]
    assert (step.accepted, step.tree.parent.tolist()) == (
        known.accepted,
        known.tree.parent.tolist(),
    )
    opened.menu("Copy link of the run")
    opened.wait(f"{ADDRESS}.length > 2000")
    assert speclab.open_link(opened.read(ADDRESS)).steps[5].accepted == known_accepted(5)
    again = opened.page.get_attribute("text=Decode it here", "href")
    assert "strategy=DynaTree" in again
    assert "Once+upon+a+time" in again
    opened.page.evaluate("link => { location.hash = link; }", f"r={ITERATION}")
    opened.wait(f"{CURSOR} === '1 of 1'")
    opened.page.evaluate("link => { location.hash = link; }", f"r={RUN}&i=4&guess")
    opened.wait(f"{CURSOR} === '4 of 16' && speclab.state().veiled === 3")
    assert opened.page.is_disabled("[data-phase=accept]")
    assert opened.complaints == []


def known_accepted(index):
    return tuple(GOLDEN["a run of DynaTree"]["accepted"][index])


def _damaged():
    """Files that Python refuses, and the sentence that it has for each."""
    good = json.loads(speclab.trace.codecs.adapter(speclab.Trace).dump_json(speclab.open_link(RUN)))

    def changed(*place, to):
        data = json.loads(json.dumps(good))
        part = data
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = to
        return data

    for data in (
        {"x": 1},
        changed("version", to=999),
        changed("steps", to=[{}]),
        changed("steps", 2, "tree", "parent", 5, to=9),
        changed("steps", 2, "nodes", 3, "token", to=-4),
        changed("steps", 2, "accepted", to=[400]),
    ):
        yield gzip.compress(json.dumps(data).encode())
    yield gzip.compress(json.dumps(good).encode())[:-400]
    yield b"no run"


def test_a_damaged_file_gets_the_sentence_of_python_and_the_picture_stays(opened):
    opened.wait(f"{CURSOR} === '3 of 16'")
    before = opened.read(TREE)
    sentences = set()
    for number, packed in enumerate(_damaged()):
        name = f"run{number}.json.gz"
        with pytest.raises(speclab.TraceError) as refused:
            speclab.trace.files.unpack_trace(packed, name)
        opened.page.evaluate(DROP, [name, list(packed)])
        opened.wait(f"{ERROR}.includes({name!r})")
        assert opened.read(ERROR) == str(refused.value)
        sentences.add(opened.read(ERROR))
        assert opened.read(TREE) == before
    assert len(sentences) == number + 1
    for link in (ITERATION[:90], "1." + "A" * 70_000, "9." + ITERATION[2:]):
        opened.page.evaluate("link => { location.hash = link; }", f"r={link}")
        opened.wait(f"{ERROR}.startsWith('The link')")
        assert opened.read(TREE) == before
        opened.page.evaluate(DROP, ["run0.json.gz", [1]])
        opened.wait(f"{ERROR}.startsWith('run0')")


def test_a_run_comes_from_an_address_and_what_does_not_come_is_said(browser, site):
    page = Opened.at(browser, f"{site}?run=run.json.gz#i=2")
    page.wait(f"{CURSOR} === '2 of 16'")
    for run, why in {
        "gone.json.gz": "404",
        "notes.json.gz": "not gzipped",
        "http://127.0.0.1:9/run.json.gz": "https",
        "https://127.0.0.1:9/run.json.gz": "CORS",
    }.items():
        page.page.goto(f"{site}?run={run}")
        page.wait(f"{text('sl-loading')}.includes({why!r})")
    page.page.click("button.speclab-step")
    page.wait(f"{CURSOR} === '1 of 1'")
    page.page.close()


def test_another_page_opens_a_run_and_is_answered(browser, site):
    host = urlsplit(site)
    with served(Path(__file__).parent) as other:
        page = Opened.at(browser, other)
        page.page.evaluate(
            """address => {
              window.heard = [];
              addEventListener("message", ({ data }) => heard.push(data));
              const frame = Object.assign(document.createElement("iframe"), { src: address });
              document.body.replaceChildren(frame);
            }""",
            f"{site}#r={ITERATION}",
        )
        frame = page.page.frame_locator("iframe")
        frame.locator(".sl-place", has_text="1 of 1").wait_for(state="attached")
        send = f"link => frames[0].postMessage({{speclab: 'open', link}}, 'http://{host.netloc}')"
        page.page.evaluate(send, RUN)
        frame.locator(".sl-place", has_text="1 of 16").wait_for(state="attached")
        frame.locator(".sl-pending", has_text=other.rpartition("/")[0]).wait_for()
        page.page.evaluate(send, RUN[:70])
        page.wait("heard.length === 2")
        assert [one["speclab"] for one in page.read("heard")] == ["opened", "refused"]
        page.page.close()


def test_an_exported_page_has_places_and_opens_files(browser, tmp_path):
    trace = speclab.open_link(RUN)
    path = speclab.views.export_html(trace, tmp_path / "run.html")
    page = Opened.at(browser, f"{path.as_uri()}#i=5&phase=verify&node=2")
    page.wait(f"{CURSOR} === '5 of 16' && {PHASE} === 'verify'")
    page.menu("Copy link")
    page.wait(f"{ADDRESS}.startsWith('https://')")
    speclab.open_link(ITERATION).save(tmp_path / "one.json.gz")
    page.page.evaluate(DROP, ["one.json.gz", list((tmp_path / "one.json.gz").read_bytes())])
    page.wait(f"{CURSOR} === '1 of 1'")
    page.page.evaluate(DROP, ["two.json.gz", [1, 2]])
    page.wait(f"{ERROR}.includes('two.json.gz')")
    assert page.complaints == []
    page.page.close()
    shutil.rmtree(tmp_path)


def test_the_lab_copies_links_and_opens_them_beside_its_run(lab):
    lab.menu("Copy link")
    lab.wait(f"{ADDRESS}.includes('#r=1.')")
    (step,) = speclab.open_link(lab.read(ADDRESS)).steps
    assert len(step.tree) > 1
    lab.menu("Open link")
    lab.page.fill(".sl-panel input[type=url]", f"https://example.org/#r={RUN}&i=3")
    drawn = "speclab.dispatch({ type: 'set', values: { link: { ...speclab.state().link } } })"
    lab.page.evaluate(f"{drawn}; new Promise(requestAnimationFrame)")
    lab.page.keyboard.press("End")
    lab.page.keyboard.type("&phase=accept")  # a tab that is drawn anew keeps text and focus
    lab.page.click(".sl-panel button:text('Open')")
    lab.wait(f"{CURSOR} === '3 of 16' && {PHASE} === 'accept'")
    assert lab.strangers == []
