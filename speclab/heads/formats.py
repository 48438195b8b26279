"""Draft heads in the formats of others: EAGLE's, EAGLE-3's, EAGLE-3.1's and DFlash's folders, and
`speculators`'.

Such a folder has `config.json` and the weights, as safetensors or as a pickle, which is opened as
plain tensors only, so it cannot run code. Names are translated to those of `speclab.heads.eagle`;
`docs/models.md` lists them. Heads of other kinds are refused by name.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig

from speclab.errors import ModelNotFoundError, SpeclabError, UnsupportedModelError
from speclab.heads.block_head import BlockConfig
from speclab.heads.eagle import HeadConfig
from speclab.loading.loader import read_json
from speclab.models.runner import Runner

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
OUTPUT = "lm_head.weight"
EMBEDDINGS = "embed_tokens.weight"
# no language model has a parameter of these names
_MARKS = {"fc.weight", "fusion_fc.weight", "model.fc.weight"}
_RUNS = (
    "speclab runs EAGLE, EAGLE-3 and EAGLE-3.1 heads of one Llama layer, and DFlash heads whose "
    "attention is full and "
    "whose logits are the target's own"
)
_PEAGLE = "a P-EAGLE head, which drafts several tokens in one pass"
_MLA = "an EAGLE-3 head with multi-head latent attention (MLA)"
# Parts of a config's types, architectures and flags, and the head that they mean. Several kinds
# have a dflash_config.
_OTHERS = {
    "dspark": "a DSpark head, which fills a block of masked tokens in one pass",
    "domino": "a Domino head, which fills a block of masked tokens in one pass",
    "dflash2|selector_": "a DFlash2 head, whose layers have convolutions and which selects among candidates",
    "peagle|ptd_token_id|parallel_drafting": _PEAGLE,
    "medusa": "a set of MEDUSA heads, one for each place ahead",
    "hydra": "a set of Hydra heads, one for each place ahead",
    "mlp_?speculator": "an MLP speculator",
    "mtp|nextn": "a head of multi-token prediction (MTP), a part of its target",
    "eagle3?deepseek": _MLA,
}
_FLAGS = (
    "dflash_config",
    "ptd_token_id",
    "parallel_drafting",
    "medusa_num_heads",
    "hydra_num_heads",
)
# Settings of a DFlash head with their only supported value.
_PLAIN_BLOCK = {
    "is_causal": False,
    "causal": False,
    "attention_bias": False,
    "hidden_act": "silu",
    "input_embedding_scale": 1,
    "output_multiplier": 1,
    "final_logit_softcapping": 0,
}
# Parts of a weight's name.
_OTHER_WEIGHTS = {
    r"^mask_hidden": _PEAGLE,
    r"kv_[ab]_proj": _MLA,
    r"(^|\.)(layers\.[1-9]|midlayers\.|additional_layers\.)": "a head of several layers",
    r"^parallel_draft_heads\.": "an EAGLE-3 head with MEDUSA heads, which draft several tokens in one pass",
    r"\.experts\.": "a head with a mixture of experts",
    r"weight_(scale|packed)|qweight": "a head with quantised weights",
}
_RENAMED = (
    ("model.", ""),
    ("midlayer.", "layers.0."),
    ("transformer.", "layers.0."),
    ("fusion_fc.", "fc."),
    ("embedding_layernorm.", "embed_layernorm."),
    ("hidden_layernorm.", "layers.0.input_layernorm."),
    ("pre_lm_head_layernorm.", "norm."),
    ("lm_head_layernorm.", "norm."),
)
# ignored tensors; any other unknown tensor is refused
_NO_PARTS = r"^verifier_|rotary_emb\.|inv_freq$"
_EAGLE3_SETTINGS = ("norm_before_fc", "fc_norm", "norm_before_residual", "norm_output")
_STRETCHED = {"linear", "llama3", "yarn"}
_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


def is_foreign_head(folder: Path) -> bool:
    """Whether a folder contains a draft head of another project, supported or not."""
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    if (
        _other_kind(config)
        or _is_block(config)
        or "eagle" in str(config.get("architectures")).lower()
    ):
        return True
    file = _weights_of(folder)
    if not file.is_file():
        return False
    if file.suffix == ".bin":
        return not _MARKS.isdisjoint(read_tensors(file))
    try:
        with safe_open(file, framework="pt") as opened:
            return not _MARKS.isdisjoint(opened.keys())
    except Exception:
        raise _unreadable(file) from None


def read_foreign(folder: Path, target: Runner) -> tuple[HeadConfig, dict[str, Tensor]]:
    """Config and weights of a head in another project's format, with the names of
    `speclab.heads.eagle`.

    Raises:
        ModelNotFoundError: files are missing, damaged, or pickles of more than tensors.
        UnsupportedModelError: it is a kind of head that speclab does not run.
    """
    config = read_json(folder / "config.json")
    kind = _other_kind(config)
    if kind:
        raise _refused(folder, kind)
    given = read_tensors(_weights_of(folder))
    if _is_block(config):
        return _read_block(folder, config, given)
    for pattern, name in _OTHER_WEIGHTS.items():
        if any(re.search(pattern, weight) for weight in given):
            raise _refused(folder, name)
    tensors = {
        _renamed(name): tensor for name, tensor in given.items() if not re.search(_NO_PARTS, name)
    }
    if config.get("speculators_model_type") == "eagle3" or "layers.0.hidden_norm.weight" in tensors:
        _drop_the_targets_embeddings(config, tensors, target)
        tensors = {re.sub(r"^fc\.", "fuse.", name): tensor for name, tensor in tensors.items()}
    else:
        tensors.pop(EMBEDDINGS, None)  # the target's
        if "embed_layernorm.weight" not in tensors:
            tensors.pop("norm.weight", None)  # EAGLE applies none
    with _valid(folder):
        shape = _shape(config)
        _complete_maps(shape["vocab_size"], tensors)
        return _config(folder, config, shape, tensors, target), tensors


@contextmanager
def _valid(folder: Path) -> Iterator[None]:
    """Refuses an invalid config, which can raise any error."""
    try:
        yield
    except SpeclabError:
        raise
    except Exception as error:
        raise ModelNotFoundError(
            f"config.json in {folder.name} describes no draft head ({_first_line(error)}): "
            "download the head again."
        ) from None


def _is_block(config: Mapping[str, Any]) -> bool:
    return (
        "dflash" in f"{config.get('architectures')} {config.get('model_type')}".lower()
        or "dflash_config" in config
    )


def _read_block(
    folder: Path, config: dict[str, Any], given: Mapping[str, Tensor]
) -> tuple[HeadConfig, dict[str, Tensor]]:
    """A DFlash head, whose settings are in `dflash_config` or beside the others; its layers count by output."""
    settings = {**config, **_part(config, "dflash_config")}
    for name, plain in _PLAIN_BLOCK.items():
        if settings.get(name) not in (None, plain):
            raise _refused(folder, f"a DFlash head with {name} {settings[name]!r}")
    tensors = {
        name: tensor
        for name, tensor in given.items()
        if name != "t2d" and not re.search(_NO_PARTS, name)
    }
    with _valid(folder):
        if "sliding_attention" in (config.get("layer_types") or ()):
            raise _refused(folder, "a DFlash head with sliding-window attention")
        shape = _shape(config)
        return BlockConfig(
            format="DFlash",
            target=shape.get("target", ""),
            layers=tuple(layer + 1 for layer in settings["target_layer_ids"]),
            layer_ids="target_layer_ids, counted by output",
            depth=shape["num_hidden_layers"],
            block_size=settings.get("block_size", 16),
            mask_token_id=settings["mask_token_id"],
            **_decoder_layer(folder, shape, tensors),
        ), tensors


def _other_kind(config: Mapping[str, Any]) -> str:
    named = [config.get(name) for name in ("speculators_model_type", "model_type", "architectures")]
    words = " ".join([*map(str, named), *(flag for flag in _FLAGS if config.get(flag))]).lower()
    words += str(_part(config, "dflash_config")).lower()
    for pattern, kind in _OTHERS.items():
        if re.search(pattern, words):
            return kind
    if named[0] not in (None, "eagle", "eagle3"):
        return f"a head of speculators' type {named[0]!r}"
    if _part(config, "eagle_config").get("use_aux_hidden_state") is False:
        return "an EAGLE-3 head that fuses no layers"
    return ""


def _refused(folder: Path, kind: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{folder.name} is {kind}: {_RUNS}.")


def _first_line(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]}"
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{first['loc'][0] if first['loc'] else 'config'}: {first['msg']}"
    return str(error).partition("\n")[0][:120]


def _renamed(name: str) -> str:
    for before, after in _RENAMED:
        if name.startswith(before):
            name = after + name.removeprefix(before)
    return name


def _drop_the_targets_embeddings(
    config: Mapping[str, Any], tensors: dict[str, Tensor], target: Runner
) -> None:
    """Removes embeddings that equal the target's; tied ones are also the output matrix (SGLang)."""
    embeddings = tensors.get(EMBEDDINGS)
    if embeddings is None:
        return
    if config.get("tie_word_embeddings") and OUTPUT not in tensors:
        tensors[OUTPUT] = embeddings
    targets = target.model.get_input_embeddings().weight.detach().cpu()
    if embeddings.shape == targets.shape and torch.equal(embeddings.to(targets.dtype), targets):
        del tensors[EMBEDDINGS]


