"""The FLOPs of torch's operations, one by one, as they are dispatched.

torch has a formula for most (`torch.utils.flop_counter`). Here they are asked by a mode of our own,
for FlopCounterMode cannot tell what is computed again, gives no bytes, and breaks where a script
asks for gradients inside its forward pass. Three of the formulas are put right: a convolution's
gradients are as dear as itself, with groups too; of a fused attention's backward pass the scores
are computed again; and what is multiplied without a formula of torch's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import _C, Tensor, is_grad_enabled, ops
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from holdfast.program.flops import NONE, Flops

# Products that neither torch nor we have a formula for; "norm" of linalg is none.
_PRODUCT = re.compile(
    r"(^|_)(\w*mm|conv\w*|attention\w*|\w*rnn\w*|trilinear|fft\w*|cholesky\w*|linalg_(?!\w*norm)\w*)"
    r"(_|$)"
)
_MOST_ANSWERS = 1000  # a loop may wait for a yes
ANSWERED = "what a yes about its numbers would change (`if mask.all()`): it was told no"
_OURS = frozenset({"aten", "prim", "prims", "profiler", "c10d", "_c10d_functional", "fsdp"})


def on_meta(value: Any) -> Any:
    """A tensor without data of the same shape; anything else as it is."""
    if not isinstance(value, Tensor) or value.is_meta:
        return value
    from torch import empty_like

    return empty_like(value, device="meta").requires_grad_(value.requires_grad)


class Counter(TorchDispatchMode):  # type: ignore[misc]
    """Counts within it; nothing real is changed meanwhile.

    What touches a tensor of meta, or changes one, is done on meta tensors.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.flops = NONE
        self.left_out: dict[str, None] = {}
        self.answers = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = getattr(func, "_overloadpacket", func)
        if func is ops.aten._local_scalar_dense.default and self._may_answer(args[0]):
            return False
        if isinstance(func, HigherOrderOperator) or func is ops.prim.device.default:
            return NotImplemented
        formula = _MORE.get(packet.__name__) if func.namespace == "aten" else None
        formula = formula or flop_registry.get(packet)
        if formula is None:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        if func._schema.is_mutable or any(
            isinstance(one, Tensor) and one.is_meta for one in tree_leaves((args, kwargs))
        ):
            args, kwargs = tree_map(on_meta, (args, kwargs))
        is_grouped = packet.__name__ == "_grouped_mm" and args[0].is_meta
        run = partial(_grouped_on_meta, func) if is_grouped else func
        out = run(*args, **kwargs)
        if formula is not None:
            self._count(packet.__name__, int(formula(*args, **kwargs, out_val=out)), args, out)
        elif func.namespace not in _OURS or _PRODUCT.search(packet.__name__):
            self.left_out[f"{func.namespace}::{packet.__name__}: its FLOPs are not known"] = None
        return out

    def _may_answer(self, asked: Tensor) -> bool:
        """Whether that asks a tensor without data for a yes or no (`if mask.all()`): it is no."""
        if not asked.is_meta or asked.dtype is not torch.bool or self.answers == _MOST_ANSWERS:
            return False
        self.answers += 1
        self.left_out[ANSWERED] = None
        return True

    def _count(self, name: str, executed: int, args: Any, out: Any) -> None:
        tensors = (one for one in tree_leaves((args, out)) if isinstance(one, Tensor))
        moved = sum(one.numel() * one.element_size() for one in tensors)
        model = executed
        if "attention" in name and "backward" in name:
            # Of five products one is the scores once more; the others are of their size.
            q, v = args[1].shape[-1], args[3].shape[-1]
            model = executed * (2 * q + 2 * v) // (3 * q + 2 * v)
        if _is_again():
            self.flops += Flops(0, executed, (), 0, moved)
        else:
            self.flops += Flops(model, executed, (), moved, moved)


def _is_again() -> bool:
    """Whether activation checkpointing computes this: in the backward pass, by its file's code."""
    if _C._current_graph_task_id() == -1 or not is_grad_enabled():
        return False
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_engine_run_backward":
        if "checkpoint" in frame.f_code.co_filename.rpartition("/")[2]:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _grouped_on_meta(func: Any, a: Tensor, b: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Groups of rows of any floats: torch does them, but on meta tensors those of bf16 alone."""
    out: Tensor = func(a.bfloat16(), b.bfloat16(), *args, **kwargs)
    return out.to(a.dtype)


# --- Formulas -------------------------------------------------------------------------------------


def _conv_backward(grad: Tensor, x: Tensor, w: Tensor, *rest: Any, **_: Any) -> int:
    (_, stride, padding, dilation, transposed, _, _, mask) = rest
    forward = flop_registry[ops.aten.convolution]
    one = int(forward(x, w, None, stride, padding, dilation, transposed, out_val=grad))
    return one * (int(mask[0]) + int(mask[1]))


def _grouped(a: Tensor, b: Tensor, *_: Any, **__: Any) -> int:
    """Each row, or each column, or each part of the sum is of one group."""
    groups = a.shape[0] if a.dim() == b.dim() == 3 else 1
    return int(2 * groups * a.shape[-2] * a.shape[-1] * b.shape[-1])


def _each_of(place: int) -> Callable[..., int]:
    def formula(*args: Any, **_: Any) -> int:
        return 2 * int(args[place].numel())

    return formula


_MORE: dict[str, Callable[..., int]] = {
    "convolution_backward": _conv_backward,
    "_grouped_mm": _grouped,
    "_scaled_grouped_mm": _grouped,
    "_int_mm": lambda a, b, **_: 2 * int(a.numel()) * int(b.shape[1]),
    "addbmm": lambda _, a, b, **__: 2 * int(a.numel()) * int(b.shape[2]),
    "mv": _each_of(0),
    "addmv": _each_of(1),
    "dot": _each_of(0),
    "vdot": _each_of(0),
}
