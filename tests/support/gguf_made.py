"""A GGUF file of a tiny random Llama, with a byte-level tokenizer, as llama.cpp's converter would write it."""

import gguf
import numpy as np
import torch
from support.tiny import tiny
from tokenizers.pre_tokenizers import ByteLevel

TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }} {{ message['content'] }}</s>{% endfor %}"
)
MERGES = ["Ġ Ġ", "t h", "th e", "Ġ the"]
TOKENS = [
    "<s>",
    "</s>",
    *sorted(ByteLevel.alphabet()),
    *(merge.replace(" ", "") for merge in MERGES),
]
_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def original():
    """The model that `write` writes: its output matrix is its embedding."""
    return tiny("llama", vocab=len(TOKENS), intermediate_size=64, tie_word_embeddings=True)


def write(
    path,
    kind=gguf.GGMLQuantizationType.F32,
    family="llama",
    splits="smollm",
    scaled=False,
    parts=None,
):
    """Writes it, its matrices stored as `kind`; the rest makes it one that cannot be read rightly."""
    model = original()
    file = gguf.GGUFWriter(path, family)
    for name, value in {
        "name": "tiny", "block_count": 2, "context_length": 256, "embedding_length": 32, "feed_forward_length": 64,
        "head_count": 4, "head_count_kv": 2, "rope_dimension_count": 8, "rope_freq_base": 10000.0,
        "layer_norm_rms_eps": model.config.rms_norm_eps, "vocab_size": len(TOKENS), "tokenizer_model": "gpt2",
        "tokenizer_pre": splits, "token_list": TOKENS, "token_types": [3, 3] + [1] * (len(TOKENS) - 2),
        "token_merges": MERGES, "bos_token_id": 0, "eos_token_id": 1, "chat_template": TEMPLATE,
    }.items():  # fmt: skip
        getattr(file, f"add_{name}")(value)
    if parts:
        file.add_uint16("split.count", parts)
    tensors = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    tensors |= {
        f"blk.{i}.{to}": f"model.layers.{i}.{of}" for i in range(2) for of, to in _NAMES.items()
    }
    weights = model.state_dict()
    for name, source in tensors.items():
        value = weights[f"{source}.weight"]
        if "attn_q" in name or "attn_k" in name:  # llama.cpp turns neighbours, transformers halves
            value = value.reshape(-1, 2, 4, 32).transpose(1, 2).reshape(value.shape)
        values = value.float().numpy()
        stored = kind if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        file.add_tensor(f"{name}.weight", gguf.quants.quantize(values, stored), raw_dtype=stored)
    if scaled:
        file.add_tensor("rope_freqs.weight", np.ones(4, np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


def same_weights(one, other):
    """Whether two models hold the same numbers under the same names."""
    first = one.state_dict()
    second = other.state_dict()
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )
