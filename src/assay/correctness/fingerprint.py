"""Keyed fingerprints of memory: enough to notice any change, cheap enough for gigabytes.

A linear hash over 64-bit words with random odd multipliers that never leave the judge, so a candidate cannot
choose a change that keeps it. Not a cryptographic hash: the keys are the secret.
"""

from __future__ import annotations

import secrets

import torch

_ROW_WORDS = 1 << 20
_ROWS = 16
_FEW_WORDS = 1 << 12


class Fingerprinter:
    """Fingerprints under one secret key."""

    def __init__(self, device: torch.device) -> None:
        self._generator = torch.Generator(device=device).manual_seed(secrets.randbits(62))
        self._keys, self._row_keys = self._draw(_FEW_WORDS), self._draw(_FEW_WORDS)
        self._tail_key = secrets.randbits(61) | 1

    def of(self, flat_bytes: torch.Tensor) -> int:
        """The fingerprint of a flat uint8 tensor."""
        words = flat_bytes[: flat_bytes.numel() // 8 * 8].view(torch.int64)
        whole = words.numel() // _ROW_WORDS * _ROW_WORDS
        rows = words[:whole].view(-1, _ROW_WORDS)
        self._keys = self._enough(self._keys, min(words.numel(), _ROW_WORDS))
        self._row_keys = self._enough(self._row_keys, rows.shape[0])
        sums: list[torch.Tensor] = []
        for start in range(0, rows.shape[0], _ROWS):
            each = (rows[start : start + _ROWS] * self._keys[:_ROW_WORDS]).sum(-1)
            sums.append((each * self._row_keys[start : start + each.numel()]).sum())
        if rest := words.numel() - whole:
            sums.append((words[whole:] * self._keys[:rest]).sum() * self._tail_key)
        if tail := flat_bytes.numel() - words.numel() * 8:
            ends = flat_bytes[-tail:].to(torch.int64) + 1
            sums.append((ends * self._keys[:tail]).sum() * (self._tail_key + 2))
        return int(torch.stack(sums).sum()) if sums else 0

    def _enough(self, keys: torch.Tensor, count: int) -> torch.Tensor:
        """At least so many, the same ones first: a process draws as many as its largest data need."""
        missing = count - keys.numel()
        return keys if missing <= 0 else torch.cat((keys, self._draw(max(missing, keys.numel()))))

    def _draw(self, count: int) -> torch.Tensor:
        ends = torch.iinfo(torch.int64)
        device = self._generator.device
        return torch.randint(ends.min, ends.max, (count,), device=device, generator=self._generator) | 1
