"""Recorders of engines, on objects that hold what the engines' sources put there (file and class beside
each), and the helpers beside the recorder."""

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
from speclab.recorder import Recorder, parents, topk, visible

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
    assert visible(additive)[:, 1:].tolist() == [[True, False], [True, True]]
    path = tmp_path / "run.jsonl"
    for spare in (0, 5):  # what a static cache has behind the tree
        mask = torch.nn.functional.pad(additive, (0, spare), value=low)
        with Recorder(path, PROMPT) as recorder:
            recorder.step(prefix_length=1, token=[4, 5], parent=[-1, 0], mask=mask, accepted=[],
                          committed=[6])  # fmt: skip
        step = speclab.load_steps(path).steps[0]
        assert step.mask.tolist() == [[True, False], [True, True]]
        assert step.hidden_prefix == ((1, 0, 0),)
    with pytest.raises(ValueError, match="2 rows"):
        Recorder(path, PROMPT).step(prefix_length=1, token=[4], parent=[-1], mask=additive,
                                    accepted=[], committed=[6])  # fmt: skip


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


def on_both_sides(*values):
    """`UvaBackedTensor` of vllm/v1/worker/gpu/buffer_utils.py."""
    return Object(np=np.array(values), gpu=torch.tensor(values))


class Sampler:
    """`Sampler` of vllm/v1/worker/gpu/sample/sampler.py, with two requests: "a" decodes, "b" runs the
    end of its prompt; "c" runs a part of it."""

    def __init__(self, temperature=0.0):
        self.req_states = Object(  # RequestState of vllm/v1/worker/gpu/states.py
            req_id_to_index={"a": 2, "b": 0, "c": 1},
            prompt_len=on_both_sides(4, 9, 3),
            all_token_ids=Object(
                gpu=torch.tensor([[5, 6, 7, 2, 0, 0], [1] * 6, [*PROMPT, 7, 0, 0]])
            ),
        )
        self.sampling_states = Object(  # SamplingStates of vllm/v1/worker/gpu/sample/states.py
            vocab_size=VOCAB,
            temperature=on_both_sides(temperature, 0.0, temperature),
            top_k=on_both_sides(VOCAB, VOCAB, 5),  # the vocabulary if none was asked for
            top_p=on_both_sides(1.0, 1.0, 0.9),
            min_p=on_both_sides(0.0, 0.0, 0.05),
        )
        # PenaltiesState, LogitBiasState of vllm/v1/worker/gpu/sample
        self.penalties_state = Object(use_penalty=np.zeros(3, bool))
        self.logit_bias_state = Object(use_logit_bias=np.zeros(3, bool))

    def __call__(self, logits, input_batch):
        logits.zero_()  # as sampling parameters in place
        return Object(sampled_token_ids=torch.tensor([[4]]), num_sampled=torch.tensor([1]))


class RejectionSampler:
    """`RejectionSampler` of vllm/v1/worker/gpu/spec_decode/rejection_sampler.py: accepts one of two."""

    def __init__(self, temperature=0.0, block=False, rates=None):
        self.sampler = Sampler(temperature)
        self.use_block_verification = block
        self.synthetic_conditional_rates = rates

    def __call__(self, logits, input_batch, draft_logits=None):
        logits.zero_()
        sampled = torch.tensor([[8, 2, -1], [4, -1, -1], [0, -1, -1]])
        return Object(sampled_token_ids=sampled, num_sampled=torch.tensor([2, 1, 0]))


def batch():
    """`InputBatch` of vllm/v1/worker/gpu/input_batch.py: the scheduler counted two drafts as accepted."""
    starts = [0, 3, 4, 5]
    return Object(
        req_ids=["a", "b", "c"],
        logits_indices=torch.tensor([0, 1, 2, 6, 9]),
        input_ids=torch.tensor([7, 8, 9, 5, 6, 7, 2, 1, 1, 1]),
        positions=torch.tensor([3, 4, 5, 0, 1, 2, 3, 0, 1, 2]),
        cu_num_logits=torch.tensor(starts),
        cu_num_logits_np=np.array(starts),
        num_computed_tokens_np=np.array([5, 0, 0]),
        prefill_len_np=np.array([3, 4, 9]),
    )


