"""Tensors that say `cuda:0`, and the two modes through which every operator on them goes.

Refused, in CUDA's words: tensors of two devices in one operator, and `numpy()`. Counted: copies and
waits.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from double import waits

SHAPES = {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"}
"""Operators whose answer has a shape that depends on numbers: the host waits for it."""
SCALARS = {"_local_scalar_dense", "is_nonzero", "equal"}
COPIES = {"copy_", "_to_copy", "to"}  # the last as it is in inference mode
INDEXED = {"index", "index_put_", "index_put", "_index_put_impl_"}
POINTWISE = {"fill", "fill_", "masked_fill", "masked_fill_", "where"}
# held, so that no other storage can come to have its address
_pinned = {}


class Double(torch.Tensor):
    """A tensor of a CUDA device, around the CPU's tensor that holds its numbers."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner, device):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            layout=inner.layout, device=device, requires_grad=inner.requires_grad,
        )  # fmt: skip
        made.inner = inner.detach()
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        return run(operator, args, kwargs or {})

    def __deepcopy__(self, memo):
        return Double(self.inner.clone(), self.device)


class Operators(TorchDispatchMode):
    """Every operator, below autograd."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return run(operator, args, kwargs or {})


def run(operator, args, kwargs):
    """One operator on whatever device its tensors lie, or on the one that it is asked to make a tensor on."""
    name = operator.name().removeprefix("aten::").split(".")[0]
    writes = operator._schema.is_mutable
    tensors = _tensors((args, kwargs))
    doubles = [tensor for tensor in tensors if isinstance(tensor, Double)]
    asked, inner_args, inner_kwargs = _without_device(operator, args, kwargs)
    if not doubles and (asked is None or asked.type != "cuda"):
        return operator(*args, **kwargs)
    if name not in COPIES:
        _check_devices(
            name, tensors, args, pointwise=name in POINTWISE or torch.Tag.pointwise in operator.tags
        )
    _wait(name, args, kwargs, asked)
    inner_args = tree_map(_inner, inner_args)
    inner_kwargs = tree_map(_inner, inner_kwargs)
    down = _to_host(name, args, asked)
    place = doubles[0].device if doubles else asked
    answer = operator(*inner_args, **inner_kwargs)
    shared = {double.inner.untyped_storage()._cdata for double in doubles}
    new = any(tensor.untyped_storage()._cdata not in shared for tensor in _tensors(answer))
    if down or (name in COPIES and not isinstance(args[name == "copy_"], Double)):
        waits.now().copies["download" if down else "upload"] += 1
    return answer if down else _wrapped(answer, asked or place, doubles, viewed=not (writes or new))


def _to_host(name, args, asked):
    """Whether what an operator answers lies in the host's memory."""
    if name == "copy_":
        return not isinstance(args[0], Double)
    return asked is not None and asked.type == "cpu"


def _wait(name, args, kwargs, asked):
    """Waits if the operator makes the host wait."""
    if name in SCALARS:
        waits.wait("number")
    elif name in SHAPES:
        waits.wait("shape")
    elif name in INDEXED:
        indices = _tensors(args[1])
        if any(index.dtype in {torch.bool, torch.uint8} for index in indices):
            waits.wait("shape")
        if any(index.ndim and not isinstance(index, Double) for index in indices):
            waits.wait("upload")
    elif name == "copy_":
        target, source = args[:2]
        host = source if isinstance(target, Double) else target
        late = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        if isinstance(target, Double) != isinstance(source, Double) and not (
            late and is_pinned(host)
        ):
            waits.wait("download" if host is target else "upload")
    elif name in COPIES and asked is not None and asked.type != args[0].device.type:
        waits.wait("download" if asked.type == "cpu" else "upload")


def _check_devices(name, tensors, args, *, pointwise):
    """Numbers of the host may meet a device's tensors where an operator works number by number, and as indices."""
    places = set()
    for tensor in tensors:
        number = pointwise and not tensor.ndim
        index = name in INDEXED and tensor is not args[0]
        if isinstance(tensor, Double) or not (number or index):
            places.add(str(tensor.device))
    if len(places) > 1:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found {places} ({name})"
        )


def _without_device(operator, args, kwargs):
    """The device that an operator is asked for, and its arguments with the CPU in that place."""
    asked = None
    args = list(args)
    kwargs = dict(kwargs)
    for place, argument in enumerate(operator._schema.arguments):
        if argument.name != "device":
            continue
        held, key = (args, place) if place < len(args) else (kwargs, "device")
        value = held[key] if held is args else held.get(key)
        if value is not None:
            asked = waits.indexed(value)
            held[key] = torch.device("cpu") if asked.type == "cuda" else value
    return asked, tuple(args), kwargs


