"""New weights between calls, so that no candidate can rely on the ones it was built with.

Scales are kept, signs and zeros are not: a bias that starts at zero and a gain that starts at one become
ordinary numbers. Buffers only change by a positive factor, because a negative variance is no variance.
"""

from __future__ import annotations

import torch


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
