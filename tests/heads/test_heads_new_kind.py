"""A new kind of head is its file, its format and its tests: one made here works everywhere."""

from __future__ import annotations

import json
import re

import pytest
import torch
from safetensors.torch import save_file
from support.pairs import PROMPT, library_text, target_of
from support.records import assert_consistent
from torch import nn

import speclab
from speclab.drafters import cost
from speclab.heads import formats
from speclab.heads.eagle import DraftModule, HeadConfig
from speclab.heads.runner import HeadRunner

VOCAB = 16


# Its file: a head that reads the target's states alone, whatever was drafted since.


class MirrorConfig(HeadConfig):
    @property
    def kind(self):
        return "mirror"

    @property
    def module(self):
        return Mirror


class Mirror(DraftModule):
    def __init__(self, config, **own):
        super().__init__(config, **own)
        self.turn = nn.Linear(config.hidden_size, config.hidden_size, bias=False)


class MirrorRunner(HeadRunner, runs=Mirror):
    def _rows(self, rows, *, last_only):
        out = self.model.turn(rows.features)
        entry = out[None, None]
        self.cache.update(entry, entry, 0)
        return self._logits_of(out[-last_only:]), out  # the last row, or all


# Its format


class MirrorFolder(formats.Folder):
    def head(self, layer, tensors, target):
        return MirrorConfig(**{name: layer[name] for name in ("name", "vocab_size", "hidden_size")})


@pytest.fixture
def pair(monkeypatch, tmp_path):
    layout = re.compile("MirrorSpeculator"), MirrorFolder
    monkeypatch.setattr(formats, "LAYOUTS", (*formats.LAYOUTS, layout))
    target = target_of("llama", VOCAB)
    size = target.config.hidden_size
    folder = tmp_path / "mirror"
    folder.mkdir()
    config = {"architectures": ["MirrorSpeculator"], "vocab_size": VOCAB, "hidden_size": size}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"turn.weight": torch.eye(size)}, folder / "model.safetensors")
    return speclab.load_pair(target=target, heads=folder)


def test_every_strategy_that_drafts_costs_replays_and_forks_with_it(pair):
    prompt = [token % VOCAB for token in PROMPT]
    text = library_text(target_of("llama", VOCAB), prompt, 16)
    for strategy in (
        speclab.LinearSpeculation(draft_tokens=3),
        speclab.DynaTree(node_budget=8),
        speclab.DraftHead(node_budget=8),
    ):
        session = speclab.Session(pair, strategy, prompt, max_new_tokens=16, check=True)
        while not session.done:
            assert_consistent(session.step())
        assert session.token_ids == text
        assert {source for step in session.steps for source in step.tree.source[1:]} == {"mirror"}
        again = session.fork(at=1)
        again.run()
        assert again.token_ids == text
        replayed = speclab.replay(session, strategy)
        assert [one.committed for one in replayed.passes] == [s.committed for s in session.steps]
        assert replayed.draft_calls == session.metrics.draft_calls
    assert cost.seconds(pair.heads[0], 4) > 0
    assert "block head" in speclab.DDTree().missing(pair.offer)