def _wrapped(answer, place, doubles, *, viewed):
    """The answer as doubles; what was written is the very double that was given."""
    given = {id(double.inner): double for double in doubles}

    def wrapped(part):
        if not isinstance(part, torch.Tensor) or isinstance(part, Double):
            return part
        return given[id(part)] if id(part) in given else Double(part, place)

    # A view of a tensor made outside inference mode is none of inference mode's, and the other way
    # round.
    own = viewed and doubles
    with torch.inference_mode(
        doubles[0].is_inference() if own else torch.is_inference_mode_enabled()
    ):
        return tree_map(wrapped, answer)


def _inner(value):
    return value.inner if isinstance(value, Double) else value


def _tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class Functions(TorchFunctionMode):
    """What torch's bindings do by themselves, before an operator is called."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        ours = OURS.get(function)
        if ours is not None:
            return ours(function, *args, **kwargs)
        if kwargs.pop("pin_memory", False):
            return pin(function(*args, **kwargs))
        return function(*args, **kwargs)


def _moved(function, tensor, *args, **kwargs):
    """`to` and `cuda`."""
    if function is torch.Tensor.cuda:
        args = args or ("cuda",)
    args = tuple(waits.indexed(value) if type(value) is int else value for value in args)
    options = {name: value for name, value in kwargs.items() if name != "copy"}
    place, dtype, late, _ = torch._C._nn._parse_to(*args, **options)
    if place is None or place.type != "cuda":
        return function(tensor, *args, **kwargs)
    place = waits.indexed(place)
    dtype = dtype or tensor.dtype
    if tensor.device == place:
        copied = kwargs.get("copy", False) and dtype == tensor.dtype
        return tensor.clone() if copied else tensor.to(dtype=dtype)
    if isinstance(tensor, Double):
        return Double(tensor.inner.detach().to(dtype, copy=True), place)
    if not (late and is_pinned(tensor)):
        waits.wait("upload")
    waits.now().copies["upload"] += 1
    return Double(tensor.detach().to(dtype, copy=True), place)


def _made(function, *args, **kwargs):
    """`tensor` and `as_tensor`: made on the host, and uploaded."""
    place = kwargs.pop("device", None)
    pinned = kwargs.pop("pin_memory", False)
    if place is not None and waits.indexed(place).type == "cuda":
        return function(*args, **kwargs, device=torch.device("cpu")).to(waits.indexed(place))
    made = function(*args, **kwargs, device=place)
    return pin(made) if pinned else made


def _device(function, *args, **kwargs):
    """A number alone names a CUDA device."""
    return (
        function("cuda", *args)
        if len(args) == 1 and isinstance(args[0], int)
        else function(*args, **kwargs)
    )


def _attention(function, *args, **kwargs):
    """As one operator, as it is on CUDA, whose kernels answer in `[batch, row, head, dim]`."""
    if not isinstance(args[0], Double):
        return function(*args, **kwargs)
    _check_devices("scaled_dot_product_attention", _tensors((args, kwargs)), args, pointwise=False)
    with _disable_current_modes():
        answer = function(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        return Double(answer.transpose(1, 2).contiguous().transpose(1, 2), args[0].device)


def _indexed(function, tensor, index, *rest):
    """`[]`: lists and arrays are uploaded first."""
    if not isinstance(tensor, Double):
        return function(tensor, index, *rest)

    def uploaded(part):
        if isinstance(part, list) or (isinstance(part, np.ndarray) and part.ndim):
            return torch.as_tensor(part, dtype=None if len(part) else torch.int64).to(tensor.device)
        return part

    index = tuple(map(uploaded, index)) if isinstance(index, tuple) else uploaded(index)
    return function(tensor, index, *rest)


def _as_numpy(function, tensor, *args, **kwargs):
    if isinstance(tensor, Double):
        raise TypeError(f"can't convert {tensor.device} device type tensor to numpy")
    return function(tensor, *args, **kwargs)


def _as_list(function, tensor):
    if isinstance(tensor, Double):
        waits.wait("download")
    return function(_inner(tensor))


def pin(tensor):
    """Takes the host's memory under a tensor for pinned from now on."""
    storage = tensor.untyped_storage()
    _pinned[storage.data_ptr()] = storage
    return tensor


def is_pinned(tensor):
    """Whether copies from and to it need not block."""
    return tensor.untyped_storage().data_ptr() in _pinned


OURS = {
    torch.Tensor.to: _moved,
    torch.Tensor.cuda: _moved,
    torch.device: _device,
    torch.tensor: _made,
    torch.as_tensor: _made,
    F.scaled_dot_product_attention: _attention,
    torch.Tensor.__getitem__: _indexed,
    torch.Tensor.__setitem__: _indexed,
    torch.Tensor.numpy: _as_numpy,
    torch.Tensor.tolist: _as_list,
    torch.Tensor.data_ptr: lambda function, tensor: function(_inner(tensor)),
    torch.Tensor.pin_memory: lambda _, tensor, *args: pin(tensor.clone()),
    torch.Tensor.is_pinned: lambda _, tensor, *args: (
        not isinstance(tensor, Double) and is_pinned(tensor)
    ),
}