def _complete_maps(size: int, tensors: dict[str, Tensor]) -> None:
    """Converts the maps of a draft vocabulary to int64 and bool; removes one that maps every token to itself."""
    d2t = tensors.get("d2t")
    t2d = tensors.get("t2d")
    if d2t is None or d2t.ndim != 1:
        return
    if len(d2t) == size and not d2t.any():
        del tensors["d2t"]
        tensors.pop("t2d", None)
        return
    if not d2t.is_floating_point():
        tensors["d2t"] = d2t = d2t.long()
    if t2d is None:
        ids = d2t.long() + torch.arange(len(d2t))
        tensors["t2d"] = torch.isin(torch.arange(size), ids)
    elif not t2d.is_floating_point():
        tensors["t2d"] = t2d.bool()


def _config(
    folder: Path,
    config: dict[str, Any],
    shape: dict[str, Any],
    tensors: dict[str, Tensor],
    target: Runner,
) -> HeadConfig:
    nested = _part(config, "eagle_config")
    attention = "layers.0.self_attn."
    eagle3 = "fuse.weight" in tensors
    depth = int(target.model.config.get_text_config(decoder=True).num_hidden_layers)
    layers, layer_ids = _layers(config, depth) if eagle3 else ((-1,), "")
    act = shape.get("hidden_act", "silu")
    if depth in layers:
        raise _refused(
            folder,
            f"a head that reads the target's last layer (layers {layers}) before the final norm",
        )
    if act not in ("silu", "swish"):
        raise _refused(folder, f"a head with the activation {act}")
    if "sliding_attention" in shape.get("layer_types", ()):
        raise _refused(folder, "a head with sliding-window attention")
    bias = f"{attention}q_proj.bias" in tensors
    if bias:  # Qwen2's output matrix has none
        tensors.setdefault(f"{attention}o_proj.bias", torch.zeros(shape["hidden_size"]))
    settings = {
        name: bool(nested.get(name, config.get(name))) for name in _EAGLE3_SETTINGS if eagle3
    }
    if nested.get("return_hidden_post_norm"):  # TensorRT-LLM's name
        settings["norm_output"] = True
    kind = config.get("speculators_model_type")
    return HeadConfig(
        format=f"speculators {kind}" if kind else "EAGLE",
        verifier=str(
            _part(_part(config, "speculators_config"), "verifier").get("name_or_path") or ""
        ),
        target_hidden_size=config.get("target_hidden_size"),
        layers=layers,
        layer_ids=layer_ids,
        bias="fc.bias" in tensors,
        attention_bias=bias,
        qk_norm=f"{attention}q_norm.weight" in tensors,
        eagle3=eagle3,
        layernorms=not eagle3 and "embed_layernorm.weight" in tensors,
        **settings,
        **_decoder_layer(folder, shape, tensors),
    )


