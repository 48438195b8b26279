"""A CUDA device that is not there: tensors that say `cuda:0`, hold their numbers on the CPU, and
fail where CUDA fails.

`with device(count=2) as gpu:` puts doubles in the place of `torch.cuda`'s functions and classes, in
this thread and in every one that starts meanwhile; models and tensors made inside it may be used in
a later one. `waits.Gpu` counts. It has no kernels, no allocator and no concurrency of its own, and
it rounds as the CPU does: these need a real GPU.
"""

import contextlib
import ctypes
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest
import torch

from double import waits
from double.tensor import Double, Functions, Operators
from double.waits import Gpu

__all__ = ["Double", "Gpu", "absent", "device", "on_gpu"]

_PLACES = {"cuda": 1, "meta": 14}
"""c10::DeviceType, the index of the table below."""
_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
"""c10::impl::device_guard_impl_registry: what torch's C++ bindings call before they touch a device."""


def absent():
    """Why there can be no double here; empty where there can be one."""
    if torch.cuda.is_available():
        return "there is a real CUDA device"
    if sys.platform != "linux":
        return "torch's table of device guards lies in a library for Linux"
    return ""


def on_gpu(count=1):
    """So many real devices where there are some, else doubles."""
    if not torch.cuda.is_available():
        return device(count)
    if torch.cuda.device_count() < count:
        pytest.skip(f"{count} GPUs are needed")
    return contextlib.nullcontext()


@contextlib.contextmanager
def device(count=1):
    """So many CUDA devices, each as `Gpu` says; skips a test where there can be none."""
    if why := absent():
        pytest.skip(why)
    machine = waits.put(Gpu(count))
    own_run = threading.Thread.run

    def run(thread):
        with Operators(), Functions():
            own_run(thread)

    with contextlib.ExitStack() as stack:
        for name, value in {**waits.patches(), **_facts(machine)}.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value, create=True))
        stack.enter_context(mock.patch.object(threading.Thread, "run", run))
        stack.enter_context(_bindings())
        stack.enter_context(Operators())
        stack.enter_context(Functions())
        yield machine


def _facts(machine):
    class Properties:
        name = "Double H100"
        major = 9
        total_memory = 80 << 30

    return {
        "is_available": lambda: True, "_lazy_init": lambda: None, "device_count": lambda: machine.count,
        "get_device_name": lambda *_: Properties.name, "get_device_properties": lambda *_: Properties,
        "get_device_capability": lambda *_: (9, 0), "mem_get_info": lambda *_: (70 << 30, 80 << 30),
    }  # fmt: skip


@contextlib.contextmanager
def _bindings():
    """Makes torch's C++ bindings take a CUDA device for one that needs nothing done, as they take "meta"."""
    guards = _guards()
    lifts = torch._C._only_lift_cpu_tensors()
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    before = guards[_PLACES["cuda"]]
    guards[_PLACES["cuda"]] = guards[_PLACES["meta"]]
    torch._C._set_only_lift_cpu_tensors(True)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
        torch._C._set_only_lift_cpu_tensors(lifts)
        guards[_PLACES["cuda"]] = before


def _guards():
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    return (ctypes.c_void_p * (max(_PLACES.values()) + 1)).in_dll(library, _GUARDS)
