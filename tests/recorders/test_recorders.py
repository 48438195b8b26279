"""Recorders of engines, on objects with the engines' field names, and the helpers beside the recorder."""

from __future__ import annotations

import sys
import types
from types import SimpleNamespace as Object

import numpy as np
import pytest
import torch

import speclab
from speclab.clinic.recorders import ddtree, published, sglang, vllm
from speclab.clinic.recorders.files import Requests, named
from speclab.errors import SpeclabError
from speclab.recorder import Recorder, mask, parents, topk

VOCAB = 11
PROMPT = [3, 1, 4]


def rows(n, best):
    """Logits whose best tokens are these."""
    logits = torch.randn(n, VOCAB, generator=torch.Generator().manual_seed(0))
    for row, token in enumerate(best):
        logits[row, token] = 9.0
    return logits


def test_parents_of_published_trees():
    assert parents([[0, 1, 3], [0, 2, -1]]) == [-1, 0, 0, 1]
    assert parents(torch.tensor([1, 3, -1, -1]), torch.tensor([-1, 2, -1, -1])) == [-1, 0, 0, 1]


@pytest.mark.parametrize("low", [-torch.inf, torch.finfo(torch.bfloat16).min, -1e4])
def test_masks_of_models_are_converted(low, tmp_path):
    additive = torch.tensor([[0.0, 0.0, low], [low, 0.0, 0.0]]).to(torch.bfloat16)[None, None]
    assert mask(additive, 2).tolist() == [[True, False], [True, True]]
    path = tmp_path / "run.jsonl"
    with Recorder(path, PROMPT) as recorder:
        recorder.step(prefix_length=1, token=[4, 5], parent=[-1, 0], mask=additive, accepted=[],
                      committed=[6])  # fmt: skip
    step = speclab.load_steps(path).steps[0]
    assert step.mask.tolist() == [[True, False], [True, True]]
    assert step.hidden_prefix == ((1, 0, 0),)


def test_top_k_is_the_same_of_arrays_and_tensors():
    logits = rows(2, [5, 7])
    first = topk(logits, 4)
    second = topk(logits.numpy(), 4)
    assert [[token for token, _ in row] for row in first] == [[t for t, _ in row] for row in second]
    assert np.allclose(np.array(first)[..., 1], np.array(second)[..., 1], atol=1e-5)


def test_values_of_any_kind_are_written_and_a_later_error_stops_the_recording(tmp_path):
    path = tmp_path / "run.jsonl.gz"
    recorder = Recorder(path, np.array(PROMPT))
    given = {
        "prefix_length": np.int64(3),
        "token": [np.int64(7), torch.tensor(8)],
        "parent": (-1, 0),
    }
    top = [zip(np.array([8]), np.array([-0.1]), strict=True), [(2, torch.tensor(-0.2))]]
    recorder.step(**given, accepted=torch.tensor([1]), committed=[np.int32(8), 2], topk=top)
    with pytest.warns(UserWarning, match="stopped after 1"):
        recorder.step(**given, accepted=[], committed=[object()])
    recorder.step(**given, accepted=[], committed=[2])
    recorder.close()
    trace = speclab.load_steps(path)
    assert trace.token_ids == [7, 8, 2]
    assert trace.steps[0].nodes[0].target_top[0][0] == 8


class Sampler:
    """A vLLM sampler that accepts one of two drafts."""

    def __init__(self):
        states = Object(
            req_id_to_index={"a": 0},
            prompt_len=np.array([3]),
            all_token_ids=Object(gpu=torch.tensor([PROMPT])),
        )
        sampling = Object(temperature=Object(np=np.array([0.0])))
        self.sampler = Object(req_states=states, sampling_states=sampling)

    def __call__(self, logits, input_batch, draft_logits=None):
        logits.zero_()  # as sampling parameters in place
        return Object(num_sampled=torch.tensor([2]), sampled_token_ids=torch.tensor([[8, 2, -1]]))


def test_vllm_s_rows_become_a_chain(tmp_path):
    class Own(Sampler):
        pass

    requests = Requests("vllm", tmp_path)
    vllm.wrap(Own, requests)
    batch = Object(
        logits_indices=torch.tensor([0, 1, 2]),
        input_ids=torch.tensor([7, 8, 9]),
        positions=torch.tensor([3, 4, 5]),
        cu_num_logits_np=np.array([0, 3]),
        num_computed_tokens_np=np.array([3]),
        req_ids=["a"],
    )
    output = Own()(rows(3, [8, 2, 1]), batch)
    assert output.num_sampled.tolist() == [2]
    requests.close()
    trace = speclab.load_steps(tmp_path / "vllm-a.jsonl")
    step = trace.steps[0]
    assert (trace.prompt_ids, trace.token_ids) == (tuple(PROMPT), [7, 8, 2])
    assert (step.accepted, step.position, step.request) == ((1,), (3, 4, 5), "a")
    assert step.nodes[0].target_top[0][0] == 8, "the logits before sampling"
    assert speclab.clinic.check(trace) == ()


def test_an_engine_goes_on_when_its_names_have_moved(tmp_path):
    class Own(Sampler):
        pass

    vllm.wrap(Own, Requests("vllm", tmp_path))
    with pytest.warns(UserWarning, match="vllm stopped"):
        assert Own()(rows(1, [1]), Object()) is not None
    assert Own()(rows(1, [1]), Object()) is not None
    with pytest.raises(SpeclabError, match=r"SGLang has no json\.nowhere"):
        named("SGLang", "json.nowhere")


