"""Timing of clicks: what is made of the clock's readings, and what is said where it cannot run. No browser here."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from speclab.bench import clicks, lab_clicks
from speclab.errors import SpeclabError
from speclab.lab.lab import recorded


def test_the_models_own_seconds_are_told_apart():
    row = clicks.measured("Step", [110.0, 120.0, 230.0], [100.0, 100.0, 200.0], 150)
    assert (row.clicks, row.median_ms, row.model_ms) == (3, 20.0, 100.0)
    assert 20 < row.p95_ms <= 30


def test_without_playwright_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(SpeclabError, match="Playwright"), clicks.notebook("1"):
        pass


def test_without_a_browser_one_sentence_says_so(monkeypatch):
    pytest.importorskip("playwright")
    monkeypatch.setattr(clicks.shutil, "which", lambda _: None)
    with pytest.raises(SpeclabError, match="Chromium"), clicks.notebook("1"):
        pass


def test_a_history_of_half_and_whole_is_weighed():
    run = recorded()
    half, whole = lab_clicks.kept(4, lambda count: replace(run, steps=run.steps[:count]))
    assert (half.iterations, whole.iterations) == (2, 4)
    assert 0 < half.memory_mib < whole.memory_mib
    assert 0 < half.file_mib < whole.file_mib
