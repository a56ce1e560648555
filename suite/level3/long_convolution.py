"""A causal convolution with a filter as long as the sequence, by real Fourier transforms, then a SiLU gate.

In float32. Transforms, product, inverse and gate can be one pass over memory; the spectra are twice the data.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 4
channels = 1024
sequence = 8192


class Model(nn.Module):
    def forward(self, x: torch.Tensor, taps: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        length = x.shape[-1]
        spectrum = torch.fft.rfft(x, n=2 * length) * torch.fft.rfft(taps, n=2 * length)
        return torch.fft.irfft(spectrum, n=2 * length)[..., :length] * F.silu(gate)


def get_inputs():
    return [
        torch.randn(batch, channels, sequence),
        torch.randn(channels, sequence) / sequence**0.5,
        torch.randn(batch, channels, sequence),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "channels": 32, "sequence": 512}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 17, "sequence": 499}},
        {"name": "strided", "sizes": {"batch": 2, "channels": 16, "sequence": 256}, "layout": "strided"},
        {"name": "short", "sizes": {"batch": 4, "channels": 64, "sequence": 33}},
    ]


ABOUT = {"category": "conv", "regime": "memory"}


def cost(element_bytes=4):
    """x, filter and gate read, y written; two real transforms of the padded rows and one of the filters."""
    rows = batch * channels
    transform = 2 * sequence * sequence.bit_length()
    elements = 3 * rows * sequence + channels * sequence
    return {
        "bytes": elements * element_bytes,
        "flops": (2 * rows + channels) * transform + 6 * rows * sequence,
    }
