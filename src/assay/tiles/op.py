"""Functions as torch operators, with less between a call and its launch than `torch.library.custom_op` has.

Torch's dispatcher takes longer than all that is left to do here. So a call goes past it, straight to the
function, where nothing but that would run: no gradient is recorded, nothing traces, transforms or profiles,
and the tensors are what they seem to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _get_tracing_state, _len_torch_dispatch_stack, _len_torch_function_stack
from torch._C._autograd import _profiler_enabled
from torch._C._functorch import peek_interpreter_stack
from torch._library.autograd import Info, make_autograd_impl
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn import Parameter

LIBRARY = torch.library.Library("assay", "FRAGMENT")
OPERATORS: dict[str, Op] = {}
"""By name, as soon as their kernels are imported."""
SIMPLE = frozenset((int, float, bool, str, type(None)))


class Op:
    """An operator `assay::name`; none of its results is one of its arguments."""

    def __init__(self, name: str, function: Callable[..., Any], has_backward: bool) -> None:
        self.name = f"assay::{name}"
        self.function = function
        schema = torch.library.infer_schema(function, mutates_args=())
        LIBRARY.define(name + schema, tags=[torch.Tag.pt2_compliant_tag])
        LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        self.overload = getattr(torch.ops.assay, name).default
        OPERATORS[name] = self
        if not has_backward:
            self.register_autograd(self._refuse, setup_context=lambda ctx, inputs, output: None)

    def __call__(self, *args: Any) -> Any:
        straight = is_undisturbed() and are_plain(args)
        return self.function(*args) if straight else self.overload(*args)

    def _refuse(self, ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(f"{self.name} has no backward")

    def register_fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What its results look like."""
        torch.library.register_fake(self.name, function, lib=LIBRARY)
        return function

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., Any]) -> None:
        """As torch.library's, which would lose tangents without a word."""
        recorded = make_autograd_impl(self.overload, Info(backward, setup_context))

        def call(keys: Any, *args: Any) -> Any:
            if forward_ad._current_level >= 0 and have_tangents(args):
                raise RuntimeError(f"{self.name} has no forward-mode derivative")
            return recorded(keys, *args)

        LIBRARY.impl(self.name, call, "Autograd", with_keyset=True)


def op(name: str, *, has_backward: bool = False) -> Callable[[Callable[..., Any]], Op]:
    """A decorator; without a backward, one is an error rather than a gradient that is silently missing."""
    return lambda function: Op(name, function, has_backward)


def is_undisturbed() -> bool:
    """Whether torch is not asked to trace, transform, record or show what is called."""
    return not (
        is_compiling()
        or _len_torch_dispatch_stack()
        or _len_torch_function_stack()
        or peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or _get_tracing_state() is not None
        or _profiler_enabled()
    )


def are_plain(args: Sequence[Any]) -> bool:
    """Whether the tensors among them are no subclasses, have data, hide no sign and need no gradient."""
    records = torch.is_grad_enabled()
    for arg in args:
        kind = type(arg)
        if kind is torch.Tensor or kind is Parameter:
            if (records and arg.requires_grad) or arg.is_neg() or arg.is_meta:
                return False
        elif kind is list:
            if not are_plain(arg):
                return False
        elif kind not in SIMPLE:
            return False
    return True


def have_tangents(args: Sequence[Any]) -> bool:
    """Whether a derivative is carried along with any of them."""
    for arg in args:
        if isinstance(arg, torch.Tensor):
            if forward_ad.unpack_dual(arg).tangent is not None:
                return True
        elif isinstance(arg, list) and have_tangents(arg):
            return True
    return False
