"""The runner: what a pass computes and counts, what it refuses, what a failure leaves."""

from __future__ import annotations

import threading
from unittest import mock

import numpy as np
import pytest
import torch
from runners import CLOSE, plain
from tiny import tiny

from speclab.errors import OutOfMemoryError
from speclab.models.runner import Runner

pytestmark = pytest.mark.model

LOGITS = 64


def test_extend_computes_the_logits_of_the_last_token_only():
    runner, shapes = Runner(tiny("llama")), []
    runner.model.get_output_embeddings().register_forward_hook(lambda m, a, out: shapes.append(out.shape))
    assert runner.extend(list(range(30))).shape == (LOGITS,)
    assert shapes == [(1, 1, LOGITS)]


def test_a_fork_calls_no_model_and_counts_for_itself():
    runner = Runner(tiny("gpt_neox"))
    runner.extend([1, 2, 3])
    runner.extend([4])
    hook = runner.model.register_forward_pre_hook(lambda *_: pytest.fail("a fork needs no pass"))
    twin = runner.fork(2)
    hook.remove()
    assert (runner.calls, twin.calls, twin.length, runner.length) == (2, 0, 2, 4)
    storages = [{layer.keys.untyped_storage().data_ptr() for layer in r.cache.layers} for r in (runner, twin)]
    assert not storages[0] & storages[1]
    twin.extend([9, 9])
    assert (runner.calls, runner.length, twin.calls) == (2, 4, 1)


def test_running_out_of_memory_is_one_sentence_and_loses_nothing():
    runner = Runner(tiny("gpt_neox"), name="small")
    runner.extend([1, 2, 3])
    head = runner.model.get_output_embeddings()
    for error in (
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ):
        hook = head.register_forward_pre_hook(mock.Mock(side_effect=error))
        with pytest.raises(OutOfMemoryError, match="small ran out of memory on cpu at 5 tokens: use a shorter prompt"):
            runner.extend([4, 5])
        with pytest.raises(OutOfMemoryError):
            runner.forward([4, 5], [3, 4], np.tri(2, dtype=bool))
        hook.remove()
    assert (runner.length, runner.cache.length, runner.calls) == (3, 3, 1)
    torch.testing.assert_close(runner.extend([4, 5]), plain(runner, [1, 2, 3, 4, 5])[-1], **CLOSE)


def test_another_error_of_the_module_is_passed_on():
    runner = Runner(tiny("gpt_neox"))
    with pytest.raises(IndexError):
        runner.extend([64])
    assert (runner.length, runner.cache.length) == (0, 0)


def test_no_gradients_are_kept_on_any_thread():
    runner, found = Runner(tiny("llama")), []

    def work():
        assert torch.is_grad_enabled()
        logits = runner.extend([1, 2])
        runner.crop(1)
        found.append((logits, runner.forward([3], [1], np.ones((1, 1), dtype=bool)), runner.fork(1).extend([5])))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert all(logits.grad_fn is None and not logits.requires_grad for logits in found[0])


@pytest.mark.parametrize("length", [-1, 4])
def test_crop_and_fork_refuse_what_is_not_there(length):
    runner = Runner(tiny("gpt_neox"))
    runner.extend([1, 2, 3])
    with pytest.raises(ValueError, match="cannot crop"):
        runner.crop(length)
    with pytest.raises(ValueError, match="cannot fork"):
        runner.fork(length)
    assert runner.length == 3


def test_facts_of_the_model():
    runner = Runner(tiny("gpt2").train())
    assert (runner.family, runner.name, runner.vocab_size, runner.context) == ("gpt2", "gpt2", 64, 256)
    assert not runner.model.training
    assert (runner.slot_bytes, runner.capacity) == (0, 0)
    runner.extend([1])
    assert runner.slot_bytes == 2 * 2 * 32 * 4  # keys and values, 2 layers, width 32, 4 bytes
    assert runner.capacity == 256


def test_logits_are_cut_to_the_shared_vocabulary():
    runner = Runner(tiny("gpt2"))
    runner.vocab_size = 50
    assert runner.extend([1, 2]).shape == (50,)
    assert runner.forward([1, 2], [2, 3], np.tri(2, dtype=bool)).shape == (2, 50)
    assert runner.fork().extend([1]).shape == (50,)