def _decoder_layer(
    folder: Path, shape: dict[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The settings that heads of every format have."""
    return {
        "name": folder.name,
        "vocab_size": shape["vocab_size"],
        "draft_vocab_size": tensors["d2t"].numel() if "d2t" in tensors else None,
        "hidden_size": shape["hidden_size"],
        "heads": shape["num_attention_heads"],
        "key_value_heads": shape.get("num_key_value_heads", shape["num_attention_heads"]),
        "head_width": shape.get("head_dim"),
        "feed_forward": shape["intermediate_size"],
        "norm_epsilon": shape.get("rms_norm_eps", 1e-6),
        **_positions(folder, shape),
    }


def _shape(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of the decoder layer; `speculators` writes only those that differ from its family's defaults."""
    given = config.get("transformer_layer_config")
    if given is not None:
        config = AutoConfig.for_model(**{"model_type": "llama", **given}).to_dict()
    return {name: value for name, value in config.items() if value is not None}


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _layers(config: Mapping[str, Any], depth: int) -> tuple[tuple[int, ...], str]:
    """The fused layers as indices of the target's `hidden_states`, and the field that lists them.

    vLLM and speculators count the inputs of layers, which are indices of `hidden_states`. In
    `eagle_config` a first id of 1 means that outputs are counted, each one later
    (sgl-project/sglang #25454): no head reads the input of layer 1. Engines join the states in the
    order of the layers, whatever the order of the ids.
    """
    if ids := config.get(_LAYER_IDS):
        return tuple(sorted(ids)), f"{_LAYER_IDS}, counted by input"
    if ids := _part(config, "eagle_config").get(_LAYER_IDS):
        later = int(min(ids) == 1)
        named = f"eagle_config.{_LAYER_IDS}, counted by {'output' if later else 'input'}"
        return tuple(sorted(layer + later for layer in ids)), named
    return tuple(
        sorted((2, depth // 2, max(depth - 3, 0)))
    ), "none: 2, L/2 and L - 3 of L, counted by input"


def _positions(folder: Path, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary base and scaling, from `rope_theta` and `rope_scaling` or transformers 5's `rope_parameters`."""
    given = {**shape.get("rope_scaling", {}), **shape.get("rope_parameters", {})}
    theta = given.pop("rope_theta", None) or shape.get("rope_theta", 10000.0)
    kind = given.get("rope_type", given.pop("type", "default"))
    part = given.get("partial_rotary_factor", shape.get("partial_rotary_factor", 1))
    if part != 1:
        raise _refused(folder, f"a head with {part} of each attention head turned")
    if kind not in {*_STRETCHED, "default", "mrope"}:
        raise _refused(folder, f"a head with rotary positions of kind {kind}")
    if kind not in _STRETCHED:
        return {"rope_theta": theta}
    if kind != "linear":
        given.setdefault(
            "original_max_position_embeddings", shape.get("max_position_embeddings", 2048)
        )
    return {"rope_theta": theta, "rope_scaling": {**given, "rope_type": kind}}


def _weights_of(folder: Path) -> Path:
    return next(
        (folder / name for name in WEIGHTS if (folder / name).is_file()), folder / WEIGHTS[0]
    )


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a file of weights.

    Raises:
        ModelNotFoundError: the file is missing, damaged, or a pickle of more than tensors.
    """
    try:
        pickled = file.suffix == ".bin"
        tensors = (
            torch.load(file, map_location="cpu", weights_only=True) if pickled else load_file(file)
        )
    except pickle.UnpicklingError:
        raise ModelNotFoundError(
            f"{file.name} contains more than tensors and could run code, so it was not opened: use "
            "safetensors weights."
        ) from None
    except Exception:  # torch and safetensors have many errors for a damaged file
        raise _unreadable(file) from None
    if not isinstance(tensors, dict) or not all(
        isinstance(tensor, Tensor) for tensor in tensors.values()
    ):
        raise _unreadable(file)
    return tensors


def _unreadable(file: Path) -> ModelNotFoundError:
    return ModelNotFoundError(
        f"{file.name} in {file.parent.name} is missing or damaged: fetch the head again."
    )
