"""A DFlash head from its folder, as plainly as it can be written: the whole context in each pass, no cache, no mask.

Written from the arithmetic of the paper (arXiv 2602.06036) and of z-lab/dflash, by the names in the file.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from reference.eagle3 import frequencies, rms, turned
from safetensors.torch import load_file


class PlainBlock:
    """`target`: a transformers module, whose hidden states, embeddings and output matrix are read."""

    def __init__(self, folder: Path, target: torch.nn.Module) -> None:
        self.shape = json.loads((folder / "config.json").read_text())
        self.own = {**self.shape, **self.shape.get("dflash_config", {})}
        self.weights = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
        self.target = target

    @torch.no_grad()
    def logits(self, text: list[int]) -> torch.Tensor:
        """`[block - 1, vocabulary]`: row i of the token i + 1 places after the text; -inf where it cannot be."""
        target, weights, epsilon = self.target, self.weights, self.shape["rms_norm_eps"]
        embeddings = target.get_input_embeddings().weight.detach()
        ids = [text[-1]] + [self.own["mask_token_id"]] * (self.own["block_size"] - 1)
        x, states = embeddings[ids], target(torch.tensor([text]), output_hidden_states=True).hidden_states
        joined = torch.cat([states[layer + 1][0, :-1] for layer in self.own["target_layer_ids"]], dim=-1)
        features = rms(joined @ weights["fc.weight"].T, weights["hidden_norm.weight"], epsilon)
        for layer in range(self.shape["num_hidden_layers"]):
            part = f"layers.{layer}."
            read = rms(x, weights[f"{part}input_layernorm.weight"], epsilon)
            x = x + self._attention(f"{part}self_attn.", features, read) @ weights[f"{part}self_attn.o_proj.weight"].T
            read = rms(x, weights[f"{part}post_attention_layernorm.weight"], epsilon)
            gate, up = (read @ weights[f"{part}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            x = x + (torch.nn.functional.silu(gate) * up) @ weights[f"{part}mlp.down_proj.weight"].T
        output = target.get_output_embeddings()
        logits = output(rms(x, weights["norm.weight"], epsilon))[1:]
        if "d2t" in weights:
            known = (weights["d2t"] + torch.arange(len(weights["d2t"]))).long()
            logits[:, [token for token in range(logits.shape[1]) if token not in known]] = -torch.inf
        return logits

    def _attention(self, part: str, features: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        """`[n, heads * width]`: every entry of the block attends to all features and to the whole block."""
        weights, shape = self.weights, self.shape
        width, shared = shape["head_dim"], shape["num_key_value_heads"]
        group, first = shape["num_attention_heads"] // shared, len(features)
        turns, scale = frequencies(shape, width)
        both = torch.cat([features, block])
        rows = []
        for head in range(shape["num_attention_heads"]):
            own, its = (slice(width * one, width * (one + 1)) for one in (head, head // group))
            query, key, value = (
                source @ weights[f"{part}{name}_proj.weight"][columns].T
                for source, name, columns in ((block, "q", own), (both, "k", its), (both, "v", its))
            )
            query, key = (
                rms(each, weights[f"{part}{name}_norm.weight"], shape["rms_norm_eps"])
                for each, name in ((query, "q"), (key, "k"))
            )
            query = torch.stack([turned(row, first + place, turns, scale) for place, row in enumerate(query)])
            key = torch.stack([turned(row, place, turns, scale) for place, row in enumerate(key)])
            rows.append((query @ key.T / width**0.5).softmax(-1) @ value)
        return torch.cat(rows, dim=-1)
