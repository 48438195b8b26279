"""Draft heads in the formats of others: EAGLE's, EAGLE-3's, EAGLE-3.1's and DFlash's folders, and
`speculators`'.

Such a folder has `config.json` and the weights, as safetensors or as a pickle, which is opened as
plain tensors only, so it cannot run code. Names are translated to those of `speclab.heads.eagle`;
`docs/models.md` lists them. What is not in the table `LAYOUTS` is refused.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig

from speclab.errors import ModelNotFoundError, SpeclabError, UnsupportedModelError
from speclab.heads.block_head import BlockConfig
from speclab.heads.eagle import HeadConfig
from speclab.loading.loader import read_json
from speclab.models.runner import Runner, trained_positions

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
OUTPUT = "lm_head.weight"
EMBEDDINGS = "embed_tokens.weight"
# no language model has a parameter of these names
_MARKS = {"fc.weight", "fusion_fc.weight", "model.fc.weight"}
# `config.json` of a draft head says one of these, or its weights have one of `_MARKS`.
_HEADS = re.compile(r"eagle|dflash|dspark|speculator", re.IGNORECASE)
_RUNS = (
    "speclab runs EAGLE, EAGLE-3 and EAGLE-3.1 heads of one layer, and DFlash and DSpark blocks "
    "with full attention and a vanilla bias"
)
# Settings of a head with the values that speclab runs; a missing one has the first.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "parallel_drafting": (False,),
    "ptd_token_id": (None,),
}
_PLAIN_BLOCK: dict[str, tuple[Any, ...]] = _PLAIN | {
    "is_causal": (False,),
    "causal": (False,),
    "attention_bias": (False,),
    "input_embedding_scale": (1,),
    "output_multiplier": (1,),
    "final_logit_softcapping": (0,),
    "markov_head_type": ("vanilla",),
    "enable_confidence_head": (False,),
    "projector_type": ("dspark",),
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
_BLOCK_IDS = "target_layer_ids"
_BONUS = "dspark_bonus_anchor"  # vLLM's name for a DSpark head that drafts from its masks alone


def is_foreign_head(folder: Path) -> bool:
    """Whether a folder contains a draft head of another project, supported or not."""
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    if _HEADS.search(f"{_named(config)} {' '.join(config)}"):
        return True
    files = [file for file in _weights_of(folder) if file.is_file()]
    return not _MARKS.isdisjoint(read_tensors(files))


def read_foreign(folder: Path, target: Runner) -> tuple[HeadConfig, dict[str, Tensor]]:
    """Config and weights of a head in another project's format, with the names of
    `speclab.heads.eagle`.

    Raises:
        ModelNotFoundError: files are missing, damaged, or pickles of more than tensors.
        UnsupportedModelError: it is a kind of head that speclab does not run.
    """
    config = read_json(folder / "config.json")
    named = _named(config)
    layout = next((layout for layout in LAYOUTS if layout.names.fullmatch(named)), None)
    if layout is None:
        raise _refused(folder, named)
    given = read_tensors(_weights_of(folder))
    tensors = {
        _renamed(name): tensor for name, tensor in given.items() if not re.search(_NO_PARTS, name)
    }
    with _valid(folder):
        shape = _shape(config)
        own = {name: value for name, value in config.items() if value is not None}
        settings = {**shape, **own, **_part(config, "dflash_config")}
        for name, values in layout.plain.items():
            if settings.get(name) is not None and settings[name] not in values:
                raise _refused(folder, f"{name} {settings[name]!r}")
        if "sliding_attention" in (settings.get("layer_types") or ()):
            raise _refused(folder, "layer_types sliding_attention")
        return layout.read(folder, settings, tensors, target), tensors


def _named(config: Mapping[str, Any]) -> str:
    """What a config calls its head: speculators' type, or an architecture."""
    name = config.get("speculators_model_type") or config.get("architectures") or ""
    if not name and "dflash_config" in config:
        return "dflash"
    return str(name[0] if isinstance(name, list) and name else name)


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


def _read_block(
    folder: Path, settings: dict[str, Any], tensors: dict[str, Tensor], target: Runner
) -> BlockConfig:
    """A DFlash or DSpark head; in `target_layer_ids` layers count by output, in speculators' ids by input."""
    _drop_the_targets_matrices(settings, tensors, target)
    ids = "aux_hidden_state_layer_ids" if settings.get("speculators_model_type") else _BLOCK_IDS
    later = int(ids == _BLOCK_IDS)
    # DeepSpec's heads draft from the newest token's own entry, too; others must say so.
    anchor = "dspark" in _named(settings).lower() and later and not settings.get(_BONUS)
    return BlockConfig(
        format="DSpark" if settings.get("markov_rank") else "DFlash",
        target=settings.get("target", ""),
        layers=tuple(layer + later for layer in settings[ids]),
        layer_ids=f"{ids}, counted by {'output' if later else 'input'}",
        depth=settings["num_hidden_layers"],
        block_size=settings.get("block_size", 16),
        mask_token_id=settings["mask_token_id"],
        markov_rank=settings.get("markov_rank") or 0,
        sample_from_anchor=settings.get("sample_from_anchor", bool(anchor)),
        causal=bool(settings.get("causal_head")),
        temperature=settings.get("marginal_temperature", 1.0),
        **_decoder_layer(folder, settings, tensors),
    )


