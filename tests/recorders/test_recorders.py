"""Recorders of engines, on objects that hold what the engines' sources put there (file and class beside
each), and the helpers beside the recorder."""

from __future__ import annotations

import sys
import types
from types import SimpleNamespace as Object

import numpy as np
import pytest
import torch
from support.refusals import refused

import speclab
from speclab.clinic.recorders import ddtree, published, sglang, vllm
from speclab.clinic.recorders.files import Requests, named
from speclab.errors import SpeclabError
from speclab.recorder import Recorder, parents, topk, visible

VOCAB = 11
PROMPT = [3, 1, 4]
SEEN = [[True, False, False], [True, True, False], [True, False, True]]
"""What three rows of a tree see of each other: a root and two guesses below it."""


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
    line = {"prefix_length": 1, "parent": [-1, 0], "accepted": [], "committed": [6]}
    for spare in (0, 5):  # what a static cache has behind the tree
        mask = torch.nn.functional.pad(additive, (0, spare), value=low)
        with Recorder(path, PROMPT) as recorder:
            recorder.step(token=[4, 5], mask=mask, **line)
        step = speclab.load_steps(path).steps[0]
        assert step.mask.tolist() == [[True, False], [True, True]]
        assert step.hidden_prefix == ((1, 0, 0),)
    with pytest.raises(ValueError, match="2 rows"):
        Recorder(path, PROMPT).step(token=[4], mask=additive, **line)


def test_top_k_is_the_same_of_arrays_and_tensors():
    logits = rows(2, [5, 7])
    # ids and log-probabilities
    assert np.allclose(np.array(topk(logits, 4)), np.array(topk(logits.numpy(), 4)), atol=1e-5)


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


def recorded(folder, *names):
    """The runs of a folder, which must be all that it has."""
    assert {path.name for path in folder.iterdir()} == {f"{name}.jsonl" for name in names}
    return [speclab.load_steps(folder / f"{name}.jsonl") for name in names]


def wrapped(kind, folder):
    """The sampler, recorded, and its open files."""
    own = type("Own", (kind,), {})
    requests = Requests("vllm", folder)
    vllm.wrap(own, requests)
    return own, requests


def recorded_by_vllm(folder, *, drafts=None, **how):
    own, requests = wrapped(RejectionSampler, folder)
    own(**how)(rows(5, [8, 2, 1, 4, 6]), batch(), drafts)
    requests.keep(())
    return recorded(folder, "vllm-a", "vllm-b")  # a part of a prompt is no pass


def test_vllm_s_passes_are_chains_and_the_end_of_a_prompt_is_a_pass_of_one_row(tmp_path):
    trace, other = recorded_by_vllm(tmp_path)
    step = trace.steps[0]
    assert (trace.prompt_ids, trace.token_ids) == (tuple(PROMPT), [7, 8, 2])
    assert (step.prefix_length, step.accepted, step.position) == (3, (1,), (3, 4, 5))
    assert step.nodes[0].target_top[0][0] == 8, "the logits before sampling"
    assert (other.prompt_ids, other.first_token, other.token_ids) == ((5, 6, 7, 2), None, [4])
    assert speclab.clinic.check(trace) == speclab.clinic.check(other) == ()


def assert_sampled(trace, rule, **settings):
    """Its settings and its rule are these."""
    assert {name: pytest.approx(trace.settings[name]) for name in settings} == settings
    assert trace.steps[0].rule == rule


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
    assert_sampled(trace, rule, temperature=0.8, top_k=5, top_p=0.9, min_p=0.05)
    step = trace.steps[0]
    assert ("log_prob" in step.missing) is not drawn
    if drawn:
        expected = pytest.approx(float((drafts[2, 0] / 0.8).softmax(-1)[8]))
        assert step.nodes[1].draft_prob == dict(step.nodes[0].draft_top)[8] == expected
        assert trace.settings["draft_temperature"] == pytest.approx(0.8)


