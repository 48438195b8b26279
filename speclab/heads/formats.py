"""Draft heads in the formats of others: EAGLE's, EAGLE-3's, EAGLE-3.1's, DFlash's, DSpark's and
Medusa's folders, and `speculators`'.

Such a folder has `config.json` and the weights, as safetensors or as a pickle, which is opened as
plain tensors only, so it cannot run code. Names are translated to those of `speclab.heads.eagle`;
`docs/models.md` lists them. A layout is a pydantic model of the keys that it reads or may ignore; a
key of another kind is refused by name, since the head would draft something else.
"""

from __future__ import annotations

import json
import pickle
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import load_file
from torch import Tensor
from transformers import CONFIG_MAPPING

from speclab.errors import ModelNotFoundError, SpeclabError, UnsupportedModelError
from speclab.heads.block_head import BlockConfig
from speclab.heads.eagle import HeadConfig
from speclab.heads.medusa import MedusaConfig
from speclab.models.runner import Runner, trained_positions

CONFIG = "config.json"
OUTPUT = "lm_head.weight"
EMBEDDINGS = "embed_tokens.weight"
# no language model has a parameter of these names
_MARKS = {"fc.weight", "model.fc.weight"}
# `config.json` of a draft head says one of these, or its weights have one of `_MARKS`.
_HEADS = re.compile(r"eagle|dflash|dspark|speculator|medusa", re.IGNORECASE)
_RUNS = "EAGLE, EAGLE-3, DFlash, DSpark and Medusa heads"
_RENAMED = (
    (r"^model\.", ""),
    (r"^midlayer\.", "layers.0."),
    # Medusa: head.block.linear, the output matrix in the place of a block; vLLM's blocks
    (r"^(\d+)\.(\d+)\.linear\.", r"blocks.\1.\2."),
    (r"^(\d+)\.\d+\.", r"lm_heads.\1."),
    (r"^(blocks\.\d+)\.layers\.", r"\1."),
)
# tensors without a part in the head; any other unknown tensor is refused
_NO_PARTS = r"^verifier_|^confidence_head\.|rotary_emb\.|inv_freq$"
# keys of `config.json` that change nothing
_NOTES = re.compile(
    r"auto_map|torch_dtype|speculators_|target_model_type|truncated_vocab_size|num_target_|num_anchors"
)
_PARTS = {"rope_scaling", "rope_theta", "transformer_layer_config", "dflash_config"}
_STRETCHED = {"linear", "llama3", "yarn"}
Tensors = dict[str, Tensor]


class Folder(BaseModel):
    """The keys of a head's `config.json` that only heads have, with the values that run."""

    model_config = ConfigDict(extra="forbid")

    num_hidden_layers: int = 1
    hidden_act: Literal["silu", "swish"] = "silu"
    layer_types: list[Literal["full_attention"]] = []
    target: str = ""
    draft_vocab_size: int | None = None
    target_hidden_size: int | None = None

    @abstractmethod
    def head(self, layer: dict[str, Any], tensors: Tensors, target: Runner) -> HeadConfig:
        """The head; it may change the tensors. `layer`: the fields that all heads have."""


