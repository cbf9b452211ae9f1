"""The FLOPs of a torch module's training step, on meta tensors: they have shapes, and no data.

`torch.utils.flop_counter` knows a formula for each operation. On a CPU it does not see inside
scaled_dot_product_attention; on meta tensors it does. It also counts what activation checkpointing
computes again. That is told apart here: it runs while `backward` does, with gradients switched on,
where the backward pass itself has them off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigurationError
from holdfast.program.flops import Flops

if TYPE_CHECKING:
    import torch


def of_torch(
    module: torch.nn.Module,
    *args: Any,
    loss: Callable[..., torch.Tensor] | None = None,
    **kwargs: Any,
) -> Flops:
    """The FLOPs of a forward and a backward pass of `module(*args, **kwargs)`, on this rank.

    `loss(module, *args, **kwargs)` gives the number to go back from; without it, the sum of what
    the module returns. Neither the module nor the arguments are changed, and no data is touched.
    If the backward pass cannot run on meta tensors, the forward pass counts three times, which is
    said. Raises ConfigurationError if that cannot run either.
    """
    import torch

    call = loss if loss is not None else _summed
    counted = _Counted()
    try:
        with _on_meta(module, args, kwargs) as (meta, inputs, named), counted.mode:
            call(meta, *inputs, **named).backward()
    except Exception as error:
        return _forward_alone(torch, (module, args, kwargs), error)
    return Flops(counted.total - counted.repeated, counted.total)


def _forward_alone(torch: Any, what: tuple[Any, Any, Any], error: Exception) -> Flops:
    counted = _Counted()
    try:
        with _on_meta(*what) as (meta, inputs, named), counted.mode, torch.no_grad():
            meta(*inputs, **named)
    except Exception as forward:
        raise ConfigurationError(
            f"{type(what[0]).__name__} cannot run on meta tensors ({_first_line(forward)}): give "
            "run.flops the number itself, or a closed form of holdfast.program"
        ) from forward
    flops = 3 * counted.total
    words = f"the backward pass, which cannot run on meta tensors ({_first_line(error)}), counts"
    return Flops(flops, flops, (f"{words} as twice the forward pass",))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _summed(module: Any, *args: Any, **kwargs: Any) -> Any:
    import torch
    from torch.utils._pytree import tree_leaves

    outputs = tree_leaves(module(*args, **kwargs))
    return sum(
        one.sum() for one in outputs if isinstance(one, torch.Tensor) and one.is_floating_point()
    )


class _Counted:
    """Counts within `mode`; `repeated` of `total` was computed again."""

    def __init__(self) -> None:
        from torch.utils.flop_counter import FlopCounterMode, flop_registry

        self.repeated = 0
        formulas = {name: self._watched(formula) for name, formula in flop_registry.items()}
        self.mode = FlopCounterMode(display=False, custom_mapping=formulas)

    @property
    def total(self) -> int:
        return int(self.mode.get_total_flops())

    def _watched(self, formula: Callable[..., int]) -> Callable[..., int]:
        import torch

        def count(*args: Any, **kwargs: Any) -> int:
            flops = formula(*args, **kwargs)
            if torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1:
                self.repeated += int(flops)
            return flops

        count._get_raw = True  # type: ignore[attr-defined]
        return count


@contextlib.contextmanager
def _on_meta(module: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The module with weights on meta for as long as this lasts, and the arguments there."""
    import torch
    from torch.nn.utils import stateless
    from torch.utils._pytree import tree_map

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_like(value, device="meta", requires_grad=value.requires_grad)

    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    weights = {name: moved(value) for name, value in tensors.items()}
    with stateless._reparametrize_module(module, weights, tie_weights=True):
        yield module, tree_map(moved, args), tree_map(moved, kwargs)