def test_vllm_s_passes_without_drafts_and_requests_that_come_back(tmp_path):
    own, requests = wrapped(Sampler, tmp_path)
    alone = batch()
    alone.req_ids, alone.logits_indices = ["a"], torch.tensor([0])
    alone.cu_num_logits = torch.tensor([0, 1])
    for _ in range(2):
        own()(rows(1, [4]), alone)
        requests.keep(())
    # all of a prompt but its last token is no pass
    alone.req_ids, alone.prefill_len_np = ["c"], np.array([5])
    own()(rows(1, [4]), alone)
    for trace in recorded(tmp_path, "vllm-a", "vllm-a-2"):
        assert trace.token_ids == [7, 4]


def test_vllm_s_synthetic_acceptance_is_said(tmp_path):
    trace, _ = recorded_by_vllm(tmp_path, rates=torch.tensor([0.8, 0.6]))
    assert any("synthetic" in note for note in speclab.clinic.report(trace).notes)


def test_an_engine_goes_on_when_its_names_have_moved(tmp_path):
    own, _ = wrapped(Sampler, tmp_path)
    with pytest.warns(UserWarning, match="vllm stopped"):
        assert own()(rows(1, [1]), Object()) is not None
    assert own()(rows(1, [1]), Object()) is not None
    with refused(SpeclabError, "SGLang has no json.nowhere"):
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
        prefix = torch.ones(3, length, dtype=torch.bool)
        blocks.append(torch.hstack([prefix, torch.tensor(SEEN)]).flatten())
    unused = torch.randint(0, 2, (500,)).bool()  # the buffer is made for the largest batch
    tree = Object(  # EagleVerifyInput of python/sglang/srt/speculative/eagle_info.py
        draft_token_num=3,
        topk=topk,
        draft_token=torch.tensor([7, 8, 9] * 2),
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
        vocab_size=VOCAB,
        acc_additive_penalties=None,
        acc_scaling_penalties=None,
        logit_bias=None,
    )
    asked = Object(
        ignore_eos=True
    )  # SamplingParams of python/sglang/srt/sampling/sampling_params.py
    batch = Object(  # ScheduleBatch of python/sglang/srt/managers/schedule_batch.py
        reqs=[
            Object(rid="r1", origin_input_ids=PROMPT, output_ids=[7], sampling_params=asked),
            Object(rid="r2", origin_input_ids=[*PROMPT, 1, 5], output_ids=[7]),
        ],
        seq_lens=torch.tensor(lengths),
        out_cache_loc=torch.arange(20, 26),
        sampling_info=info,
        device=device,
    )
    result = [torch.tensor(each) for each in ([9, 0, 2] * 2, [1, 1], [[0, 2, -1], [3, 5, -1]])]
    requests = Requests("sglang", folder)
    sglang.hook(requests)(result, tree, batch, Object(next_token_logits=rows(6, [9, 1, 2] * 2)))
    requests.keep(())
    return recorded(folder, "sglang-r1", "sglang-r2")


def test_sglang_s_trees_with_masks_and_slots(tmp_path):
    first, second = recorded_by_sglang(tmp_path)
    for trace, slot in ((first, 20), (second, 23)):
        step = trace.steps[0]
        assert step.tree.parent.tolist() == [-1, 0, 0]
        assert (step.accepted, step.committed) == ((2,), (9, 2))
        assert [node.kv_slot for node in step.nodes] == [slot, slot + 1, slot + 2]
        assert step.mask.tolist() == SEEN
        assert speclab.clinic.check(trace) == ()
    assert [trace.settings["stop_at_eos"] for trace in (first, second)] == [False, True]
    assert "mask" in recorded_by_sglang(tmp_path, topk=1)[0].steps[0].missing, "no kernel reads it"


