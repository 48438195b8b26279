"""Do the notebooks notice when speclab is wrong? `make mutants`, or `python tests/notebooks/mutated.py NAME …`.

A mutant is one line of speclab changed. The notebook that should notice runs on it until a cell raises, or prints
something else than is saved where nbval compares (`NBVAL_CHECK_OUTPUT`). With --all every notebook runs on every
mutant, which takes long. Kernels are forked from a process that has imported torch and the like, and speclab not:
half of such a run would be imports.
"""

from __future__ import annotations

import importlib.machinery
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
CHECKED = "# NBVAL_CHECK_OUTPUT"
SECONDS = 300
IMPORTED = (
    "torch._dynamo", "torch.distributed.tensor", "transformers.modeling_utils", "transformers.models.auto",
    "transformers.models.gpt_neox.modeling_gpt_neox", "transformers.models.llama.modeling_llama", "networkx",
    "plotly.graph_objects", "pydantic", "ipywidgets", "anywidget", "ipykernel.kernelapp", "nbclient", "nbformat",
)  # fmt: skip
"""By the process that kernels are forked from; nothing of speclab."""


class Mutant(NamedTuple):
    """`old`, which `module` has once, becomes `new`. `notebook`: the one that should notice."""

    name: str
    notebook: str
    module: str
    old: str
    new: str


NOISE = "[p.data.add_(torch.randn(p.shape, generator=torch.manual_seed(0)) * p.std() * {}) for p in {}.parameters()]"

MUTANTS = (
    Mutant(
        "acceptance off by one",
        "02_trees_masks_caches",
        "speclab.engine.acceptance",
        "    path = tree.path(last)\n    return Acceptance(path if root_choice",
        "    path = tree.path(last := max(int(tree.parent[last]), 0))\n    return Acceptance(path if root_choice",
    ),
    Mutant(
        "mask with siblings",
        "07_debugging_a_tree",
        "speclab.engine.decode",
        "    mask = rows.below(seen)",
        "    mask = rows.below(seen | __import__('numpy').tril(tree.parent[:, None] == tree.parent[None]))",
    ),
    Mutant(
        "positions counted on",
        "02_trees_masks_caches",
        "speclab.engine.decode",
        "[target.length + depth for depth in (*tree.depth.tolist(), *rows.depth)]",
        "[target.length + place for place in range(len(tree) + len(rows.depth))]",
    ),
    Mutant(
        "the gather keeps a wrong slot",
        "02_trees_masks_caches",
        "speclab.engine.decode",
        "[prefix_length + node for node in path[",
        "[prefix_length + node + (node == max(path) < len(outcome.tree) - 1) for node in path[",
    ),
    Mutant(
        "history reversed", "02_trees_masks_caches", "speclab.drafters.dynatree", "if mean > high:", "if mean < low:"
    ),
    Mutant(
        "noisy draft",
        "03_when_does_a_tree_pay",
        "speclab.models.loading",
        "        loaded.config.name_or_path = place.name\n",
        f"        loaded.config.name_or_path = place.name\n        if 'draft' in place.name:\n            "
        f"{NOISE.format(0.25, 'loaded')}\n",
    ),
    Mutant(
        "noisy heads",
        "06_two_heads",
        "speclab.models.head_files",
        "    _check_vocabulary(head)\n    return head",
        f"    {NOISE.format(0.4, 'head')}\n    _check_vocabulary(head)\n    return head",
    ),
    Mutant(
        "children in reversed order",
        "03_when_does_a_tree_pay",
        "speclab.drafters.growth",
        "top[:count] if self.sampler is None",
        "top[-count:] if self.sampler is None",
    ),
    Mutant(
        "a chain one token short",
        "03_when_does_a_tree_pay",
        "speclab.drafters.chain",
        'depth_gate("draft_tokens", self.draft_tokens)',
        'depth_gate("draft_tokens", self.draft_tokens - 1)',
    ),
    Mutant(
        "drafted nodes miscounted",
        "08_measuring",
        "speclab.engine.decode",
        "drafted=len(outcome.tree) - verified_root",
        "drafted=max(len(outcome.tree) - verified_root - 1, 0)",
    ),
    Mutant(
        "replay counts the last token twice",
        "03_when_does_a_tree_pay",
        "speclab.analysis.replay",
        "return sum(map(len, self.committed)) / max",
        "return (sum(map(len, self.committed)) + 1) / max",
    ),
    Mutant(
        "the residual is the target's distribution",
        "04_sampling",
        "speclab.engine.acceptance",
        "            p = residual(p, q)\n",
        "",
    ),
    Mutant(
        "temperature squared",
        "04_sampling",
        "speclab.engine.sampling",
        "scores.amax(-1, keepdim=True)) / settings.temperature",
        "scores.amax(-1, keepdim=True)) / settings.temperature**2",
    ),
    Mutant(
        "oldest match for the latest",
        "05_training_free",
        "speclab.sources.context",
        'node[0 if pick == "first" else -1]',
        "node[0]",
    ),
    Mutant(
        "a table that never learns",
        "05_training_free",
        "speclab.sources.transitions",
        "        self._rows[slots] = found[list(latest.values())]\n",
        "",
    ),
    Mutant(
        "spine branches given out evenly",
        "05_training_free",
        "speclab.drafters.goose",
        '1 / place if s.schedule == "harmonic" else 1',
        "1",
    ),
    Mutant(
        "routing to the smaller mean",
        "06_two_heads",
        "speclab.drafters.dual_draft",
        "chosen = int(scores[1] > scores[0])",
        "chosen = int(scores[1] < scores[0])",
    ),
    Mutant(
        "half precision that is not exact",
        "10_your_own_models",
        "speclab.models.loading",
        "fast=self.fast, bitwise=bitwise)",
        "fast=self.fast, bitwise=False)",
    ),
)


