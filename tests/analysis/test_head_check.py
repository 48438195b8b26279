"""Draft heads checked: each injected fault is named as the likeliest cause, and a healthy head is not accused."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch
from chats import chat_pair
from heads import random_head
from refusals import refused
from tiny import tiny

import speclab
from speclab import HeadMismatchError, ModelNotFoundError, NoDraftError, PromptError, SettingsError
from speclab.analysis import head_check, head_ways
from speclab.analysis.faults import final_norm
from speclab.analysis.head_check import check_head
from speclab.analysis.head_trials import States, Text, Way, guesses
from speclab.models.eagle import Head
from speclab.models.forward import ModuleForward
from speclab.models.heads import HeadRunner
from speclab.models.runner import Runner

pytestmark = pytest.mark.model

NEW = 64
HIDDEN = 320


@cache
def mini():
    return speclab.load_pair(device="cpu")


@cache
def texts() -> tuple[Text, ...]:
    """The mini target's own, one of each kind; whatever is wrong with a head, they are the same."""
    found = []
    for kind in speclab.prompts.kinds():
        ids = mini().encode(speclab.prompts.examples(kind)[0].text)
        own = speclab.generate(mini(), speclab.Autoregressive(), ids, max_new_tokens=NEW).token_ids
        found.append(Text((*ids, *own), len(ids), kind))
    return tuple(found)


def code_head(**changes: object) -> Head:
    """A copy of the shipped head for code with other fields in its config."""
    head = copy.deepcopy(mini().heads[1].model)
    head.config = head.config.model_copy(update=changes)
    return head


def runner_of(kind: type[HeadRunner]) -> HeadRunner:
    return kind(code_head(), mini().target)


def with_vocabulary(ids: torch.Tensor, shift: int = 0) -> Head:
    """The head with an output layer of its own, for tokens `ids`; the map names those `shift` further on."""
    whole = code_head(draft_vocab_size=len(ids))
    output = mini().target.model.get_output_embeddings().weight
    head = Head(whole.config, own_output=True)
    head.load_state_dict(whole.state_dict() | {"lm_head.weight": output[ids].detach()}, strict=False)
    head.choose_tokens(ids + shift)
    return head.eval()


def common_tokens(count: int) -> torch.Tensor:
    """Tokens of the texts first, then others."""
    own = dict.fromkeys(token for text in texts() for token in text.own)
    rest = (token for token in range(5, 4000) if token not in own)
    return torch.tensor(sorted([*own, *rest][:count]))


class Further(HeadRunner):
    """Its drafted rows stand one position too far."""

    def forward(self, tokens, features, positions, visible, topk=0):
        return super().forward(tokens, features, [each + 1 for each in positions], visible, topk)


class Late(HeadRunner):
    """It is handed the state of one place further back with every token."""

    def after_each(self, tokens, states, topk=0):
        return super().after_each(tokens, states.roll(1, 0), topk)


class BeforeNorm(ModuleForward):
    """A pass whose last states have not gone through the final norm."""

    def __call__(self, batch, cache):
        norm, raw = self.model.get_submodule(final_norm(self.model)), []
        hook = norm.register_forward_pre_hook(lambda _, given: raw.append(given[0]))
        try:
            output = super().__call__(batch, cache)
        finally:
            hook.remove()
        return output if output.states is None else output._replace(states=raw[0].reshape(output.states.shape))


def unnormed_target():
    target = mini().target.fork()
    target.implementation = BeforeNorm(target.model)
    return replace(mini(), target=target)


def for_raw_states() -> Head:
    """The head, its weights made to read states before the final norm, as nearly as one matrix can."""
    head, norm = code_head(), mini().target.model.get_submodule(final_norm(mini().target.model))
    states = [States(mini().target, (-1,), text.tokens).raw for text in texts()]
    spread = torch.cat(states).std(-1).median()
    with torch.no_grad():
        feature = head.fc.weight[:, HIDDEN:].clone()
        centre = torch.eye(HIDDEN) - torch.full((HIDDEN, HIDDEN), 1 / HIDDEN)
        head.fc.weight[:, HIDDEN:] = feature @ torch.diag(norm.weight / spread) @ centre
        head.fc.bias += feature @ norm.bias
    return head


def fused(layers: tuple[int, ...]) -> Head:
    """The head reading three layers, of which it was made to use the last one alone."""
    whole = code_head(layers=layers)
    head = Head(whole.config)
    use = torch.cat([torch.zeros(HIDDEN, 2 * HIDDEN), torch.eye(HIDDEN)], dim=1)
    head.load_state_dict(whole.state_dict() | {"fuse.weight": use}, strict=False)
    return head.eval()


