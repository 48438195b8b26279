"""Builds the course as static pages: `make site`, or `python docs/site/build.py build/site`.

Sphinx reads README, the notebooks as they are saved (nothing runs) and docs/. The pages ask nothing of the network and
open from a folder: figures are their PNGs. Two runs of the shipped models are decoded and exported, to be stepped in
the browser.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from posixpath import join, normpath, relpath
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from latex2mathml.converter import convert
from sphinx.application import Sphinx

import speclab
from speclab import prompts, views

ROOT = Path(__file__).parents[2]
ADDRESS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
RUNS = (
    ("dynatree", speclab.DynaTree.for_unsure_draft(), "prose", "DynaTree drafts trees for a story"),
    ("goose", speclab.Goose(node_budget=24), "code", "GOOSE drafts a program without a draft model"),
)
"""Runs that can be stepped: name, strategy, kind of prompt, title."""
OPTIONS = {
    "project": "speclab",
    "html_title": "speclab",
    "extensions": ["myst_nb"],
    "nb_execution_mode": "off",
    "nb_merge_streams": True,
    "nb_ipywidgets_js": {},  # by default a CDN's
    "mathjax_path": "none.js",  # the same; formulas are MathML
    "suppress_warnings": ["myst.header", "mystnb.unknown_mime_type"],
    "myst_heading_anchors": 4,
    "html_theme": "furo",
    "html_static_path": [str(Path(__file__).with_name("static"))],
    "html_css_files": ["course.css"],
    "html_copy_source": False,
    "html_show_search_summary": False,  # it would fetch pages, which a browser refuses to a file
    "html_show_sphinx": False,
    "html_show_copyright": False,
}
ABOUT = ("CONTRIBUTING.md", "CHANGELOG.md")
ROW = re.compile(r"(?m)^\| \[([^\]]*)\]\((notebooks/[^)]*\.ipynb)\)")
"""A notebook in README's table: title, path."""
CHECKED = "# NBVAL_CHECK_OUTPUT\n"
"""A line of a cell that is for the tests alone."""
_LINK = re.compile(r"(\]\()([\w./-]+)((?:#[\w-]*)?\))")
_FORMULA = re.compile(r"(```.*?```|`[^`]*`)|\$\$(.+?)\$\$|\$(\S|\S[^$\n]*\S)\$", re.DOTALL)


def stage(source: Path) -> None:
    """Writes what Sphinx reads."""
    for folder in ("notebooks", "docs"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns(".*", "site"))
    for name in ABOUT:
        shutil.copy(ROOT / name, source)
    (source / "index.md").write_text(start_page(), encoding="utf-8")
    for path in [*source.rglob("*.md"), *source.rglob("*.ipynb")]:
        folder = path.parent.relative_to(source).as_posix()

        def here(target: str, folder: str = folder) -> str | None:
            inside = "index.md" if target == "README.md" else target
            return relpath(inside, folder) if (source / inside).exists() else None

        if path.suffix == ".ipynb":
            notebook = nbformat.read(path, as_version=4)
            prepare(notebook, folder, here)
            nbformat.write(notebook, path)
        else:
            path.write_text(page(path.read_text(encoding="utf-8"), folder, here), encoding="utf-8")


def prepare(notebook: Any, folder: str, here: Callable[[str], str | None]) -> None:
    """Takes out what is for tests alone, and makes pages of the texts, in place."""
    for cell in notebook.cells:
        cell.source = cell.source.removeprefix(CHECKED)
        if cell.cell_type == "markdown":
            cell.source = page(cell.source, folder, here)
        elif cell.source:
            folded = {"source_hidden": "hide-input", "outputs_hidden": "hide-output"}
            hidden = [tag for name, tag in folded.items() if cell.metadata.get("jupyter", {}).get(name)]
            cell.metadata["tags"] = [*cell.metadata.get("tags", ()), *hidden]
            lines = cell.source.splitlines()
            drawn = next((line for line in reversed(lines) if "views." in line), lines[-1]).strip()
            cell.metadata["mystnb"] = {"image": {"alt": f"drawn by {drawn}"}}
            if "hide-output" in hidden:
                folds = {f"code_prompt_{word.lower()}": f"{word} the answer" for word in ("Show", "Hide")}
                cell.metadata["mystnb"] |= folds


def page(text: str, folder: str, here: Callable[[str], str | None]) -> str:
    """Markdown with its formulas as MathML, which browsers show without a script, and links that lead somewhere.

    `here`: gives the link to a file of the repository, or None; then it leads to the repository.
    """

    def link(found: re.Match[str]) -> str:
        target = normpath(join(folder, found[2]))
        if not (ROOT / target).exists():
            return found[0]
        return f"{found[1]}{here(target) or f'{ADDRESS}/blob/main/{target}'}{found[3]}"

    def formula(found: re.Match[str]) -> str:
        display = "block" if found[2] else "inline"
        return found[1] or convert((found[2] or found[3]).strip(), display=display)

    inside = text.replace(f"]({ADDRESS}/blob/main/", f"]({relpath('.', folder)}/")
    return _LINK.sub(link, _FORMULA.sub(formula, inside))


def start_page() -> str:
    """README with the course and its runs first, and the list of all pages."""
    head, *rest = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")
    sections = {text.partition("\n")[0]: f"## {text}" for text in rest}
    frames = [
        f'<h3>{title}</h3>\n<iframe src="runs/{name}.html" title="{title}" loading="lazy"></iframe>\n'
        f'<p><a href="runs/{name}.html">Open this run on a page of its own</a></p>\n'
        for name, _, _, title in RUNS
    ]
    keys = "Click into a run: then the arrow keys step through its iterations, and [ and ] through their phases."
    runs = f"## Runs to step\n\n{keys}\n"
    course = [f"{title} <{path}>" for title, path in ROW.findall(sections["The course"])]
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    docs = [f"docs/{name}" for name in ("README.md", *re.findall(r"\]\(([\w-]+\.md)\)", index))]
    pages = {"The course": [*course, "notebooks/glossary.md"], "Reference": [*docs, *ABOUT]}
    trees = [
        "\n".join(["```{toctree}", ":hidden:", ":titlesonly:", f":caption: {caption}", "", *listed, "```"])
        for caption, listed in pages.items()
    ]
    return "\n\n".join([head, sections.pop("The course"), runs, *frames, *sections.values(), *trees])


def export_runs(folder: Path) -> None:
    """Decodes each of `RUNS` and writes it as a page of its own."""
    pair = speclab.load_pair()
    folder.mkdir(parents=True)
    for name, strategy, kind, title in RUNS:
        session = speclab.Session(pair, strategy, prompts.examples(kind)[0].text, max_new_tokens=64, seed=0)
        session.run()
        views.export_html(session.trace, folder / f"{name}.html", note=f"{title}.")


def build(out: Path) -> int:
    """Writes the whole site anew; returns how many warnings there were."""
    shutil.rmtree(out, ignore_errors=True)
    with TemporaryDirectory() as scratch:
        source, made = Path(scratch) / "source", Path(scratch) / "made"
        stage(source)
        app = Sphinx(source, None, made / "pages", made / "kept", "html", OPTIONS)
        app.build()
        shutil.copytree(made / "pages", out, ignore=shutil.ignore_patterns(".*", "_sources", "objects.inv"))
    export_runs(out / "runs")
    return app.statuscode


if __name__ == "__main__":
    where = Path(sys.argv[1] if len(sys.argv) > 1 else "build/site").resolve()
    sys.exit(build(where))