def apply(name: str) -> None:
    """Has `speclab` imported with a mutant's line; called in a notebook's kernel before anything else."""
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == name)
    sys.meta_path.insert(0, _Finder(mutant))


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        spec.loader = _Loader(self._mutant, spec.origin)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> Any:
        source = Path(self.path).read_text(encoding="utf-8")
        return compile(source.replace(self._mutant.old, self._mutant.new), self.path, "exec")


def noticed(notebook: Path, mutant: str) -> tuple[str, float]:
    """What the first cell that noticed is called, "" where none did; and how many seconds that took."""
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    content, start = nbformat.read(notebook, as_version=4), time.monotonic()
    first = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import mutated; mutated.apply({mutant!r})"
    content.cells.insert(0, nbformat.v4.new_code_cell(first))
    saved = [_printed(cell) for cell in content.cells]

    class Running(AsyncKernelManager):
        """Of a kernel that somebody else starts and ends."""

        has_kernel = True

        async def is_alive(self) -> bool:
            return True

    with _kernel(notebook.parent) as connection:
        manager = Running(connection_file=connection)
        manager.load_connection_file()
        client = NotebookClient(content, km=manager, timeout=SECONDS, store_widget_state=False)
        with client.setup_kernel():
            return _first(client, content.cells, saved), time.monotonic() - start


def _first(client: Any, cells: Sequence[Any], saved: Sequence[str]) -> str:
    from nbclient.exceptions import CellExecutionError

    for place, cell in enumerate(cells):
        if cell.cell_type != "code":
            continue
        try:
            client.execute_cell(cell, place)
            differs = cell.source.startswith(CHECKED) and _printed(cell) != saved[place]
        except CellExecutionError:
            differs = True
        if differs:
            return f"cell {place - 1}"
    return ""


@contextmanager
def _kernel(folder: Path) -> Iterator[str]:
    """A kernel of IPython in a process forked from this one, which must not have used asyncio; its connection file."""
    from ipykernel.kernelapp import IPKernelApp
    from jupyter_client.connect import write_connection_file

    with TemporaryDirectory() as scratch:
        connection, _ = write_connection_file(str(Path(scratch) / "kernel.json"), ip="127.0.0.1")
        child = os.fork()
        if not child:
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # how to connect to it
            os.dup2(2, 1)
            with suppress(BaseException):
                IPKernelApp.launch_instance(argv=["-f", connection])
            os._exit(0)
        try:
            yield connection
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _printed(cell: Any) -> str:
    outputs = cell.get("outputs", ())
    return "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)


def _runs(names: Sequence[str], *, every: bool) -> Iterator[tuple[str, str]]:
    notebooks = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    for mutant in MUTANTS:
        if not names or mutant.name in names:
            yield from ((mutant.name, stem) for stem in (notebooks if every else [mutant.notebook]))


def _run(run: tuple[str, str]) -> tuple[str, float]:
    mutant, stem = run
    return noticed(ROOT / "notebooks" / f"{stem}.ipynb", mutant)


def main(arguments: Sequence[str]) -> int:
    """Prints who noticed what. 1 where a notebook did not notice what it should."""
    every, names = "--all" in arguments, [each for each in arguments if not each.startswith("--")]
    runs, found, start = list(_runs(names, every=every)), {}, time.monotonic()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in IMPORTED:
        import_module(name)
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        for (mutant, stem), (cell, seconds) in zip(runs, pool.imap(_run, runs), strict=True):
            found[mutant, stem] = cell
            print(f"{mutant:42} {stem:26} {cell or 'not noticed':12} {seconds:5.0f} s", flush=True)
    missed = [one.name for one in MUTANTS if found.get((one.name, one.notebook)) == ""]
    print(
        f"{len(runs)} runs in {time.monotonic() - start:.0f} s;",
        "not noticed: " + ", ".join(missed) if missed else "all noticed",
    )
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
