"""Kernels in Triton that begin before the last one has ended, on Hopper; those in Gluon have assembler.py.

Interpreted, kernels run one after the other, and PTX is not understood.
"""

from __future__ import annotations

import triton
import triton.language as tl

from assay.tiles.kernel import INTERPRETED

RUNS_PTX = tl.constexpr(not INTERPRETED)


@triton.jit
def let_next_begin():
    """The kernel launched behind this one, if it waits itself, may take multiprocessors that are free."""
    if RUNS_PTX:
        tl.inline_asm_elementwise("griddepcontrol.launch_dependents; // $0", "=r", [], tl.int32, False, 1)


@triton.jit
def wait_for_last():
    """Until the kernel launched before this one has ended, and all that it wrote is there."""
    if RUNS_PTX:
        tl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], tl.int32, False, 1)