def recorded_by_vllm(folder, *, drafts=None, **how):
    own = type("Own", (RejectionSampler,), {})
    requests = Requests("vllm", folder)
    vllm.wrap(own, requests)
    own(**how)(rows(5, [8, 2, 1, 4, 6]), batch(), drafts)
    requests.keep(())
    assert not (folder / "vllm-c.jsonl").exists(), "a part of a prompt is no pass"
    return [speclab.load_steps(folder / f"vllm-{request}.jsonl") for request in "ab"]


def test_vllm_s_passes_are_chains_and_the_end_of_a_prompt_is_a_pass_of_one_row(tmp_path):
    trace, other = recorded_by_vllm(tmp_path)
    step = trace.steps[0]
    assert (trace.prompt_ids, trace.token_ids) == (tuple(PROMPT), [7, 8, 2])
    assert (step.prefix_length, step.accepted, step.position) == (3, (1,), (3, 4, 5))
    assert step.nodes[0].target_top[0][0] == 8, "the logits before sampling"
    assert (other.prompt_ids, other.first_token, other.token_ids) == ((5, 6, 7, 2), None, [4])
    assert speclab.clinic.check(trace) == speclab.clinic.check(other) == ()


@pytest.mark.parametrize(
    ("how", "drawn", "rule"),
    [
        ({}, False, "sample and match"),
        ({}, True, "independent draws"),
        ({"block": True}, True, "a block of draws"),
    ],
)
def test_vllm_s_rule_and_sampling_are_written(how, drawn, rule, tmp_path):
    drafts = torch.zeros(3, 2, VOCAB)
    drafts[2, 0, 8] = drafts[2, 1, 9] = 2.0
    trace, _ = recorded_by_vllm(tmp_path, temperature=0.8, drafts=drafts if drawn else None, **how)
    step = trace.steps[0]
    wanted = {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.05}
    assert {name: pytest.approx(trace.settings[name]) for name in wanted} == wanted
    assert step.rule == rule
    assert ("log_prob" in step.missing) is not drawn
    if drawn:
        expected = (drafts[2, 0] / 0.8).softmax(-1)
        assert step.nodes[1].draft_prob == pytest.approx(float(expected[8]))
        assert dict(step.nodes[0].draft_top)[8] == pytest.approx(float(expected[8]))
        assert trace.settings["draft_temperature"] == pytest.approx(0.8)


def test_vllm_s_passes_without_drafts_and_requests_that_come_back(tmp_path):
    own = type("Own", (Sampler,), {})
    requests = Requests("vllm", tmp_path)
    vllm.wrap(own, requests)
    alone = batch()
    alone.req_ids, alone.logits_indices = ["a"], torch.tensor([0])
    alone.cu_num_logits = torch.tensor([0, 1])
    for _ in range(2):
        own()(rows(1, [4]), alone)
        requests.keep(())
    for name in ("vllm-a.jsonl", "vllm-a-2.jsonl"):
        assert speclab.load_steps(tmp_path / name).token_ids == [7, 4]
    # all of a prompt but its last token
    alone.req_ids, alone.prefill_len_np = ["c"], np.array([5])
    own()(rows(1, [4]), alone)
    assert not (tmp_path / "vllm-c.jsonl").exists()


def test_vllm_s_synthetic_acceptance_is_said(tmp_path):
    trace, _ = recorded_by_vllm(tmp_path, rates=torch.tensor([0.8, 0.6]))
    assert any("synthetic" in note for note in speclab.clinic.report(trace).notes)


def test_an_engine_goes_on_when_its_names_have_moved(tmp_path):
    own = type("Own", (Sampler,), {})
    vllm.wrap(own, Requests("vllm", tmp_path))
    with pytest.warns(UserWarning, match="vllm stopped"):
        assert own()(rows(1, [1]), Object()) is not None
    assert own()(rows(1, [1]), Object()) is not None
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


