"""Writes a draft head in speclab's own format and in those of other projects."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal, cast

import torch
from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import save_file
from torch import Tensor

from speclab.errors import SpeclabError
from speclab.heads.eagle import FLAGS, EagleConfig, Head
from speclab.heads.files import CONFIG, WEIGHTS, read_head
from speclab.heads.layout import DraftModule
from speclab.models.runner import Runner


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
    save(halves(head), folder / WEIGHTS)
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
    fits = ordered
    if not config.eagle3:
        fits = config.layers == (-1,) and layout == "EAGLE"
    if not fits:
        raise SpeclabError(
            f"{layout} has no format for {config.name}, which fuses layers {config.layers}: export "
            "EAGLE heads of the "
            "last layer in EAGLE's, and EAGLE-3 heads of layers counted from the front, in order."
        )
    if layout == "EAGLE":
        fields = _layer(config) | _eagle(config)
    else:
        fields = _speculators(config, verifier or config.target)
    tensors = {}
    for name, half in halves(head).items():
        if config.eagle3:
            name = re.sub(r"^fuse\.", "fc.", name)
            if layout == "EAGLE":
                name = re.sub(r"^layers\.0\.", "midlayer.", name)
        tensors[name] = half
    if head.token_ids is not None:  # which of the target's tokens it has; engines check it
        tensors["t2d"] = torch.isin(torch.arange(config.vocab_size), head.token_ids)
    save(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")


def halves(head: DraftModule) -> dict[str, Tensor]:
    """The weights of a head, in float16."""
    halves = {}
    for name, tensor in head.state_dict().items():
        if tensor.is_floating_point():
            tensor = tensor.half()
        halves[name] = tensor.contiguous()
    return halves


def save(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata)
    # safetensors writes for the owner alone; a wheel is read by all
    path.chmod(0o644)


def _layer(config: EagleConfig) -> dict[str, Any]:
    """The decoder layer as a Llama config, or with norms of queries and keys as Qwen3's."""
    family = "llama"
    if config.qk_norm:
        family = "qwen3"
    return {
        "model_type": family,
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
    fields: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": config.draft_vocab_size or config.vocab_size,
        "eagle_aux_hidden_state_layer_ids": list(config.layers),
    }
    if config.target_hidden_size:
        fields["target_hidden_size"] = config.target_hidden_size
    outputs = [layer - 1 for layer in config.layers]
    if min(outputs) >= 0:
        fields["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": outputs}
    for flag in FLAGS:
        if getattr(config, flag):
            fields[flag] = True
    return fields


def _speculators(config: EagleConfig, verifier: str) -> dict[str, Any]:
    proposal = {"proposal_type": "greedy", "speculative_tokens": 3}
    fields: dict[str, Any] = {
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
    }
    for flag in FLAGS:
        fields[flag] = getattr(config, flag)
    return fields
