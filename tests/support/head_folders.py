"""Random draft heads in the folders in which heads are published, by the names that those have.

From SafeAILab/EAGLE cb7e084, sgl-project/SpecForge a6b6b02, vllm-project/speculators c05b95b,
NVIDIA Model-Optimizer 5a4242f and 0371364, and public threads on the heads named:
sgl-project/sglang #4716, #25454 and #32334, vllm-project/vllm #42143, pytorch/executorch #20149.
"""

import json

import torch
from safetensors.torch import load_file, save_file

SOME = [0, 1, 4, 9, 25, 36, 49, 63]
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 64,
    "truncate": False,
}  # fmt: skip
NVIDIA = {"use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True,
          "use_mtp_layernorm": None}  # fmt: skip
SPECFORGE = {
    "max_position_embeddings": 2048,
    "use_cache": True,
    "use_sliding_window": False,
    "sliding_window": None,
}
SPECULATORS = {
    "speculators_model_type": "eagle3", "speculators_version": "0.3.0", "norm_before_residual": True,
    "norm_before_fc": False, "eagle_aux_hidden_state_layer_ids": [1, 2, 4], "target_hidden_size": None,
}  # fmt: skip
NAMED_LLAMA = {"architectures": ["LlamaForCausalLM"]}
# By name: fields of the config (`...`: it has no such field), and `write`'s own choices. The first
# word of a name is who published a head with these fields and tensors; sizes apart, which are tiny
# here.
VARIANTS = {
    "SafeAILab, LLaMA 3.1 8B": ({**NAMED_LLAMA, "rope_theta": ..., "head_dim": ...}, {"pickled": True}),
    "SafeAILab, LLaMA 3.3 70B": (
        {**NAMED_LLAMA, "hidden_size": 24, "target_hidden_size": 32}, {"pickled": True, "embeddings": True}
    ),
    "SafeAILab, EAGLE of LLaMA 2": (NAMED_LLAMA, {"eagle": True, "ids": None, "pickled": True}),
    "SpecForge, Qwen2.5-VL": (
        {**SPECFORGE, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}, "target_model_type": "qwen2_5_vl"},
        {"embeddings": True},
    ),
    "SpecForge, EAGLE-3.1 of Qwen3 30B": ({**SPECFORGE, "fc_norm": True, "norm_output": True}, {}),
    "NVIDIA, LLaMA 3.3 70B": (
        {
            "rope_scaling": {**LLAMA3, "rope_theta": 500.0}, "rope_theta": None, "head_dim": None, "mlp_bias": None,
            "hidden_act": None, "eagle_config": {**NVIDIA, "eagle_aux_hidden_state_layer_ids": [1, 3, 2]},
        }, {"maps": "d2t"},
    ),
    "NVIDIA, gpt-oss 120B": (
        {"eagle_config": {**NVIDIA, "norm_before_fc": True, "eagle_aux_hidden_state_layer_ids": [2, 3, 4]}},
        {"layer": "layers.0.", "maps": "d2t", "input_norm": True},
    ),
    "nebius, gpt-oss 20B": ({**NAMED_LLAMA, "truncated_vocab_size": len(SOME), "rope_scaling": YARN}, {}),
    "RedHatAI, Qwen3 8B": (SPECULATORS, {"embeddings": True}),
    "speculators, EAGLE-3.1 of Qwen3's layer": (
        {**SPECULATORS, "head_dim": 8, "fc_norm": True, "norm_output": True}, {"qwen3": True, "embeddings": True}
    ),
    "linear positions, the target's output matrix": (
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}, "draft_vocab_size": None},
        {"ids": None, "own_output": False},
    ),
}  # fmt: skip