def recorded_by_sglang(folder, *, topk=2, device="cuda", greedy=True, drafts=None):
    """`eagle_sample` of python/sglang/srt/speculative/eagle_utils.py with two requests of three rows."""
    lengths = [3, 5]
    blocks = []
    for length in lengths:  # build_tree_kernel_efficient, FULL_MASK
        block = torch.ones(3, length + 3, dtype=torch.bool)
        block[:, length:] = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
        blocks.append(block.flatten())
    unused = torch.randint(0, 2, (500,)).bool()  # the buffer is made for the largest batch
    tree = Object(  # EagleVerifyInput of python/sglang/srt/speculative/eagle_info.py
        draft_token_num=3,
        topk=topk,
        draft_token=torch.tensor([7, 8, 9, 7, 8, 9]),
        positions=torch.tensor([3, 4, 4, 5, 6, 6]),
        retrieve_next_token=torch.tensor([[1, -1, -1]] * 2),
        retrieve_next_sibling=torch.tensor([[-1, 2, -1]] * 2),
        custom_mask=torch.cat([*blocks, unused]),
        draft_probs=drafts,
    )
    info = Object(  # SamplingBatchInfo of python/sglang/srt/sampling/sampling_batch_info.py
        is_all_greedy=greedy,
        temperatures=torch.tensor([[0.8], [1.0]]),
        top_ks=torch.tensor([5, 1]),  # 1: temperature 0; 1 << 30: none was asked for
        top_ps=torch.tensor([0.9, 1.0]),
        need_min_p_sampling=False,
        vocab_size=VOCAB,
        acc_additive_penalties=None,
        acc_scaling_penalties=None,
        logit_bias=None,
    )
    requests_ = [
        Object(rid="r1", origin_input_ids=PROMPT, output_ids=[7]),
        Object(rid="r2", origin_input_ids=[*PROMPT, 1, 5], output_ids=[7]),
    ]
    batch = Object(  # ScheduleBatch of python/sglang/srt/managers/schedule_batch.py
        reqs=requests_,
        seq_lens=torch.tensor(lengths),
        out_cache_loc=torch.arange(20, 26),
        sampling_info=info,
        device=device,
    )
    result = (
        torch.tensor([9, 0, 2, 9, 0, 2]),
        torch.tensor([1, 1]),
        torch.tensor([[0, 2, -1], [3, 5, -1]]),
    )
    requests = Requests("sglang", folder)
    record = sglang.hook(requests)
    record(result, tree, batch, Object(next_token_logits=rows(6, [9, 1, 2] * 2)))
    requests.keep(())
    return [speclab.load_steps(folder / f"sglang-{name}.jsonl") for name in ("r1", "r2")]


def test_sglang_s_trees_with_masks_and_slots(tmp_path):
    for trace, slots in zip(
        recorded_by_sglang(tmp_path), ([20, 21, 22], [23, 24, 25]), strict=True
    ):
        step = trace.steps[0]
        assert step.tree.parent.tolist() == [-1, 0, 0]
        assert (step.accepted, step.committed) == ((2,), (9, 2))
        assert [node.kv_slot for node in step.nodes] == slots
        assert step.mask.tolist() == [
            [True, False, False],
            [True, True, False],
            [True, False, True],
        ]
        assert speclab.clinic.check(trace) == ()
    assert "mask" in recorded_by_sglang(tmp_path, topk=1)[0].steps[0].missing, "no kernel reads it"


def test_sglang_s_rule_and_sampling_are_written(tmp_path):
    first, second = recorded_by_sglang(tmp_path, greedy=False)
    wanted = {"temperature": 0.8, "top_k": 5, "top_p": 0.9}
    assert {name: pytest.approx(first.settings[name]) for name in wanted} == wanted
    assert (first.steps[0].rule, second.steps[0].rule) == ("sample and match", "greedy")
    assert second.settings["temperature"] == 0
    assert speclab.clinic.report(first).notes == ()
    on_cpu, _ = recorded_by_sglang(tmp_path, greedy=False, device="cpu")
    assert "argmax" in speclab.clinic.report(on_cpu).notes[0]
    drafts = torch.full((2, 2, VOCAB), 1 / VOCAB)
    first, _ = recorded_by_sglang(tmp_path, greedy=False, topk=1, drafts=drafts)
    assert first.steps[0].rule == "independent draws"
    assert first.steps[0].nodes[1].draft_prob == pytest.approx(1 / VOCAB)


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
