"""CUDA code from inductor without touching a GPU: the device is described, never used.

A search captures while its judge times on the device; a second process with a context there would disturb it.
Tensors are fake, so that sizes cost nothing, and what inductor asks a real GPU for is answered from the
description. A build of torch without CUDA does for most modules, and refuses some. Not covered: autotuned
templates, which measure on the device.
"""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch


@contextlib.contextmanager
def described_device(facts: Mapping[str, int | str]) -> Iterator[None]:
    """From here on there is a GPU of this description, and every tensor is fake.

    For a process that does nothing else: what is patched stays so.
    """
    import torch._inductor.config as inductor_config
    from torch._dynamo.device_interface import CudaInterface
    from torch._subclasses.fake_tensor import FakeTensorMode
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    defaults = {"max_threads_per_block": 1024, "gcnArchName": "", "uuid": "", "is_integrated": 0}
    about = types.SimpleNamespace(**defaults, **facts)
    target = GPUTarget("cuda", int(about.major) * 10 + int(about.minor), 32)

    def properties(_device: Any = None) -> Any:
        return about

    answers: tuple[tuple[Any, str, Any], ...] = (
        (CudaInterface, "is_available", staticmethod(lambda: True)),
        (CudaInterface, "get_device_properties", staticmethod(properties)),
        (CudaInterface, "is_bf16_supported", staticmethod(lambda *_, **__: int(about.major) >= 8)),
        (CudaInterface.Worker, "get_device_properties", staticmethod(properties)),
        (torch.cuda, "get_device_properties", properties),
        # They would carry out operators on the device, the second to see whether padded products are faster.
        (inductor_config, "joint_graph_constant_folding", False),
        (inductor_config, "shape_padding", False),
    )
    for owner, name, answer in answers:
        setattr(owner, name, answer)
    stand_in: Any = types.SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0)
    driver.set_active(stand_in)
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def moved(value: Any, device: torch.device) -> Any:
    """A fake tensor, on the device; anything else as it is. The ordinary way to move one asks the driver."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)


def move_module(module: torch.nn.Module, device: torch.device) -> None:
    """Every parameter, buffer and plain tensor of it."""
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                # A torch without CUDA ends the process where gradients on such a device are spoken of.
                part._parameters[name] = torch.nn.Parameter(
                    moved(value.detach(), device), requires_grad=False
                )
        for name, value in part._buffers.items():
            part._buffers[name] = moved(value, device)
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                setattr(part, name, moved(value, device))


def without_gpus() -> dict[str, str]:
    """The environment of a process that must not touch a GPU."""
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
