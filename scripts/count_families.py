"""How each kind of causal decoder of transformers verifies a tree; writes a table for docs/models.md.

Every family of `AutoModelForCausalLM` is built from a small random config on a CPU, and the probe that
runs at load decides: by a mask, by paths, level by level, or not. Each that decodes is compared with
`model.generate`.

    python scripts/count_families.py [family ...]
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections import defaultdict
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

import speclab

SECONDS = 60
_SIZES = {
    1: "n_group topk_group first_k_dense_replace mamba_n_groups n_groups",
    2: (
        "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers "
        "num_key_value_heads num_experts_per_tok moe_topk moe_k linear_num_key_heads "
    ),
    4: (
        "num_attention_heads n_head n_heads num_heads decoder_attention_heads "
        "encoder_attention_heads num_experts num_local_experts n_routed_experts "
        "moe_num_experts qk_rope_head_dim qk_nope_head_dim mamba_n_heads mamba_num_heads "
        "time_step_rank linear_num_value_heads "
    ),
    8: (
        "head_dim v_head_dim mamba_d_state mamba_chunk_size state_size ssm_state_size "
        "chunk_size linear_key_head_dim linear_value_head_dim attention_window_size "
        "sliding_window attention_chunk_size "
    ),
    16: (
        "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size "
        "expert_ffn_hidden_size q_lora_rank kv_lora_rank mamba_d_head mamba_head_dim "
    ),
    32: (
        "hidden_size d_model n_embd embed_dim model_dim dim attention_hidden_size "
        "word_embed_proj_dim lru_width "
    ),
    48: ("intermediate_size ffn_dim decoder_ffn_dim d_ff encoder_ffn_dim n_inner ffn_hidden_size "),
    64: "vocab_size mamba_d_ssm",
    256: "max_position_embeddings n_positions",
}
SMALL = {name: value for value, names in _SIZES.items() for name in names.split()}
"""Fields that are made small, where a config has them."""
OWN: dict[str, dict[str, Any]] = {
    "mamba2": {"head_dim": 16, "num_heads": 4, "expand": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "use_mamba_kernels": False,
        "mamba_dt_rank": 4,
    },
    "llama4_text": {"intermediate_size_mlp": 48, "no_rope_layers": [1, 0], "moe_layers": [1]},
    "bamba": {"attn_layer_indices": [1]},
    "codegen": {"rotary_dim": 4},
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "falcon_h1": {"num_hidden_layers": 2},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "num_hidden_layers": 2},
    "xlstm": {"embedding_dim": 32, "num_blocks": 2, "num_heads": 4, "chunk_size": 8},
}
"""What a family needs beside."""
PROMPT = [5, 9, 2, 40, 33, 7, 7, 1, 60, 12, 3, 18, 25]


def small(family: str) -> Any:
    """A random model of a family, loud enough for a wrong mask to show."""
    kind = CONFIG_MAPPING[family]
    default = kind()
    text = default.get_text_config(decoder=True)
    own = {*vars(text), *getattr(text, "attribute_map", {}), *dir(type(text))}
    fixed = {name for name in own if isinstance(getattr(type(text), name, None), property)}
    fields = {name: value for name, value in SMALL.items() if name in own - fixed}
    if "kv_lora_rank" in own:  # its heads have two parts
        fields.pop("head_dim", None)
    kinds = vars(text).get("layer_types")
    if kinds:
        every = list(dict.fromkeys(kinds))
        fields |= {"layer_types": every, "num_hidden_layers": len(every)}
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    config = type(text)(**(ids | fields | OWN.get(family, {})))
    config.is_decoder = True
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.data.normal_(std=0.3)
        else:
            weight.data.add_(torch.randn_like(weight), alpha=0.1)
    model.generation_config.do_sample = False
    model.generation_config.eos_token_id = None
    return model


def verdict(family: str) -> tuple[str, str]:
    """How a family verifies, and why it does not."""
    try:
        model = small(family)
    except Exception as error:  # a config may need anything
        return (
            "not built",
            f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}",
        )
    try:
        pair = speclab.load_pair(target=model)
        way = pair.target.forward_name if pair.target.forward_name.startswith("by") else "by a mask"
        ids = torch.tensor([PROMPT])
        own = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, pad_token_id=0
        )
        text = speclab.generate(
            pair, speclab.PromptLookup(), PROMPT, max_new_tokens=12, stop_at_eos=False
        )
        tree = speclab.generate(
            pair, speclab.Goose(node_budget=8), PROMPT, max_new_tokens=12, stop_at_eos=False
        )
    except speclab.SpeclabError as error:
        return "refused", str(error).partition("draft tree: ")[2] or str(error)
    except Exception as error:
        return "fails", f"{type(error).__name__}: {str(error)[:100]}"
    same = text.token_ids == tree.token_ids == own[0, len(PROMPT) :].tolist()
    return (way, "") if same else ("wrong", way)


def main(families: list[str]) -> None:
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    found = defaultdict(list)

    def late(*_: object) -> None:
        raise TimeoutError(f"not done in {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    for family in families or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        signal.alarm(SECONDS)
        try:
            way, why = verdict(family)
        except TimeoutError as error:
            way, why = "not built", str(error)
        signal.alarm(0)
        found[way].append(family)
        print(f"{family:28} {way:28} {why}", flush=True)
    for way, names in found.items():
        print(f"| {way} | {len(names)} | {', '.join(names)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
