"""Settings for every tier."""

import gc
import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from speclab.drafters import cost
from speclab.loading.presets import SMOLLM2

TIERS = {
    **dict.fromkeys(
        ("features", "clinic", "heads", "lab", "loading", "models", "training"), "model"
    ),
    "browser": "browser",
    "double": "double",
    "notebooks": "notebook",
}
"""The tier of all tests of a folder; elsewhere a test that needs a model is marked."""

BY_DAY = 3
"""Every so-manieth case of a test that is marked `wide` runs by day; the others run at night."""

gc.disable()  # what is imported stays: looking at it again and again takes 2 s

# The same examples on every run, and no clock: a busy machine must not turn a test red.
settings.register_profile(
    "speclab",
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("speclab")

# Where other work shares the cores, threads wait for each other: tests took twenty times as long.
# For processes that tests start, too.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# Tables in a terminal leave out columns for which there is no room; this is what rich takes where
# nothing is said.
os.environ["COLUMNS"] = "80"

# What a pass costs is a matter of the clock: node_budget="auto" is 9 rows here, except in test_cost.
_node_budget = cost.node_budget
cost.node_budget = lambda *_: 9
_pass_seconds = cost.pass_seconds
cost.pass_seconds = lambda runner: tuple(1 + rows / 36 for rows in cost.ROWS)
CACHE = tempfile.TemporaryDirectory(prefix="speclab-tests-")  # held: it goes when the tests end
os.environ["SPECLAB_CACHE"] = CACHE.name
if SMOLLM2.is_dir():  # what was fetched is there, for processes that tests start, too
    Path(CACHE.name, SMOLLM2.parent.name).symlink_to(SMOLLM2.parent)


@pytest.fixture
def node_budget():
    """The real choice of a node budget."""
    return _node_budget


@pytest.fixture
def pass_seconds():
    """The real measurement of a pass."""
    return _pass_seconds


def pytest_collection_modifyitems(items):
    seen = Counter()
    for item in items:
        tier = TIERS.get(item.path.relative_to(Path(__file__).parent).parts[0])
        if tier is not None:
            item.add_marker(tier)
        if item.get_closest_marker("wide"):
            test = item.nodeid.partition("[")[0]
            if seen[test] % BY_DAY:
                item.add_marker("night")
            seen[test] += 1


def pytest_collection_finish():
    """Tests make few cycles and keep much: the garbage collector, which looks at all that is kept, comes seldom."""
    gc.freeze()
    gc.set_threshold(2000, 10, 50)
    gc.enable()
