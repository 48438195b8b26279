"""Products by rows: both ways give the same numbers, and the faster one is taken for each class of rows."""

import json

import pytest
import torch
from torch import nn

from speclab.models import products
from speclab.models.products import BORDERS, Linear

pytestmark = pytest.mark.skipif(not products.PACKING, reason="this build of torch has no oneDNN")
PACKED = (True, True, True, True)


@pytest.fixture(autouse=True)
def no_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(products, "_known", {})
    monkeypatch.setenv("SPECLAB_CACHE", str(tmp_path))


def layers(*biases):
    torch.manual_seed(0)
    return [nn.Linear(48, 32, bias=bias) for bias in biases]


@pytest.mark.parametrize("biases", [(False,), (True,), (True, False), (False, False, False)])
@torch.inference_mode()
def test_both_ways_are_the_same_product(biases, monkeypatch):
    monkeypatch.setattr(products, "_ways", lambda _: PACKED)
    parts = layers(*biases)
    product = Linear(*parts)
    for count in (1, 2, 7, 40):
        rows = torch.randn(count, 48)
        want = torch.cat([part(rows) for part in parts], -1)
        torch.testing.assert_close(product.by_copy(rows), want)
        assert torch.equal(product.plain(rows), want)
        assert torch.equal(product(rows), product.by_copy(rows))


@torch.inference_mode()
def test_each_class_of_rows_takes_its_way(monkeypatch):
    monkeypatch.setattr(products, "_ways", lambda _: (False, True, False, True))
    product = Linear(*layers(False))
    taken = []
    product.by_copy = lambda rows: taken.append(len(rows))
    product.plain = lambda rows: taken.append(-len(rows))
    counts = [1, 2, BORDERS[1], BORDERS[1] + 1, BORDERS[2], BORDERS[2] + 1]
    for count in counts:
        product(torch.zeros(count, 48))
    assert taken == [-1, 2, 3, -4, -16, 17]
    product.most = 3
    product(torch.zeros(17, 48))
    assert taken[-1] == -17


def test_a_copy_that_is_never_faster_is_not_held(monkeypatch):
    monkeypatch.setattr(products, "_ways", lambda _: (False,) * 4)
    assert Linear(*layers(True)).packed is None


def test_a_choice_is_kept_and_a_damaged_one_is_made_again(monkeypatch, tmp_path):
    monkeypatch.setattr(products, "_QUIET", 1e9)
    ways = Linear(*layers(True)).ways
    (file,) = (tmp_path / "products").iterdir()
    assert json.loads(file.read_bytes()) == list(ways)
    turned = [not way for way in ways]
    file.write_text(json.dumps(turned))
    products._known.clear()
    assert list(Linear(*layers(True)).ways) == turned
    file.write_text("[1, 2]")
    products._known.clear()
    assert len(Linear(*layers(True)).ways) == len(products.CLASSES)