def test_sglang_s_rule_and_sampling_are_written(tmp_path):
    first, second = recorded_by_sglang(tmp_path, greedy=False)
    assert_sampled(first, "sample and match", temperature=0.8, top_k=5, top_p=0.9)
    assert_sampled(second, "greedy", temperature=0.0)
    assert speclab.clinic.report(first).notes == ()
    on_cpu, _ = recorded_by_sglang(tmp_path, greedy=False, device="cpu")
    assert "argmax" in speclab.clinic.report(on_cpu).notes[0]
    drafts = torch.full((2, 2, VOCAB), 1 / VOCAB)
    first, _ = recorded_by_sglang(tmp_path, greedy=False, topk=1, drafts=drafts)
    assert_sampled(first, "independent draws")
    assert first.steps[0].nodes[1].draft_prob == pytest.approx(1 / VOCAB)


@pytest.fixture
def loop(monkeypatch):
    """Makes a module of functions, which must be there again in the end."""
    module = types.ModuleType("loop")
    monkeypatch.setitem(sys.modules, "loop", module)
    own = {}

    def of(*functions):
        own.update({function.__name__: function for function in functions})
        vars(module).update(own)
        return module

    yield of
    assert own.items() <= vars(module).items()


def test_published_loops_are_wrapped_and_restored(tmp_path, loop):
    def tree_decoding(
        model, tree_candidates, past_key_values, tree_position_ids, input_ids, retrieve_indices
    ):
        return rows(4, [9, 1, 9, 2]).reshape(2, 2, VOCAB), None, None

    def update_inference_inputs(
        input_ids, candidates, best_candidate, accept_length, retrieve_indices
    ):
        return input_ids

    module = loop(tree_decoding, update_inference_inputs)
    indices = torch.tensor([[0, 1], [0, 2]])
    depth = torch.tensor([0, 1, 1])
    ids, longer = torch.tensor([PROMPT]), torch.tensor([[*PROMPT, 7, 9]])
    with published.record(module, tmp_path / "run.jsonl", temperature=0.0):
        module.tree_decoding(None, torch.tensor([[7, 8, 9]]), None, depth, ids, indices)
        module.update_inference_inputs(ids, None, torch.tensor(1), 1, indices)
        module.tree_decoding(None, torch.tensor([[2, 8, 9]]), None, depth, longer, indices)
    (trace,) = recorded(tmp_path, "run")
    assert (trace.token_ids, trace.steps[0].accepted) == ([7, 9, 2], (2,))
    assert trace.steps[0].position == (3, 4, 4)
    assert speclab.clinic.check(trace) == ()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_ddtree_s_loop_is_wrapped_and_restored(temperature, tmp_path, loop):
    def compile_ddtree_tree(root_token_id, node_token_ids, past_length):
        mask = torch.zeros(3, past_length + 3)
        mask[:, past_length:][~torch.tensor(SEEN)] = torch.finfo(torch.float32).min
        position = past_length + torch.tensor([[0, 1, 1]])
        return torch.tensor([[root_token_id, *node_token_ids]]), position, mask[None, None], 0, 3

    def sample(logits, temperature=0.0):
        return logits.argmax(-1)

    def follow_verified_tree(child_maps, posterior):
        return [0, 2], 4

    module = loop(compile_ddtree_tree, sample, follow_verified_tree)
    with ddtree.record(module, tmp_path / "run.jsonl", PROMPT):
        module.sample(rows(1, [7])[None], temperature)
        module.compile_ddtree_tree(7, [8, 9], past_length=3)
        posterior = module.sample(rows(3, [9, 1, 4])[None], temperature)
        module.follow_verified_tree([{8: 1, 9: 2}, {}, {}], posterior)
    (trace,) = recorded(tmp_path, "run")
    step = trace.steps[0]
    assert (trace.prompt_ids, trace.token_ids) == (tuple(PROMPT), [7, 9, 4])
    assert (step.accepted, step.position) == ((2,), (3, 4, 4))
    assert step.mask.tolist() == SEEN
    assert step.rule == ("sample and match" if temperature else "greedy")
    assert [node.target_choice for node in step.nodes] == [9, 1, 4]
    assert speclab.clinic.check(trace) == ()
