"""Heads of EAGLE-3, EAGLE-3.1 and speculators from their folders, as plainly as they can be
written.

Written from what the formats' own code says (EAGLE cb7e084, speculators c05b95b, vLLM's
`llama_eagle3.py`), on the tensors by the names in the file: one pass over a whole text, each row
spelled out, no cache and no mask.
"""

from __future__ import annotations

import json
import math

import torch
from support.head_folders import weights


def rms(x, weight, epsilon):
    return weight * x / (x.pow(2).mean(-1, keepdim=True) + epsilon).sqrt()


def frequencies(shape, width):
    """Turns a place of each pair of columns, and what cosines and sines are multiplied by.

    Llama 3's stretching slows the long waves and blends those between; YaRN blends by the pair's
    number.
    """
    scaling = shape.get("rope_scaling") or {}
    kind = scaling.get("rope_type")
    factor = scaling.get("factor", 1.0)
    base = scaling.get("rope_theta") or shape.get("rope_theta", 10000.0)
    found = []
    for pair in range(width // 2):
        turn = base ** (-2 * pair / width)
        slower = 0.0
        if kind == "linear":
            slower = 1.0
        if kind == "llama3":
            wave = 2 * math.pi / turn
            context = scaling["original_max_position_embeddings"]
            low = scaling["low_freq_factor"]
            high = scaling["high_freq_factor"]
            slower = 1 - min(max((context / wave - low) / (high - low), 0.0), 1.0)
        if kind == "yarn":
            first, last = (
                width
                * math.log(scaling["original_max_position_embeddings"] / (turns * 2 * math.pi))
                / 2
                / math.log(base)
                for turns in (scaling["beta_fast"], scaling["beta_slow"])
            )
            first = max(first, 0.0)
            last = min(last, width - 1.0)
            slower = min(max((pair - first) / (last - first), 0.0), 1.0)
        found.append(slower * turn / factor + (1 - slower) * turn)
    return found, 0.1 * math.log(factor) + 1 if kind == "yarn" else 1.0


def turned(row, place, turns, scale):
    """`[width]`, whose column i is turned with column i + width / 2."""
    half = len(turns)
    angles = torch.tensor([place * turn for turn in turns], dtype=torch.float64)
    cos = (angles.cos() * scale).to(row.dtype)
    sin = (angles.sin() * scale).to(row.dtype)
    first = row[:half]
    second = row[half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin])


class PlainHead:
    """A head's folder; `rows` says what it makes of a text and of drafted tokens behind it."""

    def __init__(self, folder, target):
        self.weights = weights(folder)
        self.config = json.loads((folder / "config.json").read_text())
        self.shape = self.config.get("transformer_layer_config", self.config)
        self.target = target
        self.epsilon = self.shape["rms_norm_eps"]
        prefixes = ("midlayer.", "layers.0.")
        self.layer = next(p for p in prefixes if any(name.startswith(p) for name in self.weights))
        self.new = self.layer + "hidden_norm.weight" in self.weights  # EAGLE-3

    def tensor(self, name):
        return self.weights[name]

    def block(self, name):
        return self.weights[self.layer + name]

    def layers(self):
        """Places in transformers' `hidden_states`."""
        depth = self.target.config.num_hidden_layers
        if not self.new:
            return [depth]
        if named := self.config.get("eagle_aux_hidden_state_layer_ids"):
            return sorted(named)
        if nested := (self.config.get("eagle_config") or {}).get(
            "eagle_aux_hidden_state_layer_ids"
        ):
            return sorted(layer + (min(nested) == 1) for layer in nested)
        return [2, depth // 2, depth - 3]

    @torch.no_grad()
    def fused(self, text):
        every = self.target(torch.tensor([text]), output_hidden_states=True).hidden_states
        states = [every[layer][0] for layer in self.layers()]
        if not self.new:
            return states[0]
        if self.config.get("fc_norm"):
            states = [
                rms(s, self.tensor(f"fc_norm.{i}.weight"), self.epsilon)
                for i, s in enumerate(states)
            ]
        joined = torch.cat(states, dim=-1)
        if "input_norm.weight" in self.weights:
            joined = rms(joined, self.tensor("input_norm.weight"), self.epsilon)
        return joined @ self.tensor("fc.weight").T

    def embedding(self, token):
        own = self.weights.get("embed_tokens.weight") if self.new else None
        return (self.target.get_input_embeddings().weight if own is None else own)[token]

    @torch.no_grad()
    def rows(self, text, path=()):
        """Features `[n, hidden]` that are fed back and logits `[n, proposed]`, of the entries of `text` and `path`."""
        features = list(self.fused(text)[: len(text) - 1])
        tokens = [*text[1:], *path]
        cached: list[tuple[torch.Tensor, torch.Tensor]] = []
        out = []
        logits = []
        for place, token in enumerate(tokens):
            feature = features[place] if place < len(features) else out[-1]
            made = self.row(self.embedding(token), feature, place, cached)
            last = self.weights.get("norm.weight")
            normed = made if last is None else rms(made, last, self.epsilon)
            out.append(normed if self.config.get("norm_output") else made)
            matrix = self.weights.get("lm_head.weight", self.target.get_output_embeddings().weight)
            logits.append(matrix @ normed)
        return torch.stack(out), torch.stack(logits)

    def row(self, embedding, feature, place, cached):
        if self.new:
            hidden = rms(feature, self.block("hidden_norm.weight"), self.epsilon)
            residual = hidden if self.config.get("norm_before_residual") else feature
            read = torch.cat(
                [rms(embedding, self.block("input_layernorm.weight"), self.epsilon), hidden]
            )
        else:
            joined = self.tensor("fc.weight") @ torch.cat([embedding, feature])
            residual = read = joined + self.tensor("fc.bias")
        x = residual + self.attention(read, place, cached)
        read = rms(x, self.block("post_attention_layernorm.weight"), self.epsilon)
        gate = self.block("mlp.gate_proj.weight") @ read
        return x + self.block("mlp.down_proj.weight") @ (
            gate * torch.sigmoid(gate) * (self.block("mlp.up_proj.weight") @ read)
        )

    def attention(self, read, place, cached):
        heads = self.shape["num_attention_heads"]
        shared = self.shape["num_key_value_heads"]
        width = self.shape.get("head_dim") or self.shape["hidden_size"] // heads
        turns, scale = frequencies(self.shape, width)

        def projected(name, number):
            flat = self.block(f"self_attn.{name}_proj.weight") @ read
            if self.layer + f"self_attn.{name}_proj.bias" in self.weights:
                flat = flat + self.block(f"self_attn.{name}_proj.bias")
            each = list(flat.view(number, width))
            if name != "v" and self.layer + "self_attn.q_norm.weight" in self.weights:
                each = [
                    rms(one, self.block(f"self_attn.{name}_norm.weight"), self.epsilon)
                    for one in each
                ]
            return each

        queries = [turned(one, place, turns, scale) for one in projected("q", heads)]
        keys = torch.stack([turned(one, place, turns, scale) for one in projected("k", shared)])
        cached.append((keys, torch.stack(projected("v", shared))))
        mixed = []
        for number, query in enumerate(queries):
            group = number // (heads // shared)
            scores = torch.stack([key[group] @ query for key, _ in cached]) / math.sqrt(width)
            mixed.append(
                sum(
                    share * value[group]
                    for share, (_, value) in zip(scores.softmax(0), cached, strict=True)
                )
            )
        out = self.block("self_attn.o_proj.weight") @ torch.cat(mixed)
        bias = self.weights.get(self.layer + "self_attn.o_proj.bias")
        return out if bias is None else out + bias
