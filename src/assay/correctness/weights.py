"""New weights between calls, so that no candidate can rely on the ones it was built with.

Scales are kept, signs and zeros are not: a bias that starts at zero and a gain that starts at one become
ordinary numbers. Buffers only change by a positive factor, because a negative variance is no variance.
"""

from __future__ import annotations

import random

import torch

NUDGED_ELEMENTS = 4


def perturbed(
    state: dict[str, torch.Tensor], parameter_names: frozenset[str], seed: int
) -> dict[str, torch.Tensor]:
    """A new state of the same shapes; integer entries stay."""
    generators: dict[torch.device, torch.Generator] = {}
    fresh = {}
    for name, tensor in state.items():
        if not tensor.is_floating_point() or tensor.numel() == 0:
            fresh[name] = tensor
            continue
        device = tensor.device
        generator = generators.setdefault(device, torch.Generator(device=device).manual_seed(seed))
        factor = torch.randn(tensor.shape, generator=generator, device=device).mul_(0.25).exp_()
        moved = tensor.float() * factor
        if name in parameter_names:
            scale = 0.25 * float(tensor.float().square().mean().sqrt().clamp(min=0.02))
            moved = moved + scale * torch.randn(tensor.shape, generator=generator, device=device)
        fresh[name] = moved.to(tensor.dtype)
    return fresh


def nudged(
    state: dict[str, torch.Tensor], parameter_names: frozenset[str], seed: int
) -> dict[str, torch.Tensor]:
    """The same state but for a few elements of each parameter: whoever samples weights sees no change."""
    rng = random.Random(seed)
    fresh = dict(state)
    for name, tensor in state.items():
        if name not in parameter_names or not tensor.is_floating_point() or tensor.numel() == 0:
            continue
        scale = float(tensor.float().square().mean().sqrt().clamp(min=0.02))
        moved = tensor.clone()
        for _ in range(NUDGED_ELEMENTS):
            index = tuple(rng.randrange(n) for n in tensor.shape)
            moved[index] += rng.choice((-1.0, 1.0)) * scale * rng.uniform(0.5, 1.5)
        fresh[name] = moved
    return fresh
