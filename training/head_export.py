"""Writes a draft head in speclab's own format and in those of other projects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, cast

import torch
from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import save_file
from torch import Tensor

from speclab.errors import SpeclabError
from speclab.heads.eagle import EagleConfig, Head
from speclab.heads.files import CONFIG, WEIGHTS, read_head
from speclab.models.runner import Runner

FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


class ExportConfig(BaseModel):
    """Which head to write, in which format, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path = Field(description="Folder of the head.")
    target: Path = Field(description="Folder of its target.")
    layout: Literal["EAGLE", "speculators"] = Field(
        "EAGLE", description="Format to write; EAGLE's is EAGLE-3's too."
    )
    verifier: str = Field(
        "", description="Name of the target, for speculators; default: that in the head."
    )
    out: Path = Field(Path("checkpoints/exported"), description="Folder to write.")


def export(config: ExportConfig) -> None:
    """Write a head in another project's format; its weights do not change."""
    from transformers import AutoModelForCausalLM

    target = AutoModelForCausalLM.from_pretrained(config.target, dtype=torch.float32)
    name = json.loads((config.folder / "head.json").read_text())["target"]
    head = cast("Head", read_head(config.folder, Runner(target, name or config.target.name)))
    write_head(head, config.out, config.layout, config.verifier)


def save_head(head: Head, folder: Path) -> None:
    """Writes `head.json` and `head.safetensors`, its weights in float16."""
    _save(_halves(head), folder / WEIGHTS)
    (folder / CONFIG).write_text(head.config.model_dump_json(indent=2) + "\n")


def write_head(
    head: Head, folder: Path, layout: Literal["EAGLE", "speculators"], verifier: str = ""
) -> None:
    """Writes `config.json` and float16 `model.safetensors`.

    The layers that an EAGLE-3 head fuses are written as vLLM and speculators count them, and in
    EAGLE's format also as SGLang does, in `eagle_config`: each engine reads its own field.

    Raises:
        SpeclabError: the format has no such head.
    """
    config = head.config
    # engines read them in order
    ordered = min(config.layers) >= 0 and list(config.layers) == sorted(config.layers)
    if not ordered if config.eagle3 else config.layers != (-1,) or layout == "speculators":
        raise SpeclabError(
            f"{layout} has no format for {config.name}, which fuses layers {config.layers}: export "
            "EAGLE heads of the "
            "last layer in EAGLE's, and EAGLE-3 heads of layers counted from the front, in order."
        )
    names = {"fuse.": "fc."} if config.eagle3 else {}
    if layout == "EAGLE":
        names |= {"layers.0.": "midlayer."} if config.eagle3 else {}
        fields = _layer(config) | _eagle(config)
    else:
        fields = _speculators(config, verifier or config.target)
    tensors = {}
    for name, half in _halves(head).items():
        before = next((part for part in names if name.startswith(part)), "")
        tensors[names.get(before, "") + name[len(before) :]] = half
    if head.token_ids is not None:  # which of the target's tokens it has; engines check it
        tensors["t2d"] = torch.isin(torch.arange(config.vocab_size), head.token_ids)
    _save(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")


def _halves(head: Head) -> dict[str, Tensor]:
    """Its weights, in float16."""
    return {
        name: (tensor.half() if tensor.is_floating_point() else tensor).contiguous()
        for name, tensor in head.state_dict().items()
    }


def _save(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata)
    # safetensors writes for the owner alone; a wheel is read by all
    path.chmod(0o644)


def _layer(config: EagleConfig) -> dict[str, Any]:
    """The decoder layer as a Llama config."""
    return {
        "model_type": "qwen3" if config.qk_norm else "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.feed_forward,
        "num_hidden_layers": 1,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rope_theta,
        "rope_scaling": config.rope_scaling,
        "attention_bias": config.attention_bias,
        "tie_word_embeddings": False,
    }


def _eagle(config: EagleConfig) -> dict[str, Any]:
    if not config.eagle3:
        return {"architectures": ["LlamaForCausalLMEagle"]}
    outputs = [layer - 1 for layer in config.layers]
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": config.draft_vocab_size or config.vocab_size,
        **({"target_hidden_size": config.target_hidden_size} if config.target_hidden_size else {}),
        "eagle_aux_hidden_state_layer_ids": list(config.layers),
        **(
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": outputs}}
            if min(outputs) >= 0
            else {}
        ),
        **{flag: True for flag in FLAGS if getattr(config, flag)},
    }


def _speculators(config: EagleConfig, verifier: str) -> dict[str, Any]:
    proposal = {"proposal_type": "greedy", "speculative_tokens": 3}
    return {
        "architectures": ["Eagle3DraftModel"],
        "model_type": "speculator_model",
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [proposal],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": verifier, "architectures": []},
        },
        "transformer_layer_config": _layer(config),
        "draft_vocab_size": config.draft_vocab_size or config.vocab_size,
        "target_hidden_size": config.target_hidden_size,
        "eagle_aux_hidden_state_layer_ids": list(config.layers),
        **{flag: getattr(config, flag) for flag in FLAGS},
    }
