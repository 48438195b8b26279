"""Builds the course as static pages: `make site`, or `python docs/site/build.py build/site`.

The first page is the live lab, which decodes in the browser. Sphinx reads the notebooks as they are
saved (nothing runs) and docs/. A run of the shipped models stands in each lesson that has one,
below its first lab, to be stepped in the browser, with a link that decodes the same live. The pages
ask nothing of the network; all but the live lab also open from a folder.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

import api
import nbformat
from sphinx.application import Sphinx

import speclab
from speclab import prompts, views
from speclab.live.export import LINKS, STRATEGIES

ROOT = Path(__file__).parents[2]
ADDRESS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
FIRST = "notebooks/01_from_scratch"
LILY = "Once upon a time there was a little girl named Lily. One day"
"""The text of lesson 1."""
RUNS = {
    "01_from_scratch": (speclab.LinearSpeculation(draft_tokens=5), LILY),
    "02_trees_masks_caches": (speclab.DynaTree(node_budget=24), "prose"),
    "03_when_does_a_tree_pay": (speclab.DraftHead(node_budget=13, depth=6, children=4), "dialogue"),
    "05_training_free": (speclab.Goose(node_budget=24, bypass="off"), "code"),
    "08_your_own_strategy": (speclab.LinearSpeculation(draft_tokens=5), "code"),
}
"""By lesson, the strategy of its run, and its prompt or the kind of it."""
TASKS = {
    "01_from_scratch": (
        "Of each chain, which token will be the last one accepted?",
        *RUNS["01_from_scratch"],
    ),
    "02_trees_masks_caches": (
        "Which node will be the last one accepted?",
        *RUNS["02_trees_masks_caches"],
    ),
    "03_when_does_a_tree_pay": (
        "Does this tree go deep enough? Guess, then widen it.",
        *RUNS["03_when_does_a_tree_pay"],
    ),
    "04_sampling": (
        "Here the target decodes greedily. Where would a sample most likely differ?",
        speclab.DynaTree(node_budget=12),
        "dialogue",
    ),
    "05_training_free": (
        "Copies form a spine, guesses its branches. Which node will be the last one accepted?",
        *RUNS["05_training_free"],
    ),
    "06_debugging_a_tree": (
        "Which rows would be wrong if a node saw its earlier siblings? Then look at the mask.",
        speclab.FixedTree(branching=2, depth=3),
        "prose",
    ),
    "07_measuring": (
        "How many tokens will this wide tree commit, and is it worth its rows?",
        speclab.FixedTree(branching=3, depth=3),
        "maths",
    ),
    "08_your_own_strategy": (
        "Which token breaks the chain? That is the one to beat it at.",
        *RUNS["08_your_own_strategy"],
    ),
    "elective_train_a_head": (
        "A head drafts this chain, a token per pass. Which token breaks it?",
        speclab.DraftHead(node_budget=6, depth=5, children=1),
        "prose",
    ),
    "elective_two_heads": (
        "Two heads drafted this tree's two candidates. How far will the verified one be right?",
        speclab.DualDraft(node_budget=16),
        "code",
    ),
}
"""By lesson, what to predict, with a strategy and a prompt or the kind of it: the live lab decodes it,
or shows it from a link, where it lacks the strategy."""
OPTIONS = {
    "project": "speclab",
    "html_title": "speclab",
    "root_doc": FIRST,
    "extensions": ["myst_nb", *api.EXTENSIONS, "api"],
    **api.OPTIONS,
    "nb_execution_mode": "off",
    "nb_merge_streams": True,
    "nb_ipywidgets_js": {},  # by default a CDN's
    "mathjax_path": "none.js",  # the same; the pages have no formulas
    # two named tuples may have fields of one name
    "suppress_warnings": ["myst.header", "mystnb.unknown_mime_type", "ref.python"],
    "myst_heading_anchors": 4,
    "html_theme": "furo",
    "html_static_path": [str(Path(__file__).with_name("static"))],
    "html_css_files": ["course.css"],
    "html_copy_source": False,
    "html_show_search_summary": False,  # it would fetch pages, which a browser refuses to a file
    "html_show_sphinx": False,
    "html_show_copyright": False,
}
HEADING = re.compile(r"^### Exercise [A-Z] ", re.MULTILINE)
TIME = re.compile(r"\*\*Time\.\*\* (.*?)\. ")
MINUTES = re.compile(r"\d+(?= minutes| for| more|$)")
LINK = re.compile(
    r"\]\((?:\.\./)*((?:README|CONTRIBUTING|CHANGELOG|LICENSE|speclab|tests|training|notebooks/00_lab)[\w./-]*)"
)


def stage(source: Path) -> None:
    """Writes what Sphinx reads; links to files that are no pages lead to the repository."""
    for folder in ("notebooks", "docs"):
        shutil.copytree(
            ROOT / folder,
            source / folder,
            ignore=shutil.ignore_patterns(".*", "site", "00_lab.ipynb"),
        )
    for path in source.rglob("*.md"):
        path.write_text(
            LINK.sub(rf"]({ADDRESS}/blob/main/\1", path.read_text(encoding="utf-8")),
            encoding="utf-8",
        )
    (source / "docs" / "api.rst").write_text(api.page(), encoding="utf-8")
    for path in source.rglob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        notebook.cells = prepared(notebook, path.stem)
        nbformat.write(notebook, path)


def prepared(notebook: Any, name: str) -> list[Any]:
    """The cells of a notebook as a page shows them."""
    cells = []
    for cell in notebook.cells:
        folded = {"source_hidden": "hide-input", "outputs_hidden": "hide-output"}
        hidden = [tag for fold, tag in folded.items() if cell.metadata.get("jupyter", {}).get(fold)]
        cell.metadata["tags"] = [*cell.metadata.get("tags", ()), *hidden]
        shown = cell.metadata.setdefault("mystnb", {})  # the descriptions of pictures
        for word in ("Show", "Hide"):
            shown[f"code_prompt_{word.lower()}"] = f"{word} the folded part"
        for picture, bundle in cell.pop("attachments", {}).items():
            data = f"data:image/png;base64,{bundle['image/png']}"
            cell.source = cell.source.replace(f"attachment:{picture}", data)
        before, quiz, after = cell.source.rpartition("## Quiz\n")
        if quiz:  # its cell may begin with what the last section found
            cell.source = f"{before}{task(name)}\n\n{quiz}{after}"
        cells.append(cell)
        if (
            "lab" in cell.metadata["tags"]
            and name in RUNS
            and all("iframe" not in one.source for one in cells)
        ):
            cells.append(nbformat.v4.new_markdown_cell(frame(name)))
    if name == Path(FIRST).name:
        cells.append(nbformat.v4.new_markdown_cell(contents()))
    return cells


def frame(name: str) -> str:
    """A run in a page."""
    words = "A run that can be stepped here: click into it, then the arrow keys go through its iterations."
    source = f"../runs/{name}.html"
    links = f'<a href="{source}">On a page of its own</a>{live_link(name)}'
    return f'{words} {links}\n\n<iframe src="{source}" loading="lazy"></iframe>'


def is_live(strategy: speclab.Strategy) -> bool:
    """Whether the live lab has a strategy."""
    return type(strategy) in map(type, STRATEGIES)


def live_link(name: str) -> str:
    """A link that decodes the run of a lesson in the browser, if the live lab has its strategy."""
    strategy, prompt = RUNS[name]
    if not is_live(strategy):
        return ""
    return f' · <a href="{address_of(strategy, prompt)}">Decode it live</a>'


def task(name: str) -> str:
    """What a class predicts: each on a phone, from a link."""
    question, strategy, prompt = TASKS[name]
    if is_live(strategy):
        address = f"{address_of(strategy, prompt)}#guess"
    else:
        address = f"../index.html#{shown(strategy, prompt)}&guess"
    link = f'<a href="{address}">This text</a>'
    return f"**Predict on your phone.** {link}: {question} A click on a node shows the verdicts."


def address_of(strategy: Any, prompt: str) -> str:
    """The live lab with a strategy and a prompt."""
    numbers = {key: value for key, value in strategy if isinstance(value, int | float)}
    asked = {"strategy": type(strategy).__name__, **numbers, "prompt": text_of(prompt)}
    return f"../index.html?{escape(urlencode(asked))}"


def text_of(prompt: str) -> str:
    """A prompt, or the first shipped one of a kind."""
    return prompts.examples(prompt)[0].text if prompt in prompts.kinds() else prompt


def entry(name: str) -> str:
    """A lesson in the sidebar: its number and title, the minutes and the exercises."""
    path = ROOT / "notebooks" / f"{name}.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    title = prose.partition("\n")[0].removeprefix("# ").removeprefix("Elective: ")
    minutes = sum(map(int, MINUTES.findall(TIME.search(prose)[1])))
    number = name[1] if name[0] == "0" else "Elective"
    target = "self" if path.stem == Path(FIRST).name else f"/notebooks/{name}"
    return f"{number} · {title} ({minutes} min, {len(HEADING.findall(prose))} exercises) <{target}>"


def contents() -> str:
    """The list of all pages, which the sidebar shows."""
    lessons = sorted(
        path.stem for path in (ROOT / "notebooks").glob("*.ipynb") if path.stem != "00_lab"
    )
    pages = {"The course": [*map(entry, lessons), "/notebooks/glossary"]}
    pages["Reference"] = [f"/docs/{path.stem}" for path in sorted((ROOT / "docs").glob("*.md"))]
    pages["Reference"].append("/docs/api")
    return "\n\n".join(
        "\n".join(
            ["```{toctree}", ":hidden:", ":titlesonly:", f":caption: {caption}", "", *listed, "```"]
        )
        for caption, listed in pages.items()
    )


def export_runs(folder: Path) -> None:
    """Decodes each of `RUNS`, and writes it as a page."""
    pair = speclab.load_pair()
    folder.mkdir(parents=True)
    for name, (strategy, kind) in RUNS.items():
        session = speclab.Session(pair, strategy, text_of(kind), max_new_tokens=48)
        session.run()
        views.export_html(session.trace, folder / f"{name}.html")


def shown(strategy: Any, prompt: str) -> str:
    """A run's iteration whose path has most sources, then the longest one, as a link has it."""
    session = speclab.Session(speclab.load_pair(), strategy, text_of(prompt), max_new_tokens=96)
    session.run()
    index = max(range(len(session.steps)), key=lambda i: variety(session.steps[i]))
    return escape(speclab.link(session, first=index, last=index).partition("#")[2])


def variety(step: Any) -> tuple[int, int]:
    """How many sources the accepted path has, and how many nodes."""
    return len({step.tree.source[node] for node in step.accepted}), len(step.accepted)


def build(out: Path) -> int:
    """Writes the whole site anew; returns how many warnings there were."""
    shutil.rmtree(out, ignore_errors=True)
    with TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        made = Path(scratch) / "made"
        stage(source)
        app = Sphinx(source, None, made / "pages", made / "kept", "html", OPTIONS)
        app.build()
        shutil.copytree(
            made / "pages", out, ignore=shutil.ignore_patterns(".*", "_sources", "objects.inv")
        )
    export_runs(out / "runs")
    first = speclab.export_live(out) / "index.html"
    course = f' <a href="{FIRST}.html">The course</a> explains each step.'
    page = first.read_text(encoding="utf-8").replace(LINKS, course)
    first.write_text(page, encoding="utf-8")
    return app.statuscode


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else "build/site").resolve()))
