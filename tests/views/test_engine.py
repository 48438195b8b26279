"""The engine of pictures: it comes with the first picture, works in threads and forks, and says how to install it."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import local

import pytest
from support.pictures import said
from support.processes import python
from support.refusals import refused
from support.view_samples import five_nodes, trace

import speclab
from speclab import views
from speclab.views import drawing
from speclab.views.static_html import describe, snapshot


def test_it_is_loaded_with_the_first_picture():
    code = "import sys, speclab.views; print({'quickjs', 'plotly', 'pandas', 'torch'} & {*sys.modules})"
    assert python("-c", code).strip() == "set()"


def test_threads_draw():
    for _ in range(3):  # an engine ends with its thread
        with ThreadPoolExecutor(4) as pool:
            assert len({said(figure) for figure in pool.map(views.tree, [five_nodes()] * 20)}) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_draws():
    code = (
        "import os\nfrom speclab.views.drawing import call\nfirst = call('percent', 1)\n"
        "child = os.fork()\nif not child: os._exit(call('percent', 1) != first)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert python("-c", code).strip() == "0"


def test_without_it_pictures_say_how_to_install_it_and_the_page_is_whole(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "quickjs", None)
    monkeypatch.delattr(drawing._engines, "answer", raising=False)
    with refused(speclab.SpeclabError, "quickjs-ng"):
        views.tree(five_nodes())
    assert "Iteration 2" in describe(trace(), 2)
    assert "Iteration 2" in snapshot(trace(), 2)
    assert views.export_html(trace(), tmp_path / "run.html").stat().st_size > 1e6


def test_a_picture_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr(drawing, "LONGEST", 1)
    monkeypatch.setattr(drawing, "_engines", local())
    with refused(speclab.SpeclabError, "1 seconds"):
        drawing.call("eval", "for (;;);")
    assert drawing.call("eval", "1 + 1") == 2, "the engine goes on"