def write(folder, target, variant="SafeAILab, LLaMA 3.1 8B", **changes):
    """A folder of that variant with random weights; `changes` replace fields of its config."""
    fields, choices = VARIANTS[variant]
    fields = {**fields, **changes}
    folder.mkdir(parents=True, exist_ok=True)
    shape = {
        "model_type": "qwen3" if choices.get("qwen3") else "llama", "vocab_size": target.config.vocab_size,
        "hidden_size": target.config.hidden_size, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 48, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": bool(choices.get("qwen3")),
    }  # fmt: skip
    layer_fields = {
        name for name in fields if name in shape or name in ("head_dim", "rope_scaling")
    }
    shape |= {name: fields.pop(name) for name in layer_fields}
    shape = {name: value for name, value in shape.items() if value is not ...}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        tensors = _tensors(shape, fields, choices, target.config.hidden_size)
    ids = choices.get("ids", SOME)
    if "fc.weight" in tensors and ids is not None:
        fields["draft_vocab_size"] = len(ids)
        tensors["d2t"] = torch.tensor(ids) - torch.arange(len(ids))
        if "maps" not in choices:
            tensors["t2d"] = torch.isin(torch.arange(shape["vocab_size"]), torch.tensor(ids))
    if "speculators_model_type" in fields:
        verifier = {"name_or_path": "someone/tiny", "architectures": ["LlamaForCausalLM"]}
        config = {
            "architectures": ["Eagle3Speculator"], "model_type": "speculator_model", "transformer_layer_config": shape,
            "auto_map": {"": "eagle3.Eagle3SpeculatorConfig"},
            "speculators_config": {"algorithm": fields["speculators_model_type"], "verifier": verifier}, **fields,
        }  # fmt: skip
    else:
        config = {"architectures": ["LlamaForCausalLMEagle3"], **shape, **fields}
    (folder / "config.json").write_text(json.dumps(config))
    if choices.get("pickled"):
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return folder


def weights(folder):
    """The tensors of a folder, by the names in its file."""
    pickled = folder / "pytorch_model.bin"
    return (
        torch.load(pickled, weights_only=True)
        if pickled.is_file()
        else load_file(folder / "model.safetensors")
    )


def rewrite(folder, tensors):
    """Puts these in place of a folder's tensors."""
    (folder / "pytorch_model.bin").unlink(missing_ok=True)
    save_file(tensors, folder / "model.safetensors")


def _tensors(shape, fields, choices, states):
    old = "eagle" in choices
    named = old or "speculators_model_type" in fields
    layer = choices.get("layer", "layers.0." if named else "midlayer.")
    around = (
        _around_of_eagle(shape) if old else _around_of_eagle3(shape, fields, choices, states, layer)
    )
    return around | _block(shape, choices, layer, shape["hidden_size"] * (1 if old else 2))


def one(size):
    return 1 + 0.3 * torch.randn(size)


def many(*sizes):
    return 0.2 * torch.randn(*sizes)


def _around_of_eagle(shape):
    size = shape["hidden_size"]
    # the target's embeddings are read in their place
    embeddings = torch.randn(shape["vocab_size"], size)
    return {
        "fc.weight": many(size, 2 * size),
        "fc.bias": many(size),
        "embed_tokens.weight": embeddings,
    }


def _around_of_eagle3(shape, fields, choices, states, layer):
    size = shape["hidden_size"]
    vocab = shape["vocab_size"]
    found = {"fc.weight": many(size, 3 * states), "norm.weight": one(size)}
    found |= {f"{layer}{name}.weight": one(size) for name in ("hidden_norm", "input_layernorm")}
    if choices.get("own_output", True):
        found["lm_head.weight"] = many(len(choices.get("ids", SOME) or range(vocab)), size)
    if choices.get("embeddings"):
        found["embed_tokens.weight"] = torch.randn(vocab, size)
    if fields.get("fc_norm"):
        found |= {f"fc_norm.{number}.weight": one(states) for number in range(3)}
    if choices.get("input_norm"):
        found["input_norm.weight"] = one(3 * states)
    return found


def _block(shape, choices, layer, read):
    size = shape["hidden_size"]
    inner = shape["intermediate_size"]
    width = shape.get("head_dim") or size // shape["num_attention_heads"]
    queries = shape["num_attention_heads"] * width
    shared = shape["num_key_value_heads"] * width
    found = {f"{layer}post_attention_layernorm.weight": one(size)}
    for name, rows, columns in (
        ("self_attn.q_proj", queries, read), ("self_attn.k_proj", shared, read), ("self_attn.v_proj", shared, read),
        ("self_attn.o_proj", size, queries), ("mlp.gate_proj", inner, size), ("mlp.up_proj", inner, size),
        ("mlp.down_proj", size, inner),
    ):  # fmt: skip
        found[f"{layer}{name}.weight"] = many(rows, columns)
        if choices.get("qwen3") and name.startswith("self_attn"):
            found[f"{layer}{name}.bias"] = many(rows)
    if choices.get("qwen3"):
        found |= {f"{layer}self_attn.{name}_norm.weight": one(width) for name in ("q", "k")}
    return found