def _layer(folder: Path, settings: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    """The decoder layer as transformers reads it, which knows its family's defaults."""
    library: Any = _library(settings)(**settings)
    rope = dict(library.rope_parameters)
    kind = rope["rope_type"]
    theta = rope.pop("rope_theta")
    longest = library.max_position_embeddings
    if kind not in {*_STRETCHED, "default", "mrope"} or rope.get("partial_rotary_factor", 1) != 1:
        raise ValueError(f"rope_parameters: {kind} of these columns does not run")
    context = trained_positions(kind, rope, longest)
    if kind != "linear":
        rope.setdefault("original_max_position_embeddings", longest)
    return {
        "name": folder.name,
        "vocab_size": library.vocab_size,
        "draft_vocab_size": tensors["d2t"].numel() if "d2t" in tensors else None,
        "hidden_size": library.hidden_size,
        "heads": library.num_attention_heads,
        "key_value_heads": library.num_key_value_heads or library.num_attention_heads,
        "head_width": getattr(library, "head_dim", None),
        "feed_forward": library.intermediate_size,
        "norm_epsilon": library.rms_norm_eps,
        "context": context,
        "rope_theta": theta,
        "rope_scaling": rope if kind in _STRETCHED else None,
    }


def _library(settings: Mapping[str, Any]) -> type[Any]:
    family = str(settings.get("model_type"))
    return CONFIG_MAPPING[family if family in CONFIG_MAPPING else "llama"]


class _Block(Folder):
    """DFlash (arXiv 2602.06036) and DSpark (arXiv 2607.05147).

    In `target_layer_ids` layers count by output, in speculators' ids by input.
    """

    block_size: int = 16
    mask_token_id: int
    target_layer_ids: list[int] = []
    aux_hidden_state_layer_ids: list[int] = []
    markov_rank: int = 0
    markov_head_type: Literal["vanilla"] = "vanilla"
    projector_type: Literal["dspark"] = "dspark"
    enable_confidence_head: bool = False  # it changes no draft, and is not read
    confidence_head_with_markov: bool = True
    dspark_bonus_anchor: bool = False  # vLLM's name for a head that drafts from its masks alone
    sample_from_anchor: bool | None = None
    marginal_temperature: float = 1.0
    input_embedding_scale: Literal[1] = 1
    output_multiplier: Literal[1] = 1

    def head(self, layer: dict[str, Any], tensors: Tensors, target: Runner) -> BlockConfig:
        outputs = [number + 1 for number in self.target_layer_ids]
        # DeepSpec's heads draft from the newest token's own entry, too; others must say so.
        anchor = self.sample_from_anchor
        if anchor is None:
            anchor = bool(self.markov_rank and outputs and not self.dspark_bonus_anchor)
        return BlockConfig(
            target=self.target,
            layers=tuple(outputs or self.aux_hidden_state_layer_ids),
            depth=self.num_hidden_layers,
            block_size=self.block_size,
            mask_token_id=self.mask_token_id,
            markov_rank=self.markov_rank,
            sample_from_anchor=anchor,
            temperature=self.marginal_temperature,
            **layer,
        )


_FLAGS = ("norm_before_fc", "norm_before_residual", "fc_norm", "norm_output")


class _Eagle(Folder):
    """A head of one layer: EAGLE-3 if it norms the states that it reads, else EAGLE.

    vLLM and speculators count the inputs of layers, which are indices of `hidden_states`. In
    `eagle_config` a first id of 1 means that outputs are counted, each one later
    (sgl-project/sglang #25454): no head reads the input of layer 1. Engines join the states in the
    order of the layers, whatever the order of the ids.
    """

    eagle_aux_hidden_state_layer_ids: list[int] = []
    eagle_config: dict[str, Any] = {}
    norm_before_fc: bool = False
    norm_before_residual: bool = False
    fc_norm: bool = False
    norm_output: bool = False

    def head(self, layer: dict[str, Any], tensors: Tensors, target: Runner) -> HeadConfig:
        attention = "layers.0.self_attn."
        bias = f"{attention}q_proj.bias" in tensors
        if bias:  # Qwen2's output matrix has none
            tensors.setdefault(f"{attention}o_proj.bias", torch.zeros(layer["hidden_size"]))
        shared = {
            "attention_bias": bias,
            "qk_norm": f"{attention}q_norm.weight" in tensors,
            "target_hidden_size": self.target_hidden_size,
        }
        if "layers.0.hidden_norm.weight" in tensors:
            for name in [name for name in tensors if name.startswith("fc.")]:
                tensors[f"fuse.{name.removeprefix('fc.')}"] = tensors.pop(name)
            shared |= self._of_eagle3(target.model.config.get_text_config(decoder=True))
        else:
            tensors.pop(EMBEDDINGS, None)  # the target's
            tensors.pop("norm.weight", None)  # EAGLE applies none
            shared["bias"] = "fc.bias" in tensors
        return HeadConfig(**shared, **layer)

    def _of_eagle3(self, target: Any) -> dict[str, Any]:
        nested = self.eagle_config
        depth = target.num_hidden_layers
        layers = self.eagle_aux_hidden_state_layer_ids
        if not layers:
            outputs = nested.get("eagle_aux_hidden_state_layer_ids") or []
            first = 1 if min(outputs, default=0) == 1 else 0
            layers = [number + first for number in outputs]
        layers = sorted(layers or (2, depth // 2, max(depth - 3, 0)))
        if depth in layers:
            raise ValueError(f"layers {layers}: the last is read before the target's final norm")
        flags = {name: nested.get(name, getattr(self, name)) for name in _FLAGS}
        # TensorRT-LLM's name
        flags["norm_output"] |= bool(nested.get("return_hidden_post_norm"))
        return {"eagle3": True, "layers": layers, **flags}


class _Medusa(Folder):
    """Medusa (arXiv 2401.10774): FasterDecoding's folder, without sizes, or vLLM's."""

    medusa_num_heads: int = 0
    medusa_num_layers: int = 1
    num_heads: int = 0
    base_model_name_or_path: str = ""

    def head(self, layer: dict[str, Any], tensors: Tensors, target: Runner) -> HeadConfig:
        text = target.model.config.get_text_config(decoder=True)
        return MedusaConfig(
            name=layer["name"],
            vocab_size=target.known,
            hidden_size=text.hidden_size,
            count=self.medusa_num_heads or self.num_heads,
            depth=self.medusa_num_layers,
        )


# What `config.json` calls a head, and its layout.
LAYOUTS: tuple[tuple[re.Pattern[str], type[Folder]], ...] = (
    (re.compile(r"dflash(_config)?|dspark|DFlash(?!2)\w*|\w*DSpark\w*"), _Block),
    (re.compile(r"medusa(_num_heads)?|\w*Medusa\w*"), _Medusa),
    (re.compile(r"|eagle3|\w*Eagle3?\w*|LlamaForCausalLM"), _Eagle),
)


def is_foreign_head(folder: Path) -> bool:
    """Whether a folder contains a draft head of another project, supported or not."""
    config = _json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if _HEADS.search(f"{_named(config)} {' '.join(config)}"):
        return True
    files = [file for file in _weights_of(folder) if file.is_file()]
    return not _MARKS.isdisjoint(read_tensors(files))


def read_foreign(folder: Path, target: Runner) -> tuple[HeadConfig, Tensors]:
    """Config and weights of a head in another project's format, with the names of
    `speclab.heads.eagle`.

    Raises:
        ModelNotFoundError: files are missing, damaged, or pickles of more than tensors.
        UnsupportedModelError: it is a kind of head that speclab does not run.
    """
    config = _json(folder / CONFIG)
    named = _named(config)
    kind = next((kind for names, kind in LAYOUTS if names.fullmatch(named)), None)
    if kind is None:
        raise UnsupportedModelError(
            f"{CONFIG} in {folder.name} says {named}, and speclab runs {_RUNS}: load another head."
        )
    given = read_tensors(_weights_of(folder))
    tensors = {
        _renamed(name): tensor for name, tensor in given.items() if not re.search(_NO_PARTS, name)
    }
    return _head(folder, config, kind, tensors, target), tensors


@contextmanager
def valid(file: Path) -> Iterator[None]:
    """Turns what pydantic and transformers raise for a key or a value of a config into one sentence.

    Raises:
        UnsupportedModelError: instead.
    """
    try:
        yield
        return
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
    except SpeclabError:
        raise
    except Exception as error:  # transformers has many errors for a damaged config
        reason = str(error).partition("\n")[0][:120]
    raise UnsupportedModelError(
        f"{file.name} in {file.parent.name} describes no head that speclab runs ({reason}): load "
        "another head."
    ) from None


def _json(file: Path) -> dict[str, Any]:
    with valid(file):
        return dict(json.loads(file.read_bytes()))


def _head(
    folder: Path, config: dict[str, Any], kind: type[Folder], tensors: Tensors, target: Runner
) -> HeadConfig:
    settings: dict[str, Any] = {}
    for part in (config.get("transformer_layer_config"), config, config.get("dflash_config")):
        known = (part or {}).items()
        settings.update((name, value) for name, value in known if value is not None)
    if settings.get("tie_word_embeddings") and OUTPUT not in tensors and EMBEDDINGS in tensors:
        tensors[OUTPUT] = tensors[EMBEDDINGS]  # as in SGLang
    layer = _layer(folder, settings, tensors)
    ignored = _library(settings)().to_dict().keys() | _PARTS
    own = {}
    for name, value in settings.items():
        # a key that is off changes nothing, whatever it means
        matters = value and name not in ignored and not _NOTES.match(name)
        if matters or name in kind.model_fields:
            own[name] = value
    return kind(**own).head(layer, tensors, target)


def _named(config: Mapping[str, Any]) -> str:
    """What a config calls its head: speculators' type, an architecture, or a key that only heads have."""
    names = [config.get("speculators_model_type")]
    names += config.get("architectures") or ()
    names += [key for key in ("dflash_config", "medusa_num_heads") if key in config]
    return str(next(filter(None, names), ""))


def _renamed(name: str) -> str:
    for pattern, after in _RENAMED:
        name = re.sub(pattern, after, name)
    return name


def _weights_of(folder: Path) -> list[Path]:
    """The files of a head's weights: safetensors, perhaps in shards, or a pickle."""
    for end in (".safetensors", ".bin", ".pt"):
        files = set(folder.glob(f"*{end}"))
        for index in folder.glob(f"*{end}.index.json"):  # names shards that may be missing
            files |= {folder / name for name in _json(index)["weight_map"].values()}
        if files:
            return sorted(files)
    return [folder / "model.safetensors"]


def read_tensors(files: Sequence[Path]) -> Tensors:
    """The tensors of files of weights.

    Raises:
        ModelNotFoundError: a file is missing, damaged, or a pickle of more than tensors.
    """
    tensors: Tensors = {}
    for file in files:
        tensors.update(_tensors_of(file))
    return tensors


def _tensors_of(file: Path) -> Tensors:
    reason = "is missing or damaged: fetch the head again"
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        tensors = torch.load(file, map_location="cpu", weights_only=True)
        if all(isinstance(tensor, Tensor) for tensor in tensors.values()):
            return dict(tensors)
    except pickle.UnpicklingError:
        reason = "contains more than tensors and could run code: use safetensors weights"
    except Exception:  # torch and safetensors have many errors for a damaged file
        pass
    raise ModelNotFoundError(f"{file.name} in {file.parent.name} {reason}.")
