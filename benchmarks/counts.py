"""Counts of measured runs, small enough to keep: what notebook 11 lays beside the papers' tables.

Of each call what is the same on every machine, and no seconds. Plain decoding is left out: each of its iterations
commits one token. Each folder is what `speclab bench --out` wrote.

    python benchmarks/counts.py FOLDER … > speclab/bench/counts.csv
"""

from __future__ import annotations

import csv
import sys

from speclab.bench.result import read_results

FIELDS = (
    "protocol", "method", "kind", "prompt_id", "max_new_tokens", "prompt_tokens", "new_tokens", "iterations",
    "target_calls", "draft_calls", "committed", "drafted", "accepted", "longest_path", "nodes", "looping",
)  # fmt: skip


def write_counts(folders: list[str]) -> None:
    """Writes the counts of several runs to standard output, each run's command above them."""
    stored = [read_results(folder) for folder in folders]
    for each in stored:
        where, version = each.run.machine.get("processor"), each.run.versions["speclab"]
        sys.stdout.write(f"# {each.run.command}, {where}, speclab {version}\n")
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(FIELDS)
    for each in stored:
        kept = [result for result in each.results if result.method != each.run.baseline]
        for result in kept:
            values = [getattr(result, name) for name in FIELDS]
            rows.writerow([int(value) if isinstance(value, bool) else value for value in values])


if __name__ == "__main__":
    write_counts(sys.argv[1:])
