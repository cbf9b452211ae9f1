"""The FLOPs of a torch module's training step, on meta tensors: they have shapes, and no data.

On meta tensors scaled_dot_product_attention is its products; on a CPU it is a kernel that nobody
sees into. A step's weights are put there for as long as it is counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigurationError
from holdfast.program.flops import NONE, Flops

if TYPE_CHECKING:
    import torch

    from holdfast.program.torch_ops import Counter

_SAY_IT = "give run.flops the number itself, or a closed form of holdfast.program"


def of_torch(
    module: torch.nn.Module,
    *args: Any,
    loss: Callable[..., torch.Tensor] | None = None,
    **kwargs: Any,
) -> Flops:
    """The FLOPs of a forward and a backward pass of `module(*args, **kwargs)`, on this rank.

    `loss(module, *args, **kwargs)` gives the number to go back from; without it, that of the
    squares of what the module returns. Neither the module nor the arguments are changed, and no
    data is touched. If the backward pass cannot run on meta tensors, the forward pass counts three
    times, which is said. Raises ConfigurationError if that cannot run either.
    """
    call = loss if loss is not None else _squares
    return of_torch_step(lambda *a, **k: call(module, *a, **k).backward(), module, *args, **kwargs)


def of_torch_step(
    step: Callable[..., Any],
    module: torch.nn.Module | Sequence[torch.nn.Module],
    *args: Any,
    **kwargs: Any,
) -> Flops:
    """The FLOPs of `step(*args, **kwargs)`, which trains `module` (or several), on this rank.

    It runs once, on meta tensors: no parameter, gradient, buffer or state of an optimizer changes.
    What else it does is done once more (a scheduler's step, a line in a log): leave that out. If it
    cannot run to its end on meta tensors (it asks for a loss's number), what it did until then
    counts if its backward pass was done, else its forward pass three times; both are said. Raises
    ConfigurationError if it did not come as far as that.
    """
    import torch
    from torch.utils._pytree import tree_map

    from holdfast.program.torch_ops import Counter, on_meta

    # nn.Sequential is no Sequence.
    modules = list(module) if isinstance(module, Sequence) else [module]
    for one in modules:
        if not isinstance(one, torch.nn.Module):
            raise ConfigurationError(
                f"{one!r:.80} is no torch.nn.Module: give what the step trains"
            )
        _refuse_shards(one)
    counter, forward = Counter(), _Forward()
    try:
        with contextlib.ExitStack() as stack:
            for one in modules:
                stack.enter_context(_weights_on_meta(one))
                if isinstance(one, torch.nn.parallel.DistributedDataParallel):
                    stack.enter_context(one.no_sync())  # it would wait for gradients afterwards
                stack.enter_context(forward.watched(one, counter))
            stack.enter_context(torch.device("meta"))
            stack.enter_context(_eager())
            stack.enter_context(_unscaled())
            args, kwargs = tree_map(on_meta, (args, kwargs))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(counter)
            step(*args, **kwargs)
    except Exception as error:
        return _as_far_as_it_came(modules, counter, forward, error)
    found = replace(counter.flops, left_out=tuple(counter.left_out))
    if counter.answers and forward.is_left_there(modules):
        words = "the backward pass, which it then left out, counts as twice the forward pass"
        return replace(found + forward.flops * 2, left_out=(*found.left_out, words))
    return found


def _refuse_shards(module: Any) -> None:
    """Its hooks would gather what is not there, and not work ever after."""
    if any(type(one).__name__ == "DTensor" for one in module.parameters()) or any(
        "FullyShardedDataParallel" in (kind.__name__ for kind in type(one).__mro__)
        for one in module.modules()
    ):
        raise ConfigurationError(
            f"the weights of {type(module).__name__} are sharded: count it before fully_shard or "
            "parallelize_module"
        )


def _as_far_as_it_came(
    modules: Any, counter: Counter, forward: _Forward, error: Exception
) -> Flops:
    why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    if not forward.flops.executed:
        name = " and ".join(type(one).__name__ for one in modules)
        raise ConfigurationError(f"{name} cannot run on meta tensors ({why}): {_SAY_IT}") from error
    gaps = tuple(counter.left_out)
    if forward.is_gone_back and not _was_in_backward(error):
        words = f"what follows the backward pass, where the step cannot go on ({why})"
        return replace(counter.flops, left_out=(*gaps, words))
    words = f"the backward pass, which cannot run on meta tensors ({why}), counts"
    thrice = forward.flops * 3 + forward.beside
    return replace(thrice, left_out=(*gaps, f"{words} as twice the forward pass"))


def _was_in_backward(error: Exception) -> bool:
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_name == "_engine_run_backward":
            return True
        at = at.tb_next
    return False


class _Forward:
    """What the forward passes of the modules cost, and whether one was gone back from after all.

    `beside`: those without gradients, from which nobody goes back (an evaluation, a teacher).
    """

    def __init__(self) -> None:
        self.flops = self.beside = NONE
        self.is_gone_back = self.has_gone_back = False
        self._depth = 0

    def is_left_there(self, modules: Sequence[Any]) -> bool:
        """Whether nothing was gone back from, where it could be."""
        can_be = any(one.requires_grad for module in modules for one in module.parameters())
        return can_be and not self.has_gone_back and self.flops.executed > 0

    @contextlib.contextmanager
    def watched(self, module: Any, counter: Any) -> Iterator[None]:
        import torch

        begun = NONE

        def before(*_: Any) -> None:
            nonlocal begun
            if not self._depth:
                begun = counter.flops
            self._depth += 1

        def after(*_: Any) -> None:
            self._depth -= 1
            if self._depth:
                return
            if torch.is_grad_enabled():
                self.flops += counter.flops + begun * -1
                self.is_gone_back = False
            else:
                self.beside += counter.flops + begun * -1

        def gone_back(*_: Any) -> None:
            self.is_gone_back = self.has_gone_back = True

        with contextlib.ExitStack() as stack:
            for hook in (
                module.register_forward_pre_hook(before),
                module.register_forward_hook(after),
                *(
                    one.register_post_accumulate_grad_hook(gone_back)
                    for one in module.parameters()
                    if one.requires_grad
                ),
            ):
                stack.callback(hook.remove)
            yield


def _squares(module: Any, *args: Any, **kwargs: Any) -> Any:
    import torch
    from torch.utils._pytree import tree_leaves

    outputs = tree_leaves(module(*args, **kwargs))
    floats = [one for one in outputs if isinstance(one, torch.Tensor) and one.is_floating_point()]
    if not floats:
        raise TypeError("no tensor of floats is found in what it returns: give loss=")
    return sum(one.square().sum() for one in floats)


@contextlib.contextmanager
def _eager() -> Iterator[None]:
    """Compiled functions as they were before: torch.compile would compile for meta tensors."""
    import torch

    stance = getattr(torch.compiler, "set_stance", None)  # from torch 2.6 on
    with contextlib.nullcontext() if stance is None else stance("force_eager"):
        yield


@contextlib.contextmanager
def _unscaled() -> Iterator[None]:
    """Losses as they are: a GradScaler would make its scale on meta, and never get rid of it."""
    import torch

    kind = torch.amp.grad_scaler.GradScaler
    plain: dict[str, Callable[..., Any]] = {
        "scale": lambda _, outputs: outputs,
        "unscale_": lambda *_: None,
        "step": lambda _, optimizer, *args, **kwargs: optimizer.step(*args, **kwargs),
        "update": lambda *_, **__: None,
    }
    before = {name: vars(kind)[name] for name in plain}
    for name, method in plain.items():
        setattr(kind, name, method)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(kind, name, method)


@contextlib.contextmanager
def _weights_on_meta(module: Any) -> Iterator[None]:
    """Parameters, buffers, and the tensors that hang on a module by their name alone.

    The real parameters are without gradients meanwhile: an optimizer finds nothing to do.
    """
    import torch
    from torch.nn.utils import stateless

    from holdfast.program.torch_ops import on_meta

    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    weights = {name: on_meta(value) for name, value in tensors.items()}
    plain = [
        (owner, name, value)
        for owner in module.modules()
        for name, value in vars(owner).items()
        if isinstance(value, torch.Tensor)
    ]
    gradients = [(one, one.grad) for one in module.parameters()]
    with stateless._reparametrize_module(module, weights, tie_weights=True):
        for owner, name, value in plain:
            vars(owner)[name] = on_meta(value)
        for parameter, _ in gradients:
            parameter.grad = None
        try:
            yield
        finally:
            for owner, name, value in plain:
                vars(owner)[name] = value
            for parameter, gradient in gradients:
                parameter.grad = gradient