def _refused(folder: Path, kind: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"config.json in {folder.name} says {kind}, and {_RUNS}.")


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


def _drop_the_targets_matrices(
    config: Mapping[str, Any], tensors: dict[str, Tensor], target: Runner
) -> None:
    """Removes embeddings and output that equal the target's; tied embeddings are also the output (SGLang)."""
    if config.get("tie_word_embeddings") and OUTPUT not in tensors and EMBEDDINGS in tensors:
        tensors[OUTPUT] = tensors[EMBEDDINGS]
    model = target.model
    matrices = {EMBEDDINGS: model.get_input_embeddings(), OUTPUT: model.get_output_embeddings()}
    for name in matrices.keys() & tensors.keys():
        targets = matrices[name].weight.detach().cpu()
        own = tensors[name]
        if own.shape == targets.shape and torch.equal(own.to(targets.dtype), targets):
            del tensors[name]


def _read_eagle(
    folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], target: Runner
) -> HeadConfig:
    """A head of one layer: EAGLE-3 if it norms the states that it reads, else EAGLE."""
    kind = config.get("speculators_model_type")
    eagle3 = kind == "eagle3" or "layers.0.hidden_norm.weight" in tensors
    if eagle3:
        _drop_the_targets_matrices(config, tensors, target)
        for name in [name for name in tensors if name.startswith("fc.")]:
            tensors[f"fuse.{name.removeprefix('fc.')}"] = tensors.pop(name)
    else:
        tensors.pop(EMBEDDINGS, None)  # the target's
        if "embed_layernorm.weight" not in tensors:
            tensors.pop("norm.weight", None)  # EAGLE applies none
    d2t = tensors.get("d2t")
    if d2t is not None and len(d2t) == config["vocab_size"] and not d2t.any():
        del tensors["d2t"]  # it maps every token to itself
    elif d2t is not None and not d2t.is_floating_point():
        tensors["d2t"] = d2t.long()
    nested = _part(config, "eagle_config")
    attention = "layers.0.self_attn."
    depth = int(target.model.config.get_text_config(decoder=True).num_hidden_layers)
    layers, layer_ids = _layers(config, depth) if eagle3 else ((-1,), "")
    if depth in layers:
        raise _refused(folder, f"layers {layers}, the last before the final norm")
    bias = f"{attention}q_proj.bias" in tensors
    if bias:  # Qwen2's output matrix has none
        tensors.setdefault(f"{attention}o_proj.bias", torch.zeros(config["hidden_size"]))
    settings = {
        name: bool(nested.get(name, config.get(name))) for name in _EAGLE3_SETTINGS if eagle3
    }
    if nested.get("return_hidden_post_norm"):  # TensorRT-LLM's name
        settings["norm_output"] = True
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
        **_decoder_layer(folder, config, tensors),
    )


class Layout(NamedTuple):
    """A format of heads."""

    names: re.Pattern[str]  # what config.json calls them
    plain: Mapping[str, tuple[Any, ...]]  # settings with the values that speclab runs
    # from the folder, all settings, the tensors (which it may change) and the target
    read: Callable[[Path, dict[str, Any], dict[str, Tensor], Runner], HeadConfig]


LAYOUTS = (
    Layout(re.compile(r"dflash|dspark|DFlash(?!2)\w*|\w*DSpark\w*"), _PLAIN_BLOCK, _read_block),
    Layout(re.compile(r"|eagle3?|\w*Eagle3?\w*|LlamaForCausalLM"), _PLAIN, _read_eagle),
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
    """Context, rotary base and scaling, from `rope_theta` and `rope_scaling`, or `rope_parameters`."""
    given = {**shape.get("rope_scaling", {}), **shape.get("rope_parameters", {})}
    theta = given.pop("rope_theta", None) or shape.get("rope_theta", 10000.0)
    kind = given.get("rope_type", given.pop("type", "default"))
    part = given.get("partial_rotary_factor", shape.get("partial_rotary_factor", 1))
    if part != 1:
        raise _refused(folder, f"partial_rotary_factor {part}")
    if kind not in {*_STRETCHED, "default", "mrope"}:
        raise _refused(folder, f"rope_type {kind}")
    longest = shape.get("max_position_embeddings")
    context = {"rope_theta": theta, "context": trained_positions(kind, given, longest)}
    if kind not in _STRETCHED:
        return context
    if kind != "linear":
        given.setdefault(
            "original_max_position_embeddings", shape.get("max_position_embeddings", 2048)
        )
    return context | {"rope_scaling": {**given, "rope_type": kind}}


def _weights_of(folder: Path) -> list[Path]:
    """The files of a head's weights: the shards that an index lists, or one."""
    index = folder / f"{WEIGHTS[0]}.index.json"
    if index.is_file():
        with _valid(folder):
            return [folder / name for name in sorted({*read_json(index)["weight_map"].values()})]
    return [folder / next((n for n in WEIGHTS if (folder / n).is_file()), WEIGHTS[0])]


def read_tensors(files: Sequence[Path]) -> dict[str, Tensor]:
    """The tensors of files of weights.

    Raises:
        ModelNotFoundError: a file is missing, damaged, or a pickle of more than tensors.
    """
    return {name: tensor for file in files for name, tensor in _tensors_of(file).items()}


def _tensors_of(file: Path) -> dict[str, Tensor]:
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