def another_target():
    """The pair with a target that says the same from hidden states in another order."""
    model = copy.deepcopy(mini().target.model)
    order = torch.randperm(HIDDEN, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if name.endswith(("query_key_value.weight", "dense_h_to_4h.weight", "embed_in.weight", "embed_out.weight")):
                weights.copy_(weights[:, order])
            elif "norm" in name or ".attention.dense." in name or ".dense_4h_to_h." in name:
                weights.copy_(weights[order])
    return replace(mini(), target=Runner(model, "fine-tuned"), draft=None, heads=())


def _with_head(runner: HeadRunner):
    return replace(mini(), heads=(runner,))


FAULTS = {
    "the map one id too far": (lambda: (mini(), with_vocabulary(common_tokens(2000), 1)), head_ways.MAP),
    "another layer": (lambda: (mini(), code_head(layers=(6,))), head_ways.LAYERS),
    "three layers, each one too low": (lambda: (mini(), fused((2, 5, 7))), head_ways.LAYERS),
    "norm skipped": (lambda: (unnormed_target(), code_head()), head_ways.NORM),
    "norm added": (lambda: (mini(), for_raw_states()), head_ways.NORM),
    "positions one too far": (lambda: (_with_head(runner_of(Further)), 0), head_check.POSITIONS),
    "states one place late": (lambda: (_with_head(runner_of(Late)), 0), head_ways.ALIGNMENT),
    "another rotary base": (lambda: (mini(), code_head(rope_theta=1e6)), head_ways.ROPE),
    "few tokens": (lambda: (mini(), with_vocabulary(common_tokens(60))), head_check.COVERAGE),
    "another target": (lambda: (another_target(), code_head(target="")), head_check.TARGET),
}


@cache
def mini_in_half():
    """Its passes are bitwise, so nothing may be left in the module."""
    return speclab.load_pair(device="cpu", dtype="bfloat16")


HEALTHY = {
    "prose": lambda: (mini(), "prose"),
    "code": lambda: (mini(), "code"),
    "a draft vocabulary": lambda: (mini(), with_vocabulary(common_tokens(2000))),
    "three layers": lambda: (mini(), fused((3, 6, 8))),
    "half precision": lambda: (mini_in_half(), "code"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_as_the_likeliest_cause(fault):
    make, cause = FAULTS[fault]
    found = check_head(*make(), texts() if cause == head_ways.ROPE else texts()[:4])
    assert found.likeliest is not None, str(found)
    assert found.likeliest.check == cause, str(found)
    assert found.likeliest.out in str(found)


@pytest.mark.parametrize("head", HEALTHY)
def test_a_healthy_head_is_not_accused(head):
    found = check_head(*HEALTHY[head](), texts()[:4])
    assert found.likeliest is None, str(found)
    assert found.first.value > 0.3


TEMPLATE = '{% for m in messages %}def answer(self):\n    """{{ m.content }}"""\n    return {% endfor %}'


def test_prompts_that_lack_the_template_of_the_heads_training_are_named():
    """The template makes Python of what a user says, which the head for code was trained on."""
    pair = chat_pair(TEMPLATE)
    said = [prompt.text for prompt in speclab.prompts.examples("prose")]
    found = check_head(pair, "code", said, max_new_tokens=32)
    assert found.likeliest is not None, str(found)
    assert found.likeliest.check == head_check.TEMPLATE, str(found)


def test_what_is_measured_is_what_decoding_accepts():
    """A greedy chain of the session is right as far as the measured chain at the same place is."""
    text, pair = texts()[0], mini()
    states = States(pair.target, (-1,), text.tokens)
    found = guesses(Way("", "", pair.heads[1]), text, states, depth=3)
    chain = speclab.DraftHead(head=1, children=1, depth=3, node_budget=4)
    session = speclab.Session(pair, chain, list(text.tokens[: text.prompt]), max_new_tokens=NEW)
    session.run()
    place, compared = 0, 0
    for step in session.steps:
        if place < len(found.alive) and found.known[place].all():
            assert len(step.committed) - 1 == found.alive[place].sum()
            compared += 1
        place += len(step.committed)
    assert compared > 20


@pytest.mark.parametrize("flags", [{}, {"norm_before_residual": True, "norm_output": True, "fc_norm": True}])
def test_a_head_of_eagle3_is_run_every_way(flags):
    target = tiny("llama", num_hidden_layers=6)
    head = random_head(target, 1, ids=range(40), own_output=True, eagle3=True, layers=(2, 3, 5), **flags)
    pair = speclab.load_pair(target=target, heads=head)
    found = check_head(pair, 0, [list(range(9)), list(range(9, 30))], max_new_tokens=32)
    assert {one.cause for one in found.tried} >= {head_ways.LAYERS, head_ways.NORM, head_ways.MAP, head_ways.ROPE}
    tried = {one.how: one for one in found.tried}
    assert {"layers 1, 2, 4", "layers 3, 4, 6"} <= set(tried)
    assert found.places == 62
    fed_back = tried[f"norm_output {'off' if flags else 'on'}"]
    assert fed_back.nats != 0, "it changes what a first guess feeds back, so the second guesses"
    assert (fed_back.depth, fed_back.instead) == (2, found.guessed[1])


def test_what_cannot_be_checked_is_refused(tmp_path):
    (tmp_path / "no-head").mkdir()
    (tmp_path / "no-head" / "config.json").write_text("{}")
    with refused(ModelNotFoundError, "no-head", "no draft head"):
        check_head(mini(), tmp_path / "no-head", texts())
    with refused(HeadMismatchError, "32", "320"):
        check_head(mini(), random_head(tiny("gpt_neox", vocab=4096), 1), texts())
    with refused(NoDraftError, "9", "prose, code"):
        check_head(mini(), 9, texts())
    for wrong in (None, 1.5, ["prose"]):
        with refused(SettingsError, "no model"):
            check_head(mini(), wrong, texts())
    with refused(SettingsError, "no pair"):
        check_head("mini", 0, texts())
    with refused(PromptError, "single text"):
        check_head(mini(), 0, "Hello")
    with refused(PromptError, "no prompts"):
        check_head(mini(), 0, [])
    with refused(PromptError, "places"):
        check_head(mini(), 0, ["Hello"], max_new_tokens=8)