def test_nothing_is_recorded_by_default(monkeypatch):
    monkeypatch.delenv("SPECLAB_RECORD", raising=False)
    vllm.register()
    sglang.register()
    monkeypatch.setenv("SPECLAB_RECORD", "somewhere")
    for register in (vllm.register, sglang.register):
        with pytest.raises(SpeclabError, match=r"no vllm|no sglang"):
            register()


def test_sglang_s_tree_with_its_mask_and_slots(tmp_path):
    requests = Requests("sglang", tmp_path)
    tree = Object(
        draft_token_num=3,
        draft_token=torch.tensor([7, 8, 9]),
        positions=torch.tensor([3, 4, 4]),
        retrieve_next_token=torch.tensor([[1, -1, -1]]),
        retrieve_next_sibling=torch.tensor([[-1, 2, -1]]),
        custom_mask=torch.tensor(
            [1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 1], dtype=torch.bool
        ),
    )
    batch = Object(
        reqs=[Object(rid="r1", origin_input_ids=PROMPT)],
        seq_lens=torch.tensor([3]),
        out_cache_loc=torch.tensor([20, 21, 22]),
        sampling_info=Object(is_all_greedy=True, acc_additive_penalties=None, logit_bias=None),
    )
    result = torch.tensor([9, 0, 2]), torch.tensor([2]), torch.tensor([[0, 2, -1]])
    sglang.hook(requests)(result, tree, batch, Object(next_token_logits=rows(3, [9, 1, 2])))
    requests.close()
    step = speclab.load_steps(tmp_path / "sglang-r1.jsonl").steps[0]
    assert step.tree.parent.tolist() == [-1, 0, 0]
    assert (step.accepted, step.committed) == ((2,), (9, 2))
    assert [node.kv_slot for node in step.nodes] == [20, 21, 22]
    assert step.mask[1:, 1:].tolist() == [[True, False], [False, True]]


def test_published_loops_are_wrapped_and_restored(tmp_path, monkeypatch):
    module = types.ModuleType("loop")
    monkeypatch.setitem(sys.modules, "loop", module)

    def tree_decoding(
        model, tree_candidates, past_key_values, tree_position_ids, input_ids, retrieve_indices
    ):
        return rows(4, [9, 1, 9, 2]).reshape(2, 2, VOCAB), None, None

    def update_inference_inputs(
        input_ids, candidates, best_candidate, accept_length, retrieve_indices
    ):
        return input_ids

    module.tree_decoding, module.update_inference_inputs = tree_decoding, update_inference_inputs
    indices = torch.tensor([[0, 1], [0, 2]])
    ids = torch.tensor([PROMPT])
    with published.record(module, tmp_path / "run.jsonl", temperature=0.0):
        module.tree_decoding(
            None, torch.tensor([[7, 8, 9]]), None, torch.tensor([0, 1, 1]), ids, indices
        )
        module.update_inference_inputs(ids, None, torch.tensor(1), 1, indices)
        longer = torch.tensor([[*PROMPT, 7, 9]])
        module.tree_decoding(
            None, torch.tensor([[2, 8, 9]]), None, torch.tensor([0, 1, 1]), longer, indices
        )
    assert module.tree_decoding is tree_decoding
    trace = speclab.load_steps(tmp_path / "run.jsonl")
    assert (trace.token_ids, trace.steps[0].accepted) == ([7, 9, 2], (2,))
    assert trace.steps[0].position == (3, 4, 4)
    assert speclab.clinic.check(trace) == ()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_ddtree_s_loop_is_wrapped_and_restored(temperature, tmp_path, monkeypatch):
    module = types.ModuleType("loop")
    monkeypatch.setitem(sys.modules, "loop", module)

    def compile_ddtree_tree(root_token_id, node_token_ids, past_length):
        mask = torch.full((1, 1, 3, past_length + 3), torch.finfo(torch.float32).min)
        mask[..., :past_length] = 0
        mask[0, 0].diagonal(past_length).fill_(0)
        mask[0, 0, :, past_length] = 0
        depth = torch.tensor([[0, 1, 1]])
        return torch.tensor([[root_token_id, *node_token_ids]]), past_length + depth, mask, 0, 3

    def sample(logits, temperature=0.0):
        return logits.argmax(-1)

    def follow_verified_tree(child_maps, posterior):
        return [0, 2], 4

    own = compile_ddtree_tree, sample, follow_verified_tree
    for function in own:
        setattr(module, function.__name__, function)
    with ddtree.record(module, tmp_path / "run.jsonl", PROMPT):
        module.sample(rows(1, [7])[None], temperature)
        module.compile_ddtree_tree(7, [8, 9], past_length=3)
        posterior = module.sample(rows(3, [9, 1, 4])[None], temperature)
        module.follow_verified_tree([{8: 1, 9: 2}, {}, {}], posterior)
    assert (module.compile_ddtree_tree, module.sample, module.follow_verified_tree) == own
    trace = speclab.load_steps(tmp_path / "run.jsonl")
    step = trace.steps[0]
    assert (trace.prompt_ids, trace.token_ids) == (tuple(PROMPT), [7, 9, 4])
    assert (step.accepted, step.position) == ((2,), (3, 4, 4))
    assert step.mask[2].tolist() == [True, False, True]
    assert step.rule == ("sample and match" if temperature else "greedy")
    assert [node.target_choice for node in step.nodes] == [9, 1, 4]
    assert speclab.clinic.check(trace) == ()
