"""The device double itself: it refuses, counts and forgets as CUDA does."""

from __future__ import annotations

import threading

import pytest
import torch

from double import Double, device

pytestmark = pytest.mark.double


def captured(run, **options):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        answer = run()
    return graph, answer


def test_tensors_say_where_they_lie_and_compute_what_the_cpu_computes():
    with device():
        rows = torch.arange(6.0).view(2, 3).to("cuda")
        assert isinstance(rows, Double)
        assert rows.device == torch.device("cuda:0")
        assert (rows @ rows.T).tolist() == [[5, 14], [14, 50]]
    assert not torch.cuda.is_available()


def test_two_devices_do_not_meet_in_one_operator_and_numbers_of_the_host_do():
    with device(2):
        first, second = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
        with pytest.raises(RuntimeError, match="at least two devices, cuda:1 and cuda:0"):
            first + second
        with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu"):
            first + torch.ones(2)
        assert (first + torch.tensor(1.0)).tolist() == [2, 2]
        with pytest.raises(TypeError, match=r"Use Tensor\.cpu"):
            first.numpy()


def test_what_waits_is_counted_and_what_is_queued_is_not():
    with device() as gpu:
        x = torch.ones(3).to("cuda")
        x.add_(1).mul(2)
        assert gpu.waited() == 1
        for waits in (lambda: x.sum().item(), x.tolist, x.cpu, x.nonzero, lambda: x[[0, 1]], torch.cuda.synchronize):
            before = gpu.waited()
            waits()
            assert gpu.waited() == before + 1


def test_a_capture_runs_nothing_and_a_replay_reads_what_the_buffers_hold_then():
    with device() as gpu:
        x = torch.ones(2, device="cuda")
        graph, doubled = captured(lambda: x * 2)
        assert doubled.isnan().all()
        for value in (1, 5):
            x.fill_(value)
            graph.replay()
            assert doubled.tolist() == [2 * value] * 2
        assert gpu.graphs["replays"] == 2


@pytest.mark.parametrize("waits", [torch.Tensor.item, torch.Tensor.nonzero, torch.Tensor.cpu])
def test_a_capture_that_would_wait_fails(waits):
    with device():
        x = torch.ones(1, device="cuda")
        with pytest.raises(torch.AcceleratorError, match=r"stream is capturing|error during capture"):
            captured(lambda: waits(x * 2))


def test_a_graph_overwrites_what_another_of_its_pool_has_answered():
    with device():
        x, pool = torch.ones(2, device="cuda"), torch.cuda.graph_pool_handle()
        (first, one), (second, _) = (captured(lambda: x + 1, pool=pool) for _ in range(2))
        first.replay()
        assert one.tolist() == [2, 2]
        second.replay()
        assert one.isnan().all()


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_what_runs_on_another_device_than_the_capture_is_not_captured():
    with device(2) as gpu:
        captured(lambda: torch.ones(1, device="cuda:0") + 1)
        with torch.cuda.device(1):
            captured(lambda: torch.ones(1, device="cuda:1") + 1)
        assert gpu.graphs["empty graphs"] == 1


def test_late_copies_are_there_when_something_has_waited():
    with device() as gpu:
        x, host = torch.ones(2, device="cuda"), torch.zeros(2, pin_memory=True)
        host.copy_(x, non_blocking=True)
        assert host.isnan().all()
        assert gpu.waited() == 0
        torch.cuda.current_stream().synchronize()
        assert host.tolist() == [1, 1]
        x.copy_(host, non_blocking=True)
        with pytest.raises(AssertionError, match="while its upload may still be under way"):
            host.fill_(3)
        x.tolist()
        host.fill_(3)


def test_a_graph_may_download_to_pinned_memory_and_the_host_has_to_wait_for_it():
    with device() as gpu:
        x, host = torch.ones(2, device="cuda"), torch.zeros(2, pin_memory=True)
        graph, _ = captured(lambda: host.copy_(x * 2, non_blocking=True))
        graph.replay()
        assert host.isnan().all()
        torch.cuda.synchronize()
        assert host.tolist() == [2, 2]
        assert gpu.graphs["replays"] == 1


def test_threads_that_start_meanwhile_see_it_too():
    found = []
    with device():
        thread = threading.Thread(target=lambda: found.append(torch.zeros(1, device="cuda").device))
        thread.start()
        thread.join()
    assert found == [torch.device("cuda:0")]


def test_the_kernels_of_cuda_answer_transposed_and_cudnn_does_not():
    with device(cudnn=True) as gpu:
        query = torch.randn(1, 2, 3, 4, device="cuda", dtype=torch.float16)
        mask = torch.zeros(1, 1, 3, 3, device="cuda", dtype=torch.float16)
        attend = torch.nn.functional.scaled_dot_product_attention
        assert not attend(query.float(), query.float(), query.float(), mask.float()).is_contiguous()
        assert attend(query, query, query, mask).is_contiguous()
        assert sum(gpu.plans.values()) == 1
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            attend(query, query, query, mask)
        assert sum(gpu.plans.values()) == 1
