"""Tiny random models of many families, with weights large enough for a wrong attention mask to
show.

Library defaults draw weights so small that attention hardly matters; here they are normal with
deviation 0.3, and norms and biases get noise as well.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

WINDOW = 8
_COMMON = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
_GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
# Tied embeddings would make a loud random Gemma repeat one token, whatever its attention sees.
_GEMMA = {
    **_COMMON,
    **_GROUPED,
    "sliding_window": WINDOW,
    "query_pre_attn_scalar": 8,
    "tie_word_embeddings": False,
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
_DEEPSEEK = _EXPERTS | {
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
_MAMBA = {"mamba_n_heads": 4, "mamba_d_state": 8, "mamba_n_groups": 1}
_HYBRID = {"layer_types": ["sliding_attention", "full_attention"]}

BORDER = 32
"""Texts of more tokens turn all positions by the long factors."""
_FACTORS = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [6.0, 3.0, 9.0, 2.0],
}

CONFIGS = {
    "gpt_neox": {**_COMMON, "rotary_pct": 0.5},
    "llama": {**_COMMON, **_GROUPED},
    "qwen3": {**_COMMON, **_GROUPED},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256},
    "opt": {**_COMMON, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "mistral": {**_COMMON, **_GROUPED, "sliding_window": WINDOW},
    "gemma2": {**_GEMMA, **_HYBRID},
    "gemma3_text": {**_GEMMA, **_HYBRID},
    "phi": {**_COMMON, "partial_rotary_factor": 0.5},
    "phi3": {
        **_COMMON,
        "num_key_value_heads": 2,
        "original_max_position_embeddings": BORDER,
        "rope_parameters": _FACTORS | {"original_max_position_embeddings": BORDER},
    },
    "llama4_text": {
        **_COMMON,
        **_GROUPED,
        "intermediate_size_mlp": 48,
        "attention_chunk_size": 8,
        "no_rope_layers": [1, 0],
        "num_local_experts": 2,
        "moe_layers": [1],
        "attn_temperature_tuning": False,
    },
    "deepseek_v3": {
        **_COMMON,
        **_DEEPSEEK,
        "num_key_value_heads": 4,
        "q_lora_rank": 16,
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4,
        "v_head_dim": 8,
    },
    "glm4_moe": {**_COMMON, **_GROUPED, **_DEEPSEEK},
    "mellum": {
        **_COMMON,
        **_GROUPED,
        **_EXPERTS,
        **_HYBRID,
        "num_experts": 4,
        "sliding_window": WINDOW,
    },
    "gpt_neo": {
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "intermediate_size": 48,
        "attention_types": [[["global", "local"], 1]],
        "window_size": WINDOW,
    },
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 2},
    "mamba2": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "head_dim": 16,
        "num_heads": 4,
        "state_size": 8,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "qwen3_next": {
        **_COMMON,
        **_GROUPED,
        **_EXPERTS,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "layer_types": ["linear_attention", "full_attention"],
        "num_experts": 4,
        "shared_expert_intermediate_size": 16,
    },
    "falcon_h1": {
        **_COMMON,
        **_GROUPED,
        **_MAMBA,
        "mamba_d_ssm": 32,
        "mamba_d_head": 8,
        "mamba_chunk_size": 8,
    },
    "granitemoehybrid": {
        **_COMMON,
        "num_key_value_heads": 2,
        **_MAMBA,
        "layer_types": ["linear_attention", "full_attention"],
        "mamba_d_head": 16,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "shared_intermediate_size": 16,
    },
    "bamba": {
        **_COMMON,
        "num_key_value_heads": 2,
        **_MAMBA,
        "attn_layer_indices": [1],
        "mamba_d_head": 16,
    },
}

# Families whose attention takes a tree, with windows shorter than any prefix the tests use.
FAMILIES = ("gpt_neox", "llama", "qwen3", "gpt2", "opt", "mistral", "gemma2", "gemma3_text", "phi")
BY_PATHS = ("mamba2", "qwen3_next", "falcon_h1", "granitemoehybrid", "bloom", "gpt_neo", "mamba")
"""Families that take no tree mask; the last reads its paths token by token."""


def tiny(family, seed=0, vocab=64, **overrides):
    """A random causal model of `family` in float32, in eval mode; `overrides` are config fields.

    The same arguments give the same weights, and the global random state is left as it was. Context
    256; no end-of-text id, so that random text does not end by chance (pass `eos_token_id` to have
    one).
    """
    settings: dict[str, Any] = {
        "vocab_size": vocab,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if family not in {"gpt2", "bloom", "mamba", "mamba2"}:
        settings["max_position_embeddings"] = 256
    config = CONFIG_MAPPING[family](**(settings | CONFIGS[family] | overrides))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        make_loud(model)
    model.generation_config.do_sample = False
    return model


@torch.no_grad()
def make_loud(model, deviation=0.3):
    """An output comes last: the other weights are the same with one and without."""
    named = sorted(model.named_parameters(), key=lambda pair: "lm_head" in pair[0])
    for _, parameter in named:
        if parameter.ndim > 1:
            parameter.normal_(std=deviation)
        else:
            parameter.add_(torch.randn_like(parameter), alpha=0.1)


class Uneven(nn.Module):
    """An activation whose rows are others beside four and more others."""

    def forward(self, rows):
        return rows.relu() * (1.5 if rows.shape[-2] > 4 else 1)


def make_uneven(model):
    for layer in model.model.layers:
        layer.mlp.act_fn = Uneven()
