"""Keyed fingerprints of memory: enough to notice any change, cheap enough for gigabytes.

A linear hash over 64-bit words with random odd multipliers that never leave the judge, so a candidate cannot
choose a change that keeps it. Not a cryptographic hash: the keys are the secret.
"""

from __future__ import annotations

import secrets

import torch

_CHUNK_WORDS = 1 << 22


class Fingerprinter:
    """Fingerprints under one secret key."""

    def __init__(self, device: torch.device) -> None:
        generator = torch.Generator(device=device).manual_seed(secrets.randbits(62))
        low, high = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
        self._keys = torch.randint(low, high, (_CHUNK_WORDS,), device=device, generator=generator) | 1
        self._steps = secrets.randbits(61) | 1

    def of(self, flat_bytes: torch.Tensor) -> int:
        """The fingerprint of a flat uint8 tensor."""
        total, step = 0, 1
        whole = flat_bytes.numel() // 8 * 8
        words = flat_bytes[:whole].view(torch.int64)
        for start in range(0, words.numel(), _CHUNK_WORDS):
            chunk = words[start : start + _CHUNK_WORDS]
            part = int((chunk * self._keys[: chunk.numel()]).sum())
            total = (total + part * step) % (1 << 64)
            step = step * self._steps % (1 << 64)
        for k, byte in enumerate(flat_bytes[whole:].tolist()):
            total = (total + (byte + 1) * (self._steps + 2 * k)) % (1 << 64)
        return total
