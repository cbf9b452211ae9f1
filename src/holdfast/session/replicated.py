"""What PyTorch's DistributedDataParallel keeps equal on all ranks: parameters, and what follows.

Ranks of one host may each copy a part of that. DDP has no list of what it wraps, so its
constructor is watched. The parameters of a wrapped module are equal after each step, and so is the
state of an optimizer of nothing else. Buffers are not (running statistics), nor is what a script
keeps by itself. Whether all of that is really equal is compared when sets are sealed.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.session.hooks import hook_into
from holdfast.session.upon_import import upon_import

_LOSS = "each rank copies all of the model, and not a part of it"


_wrappers: weakref.WeakSet[Any] = weakref.WeakSet()  # that were made in this process
_watching: list[bool] = []


def _watch() -> None:
    module = sys.modules.get("torch.nn.parallel.distributed")
    if module is None:
        return

    def note(_: Any, wrapper: Any, *__: Any, **___: Any) -> None:
        _wrappers.add(wrapper)

    hook_into(module.DistributedDataParallel, "__init__", _LOSS, after=note)


class ReplicatedParts:
    """Which arrays of a script's parts DDP keeps equal, as far as it was made after this."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[str, ...]] = {}  # of parameters, by the module that is a part
        if not _watching:
            _watching.append(True)
            upon_import("torch", _watch, _LOSS)

    def paths(self, parts: Mapping[str, Any]) -> tuple[str, ...]:
        """Paths of such arrays, or prefixes of such paths. `parts`: by name, as tracked."""
        if not _wrappers:
            return ()
        equal = {id(one) for wrapper in list(_wrappers) for one in wrapper.parameters()}
        return tuple(path for name, part in parts.items() for path in self._of(name, part, equal))

    def _of(self, name: str, part: Any, equal: set[int]) -> Iterator[str]:
        torch = sys.modules["torch"]
        if isinstance(part, torch.nn.Module):
            if id(part) not in self._names:
                self._names[id(part)] = tuple(_parameters(name, part, equal))
            yield from self._names[id(part)]
        elif isinstance(part, torch.optim.Optimizer):
            mine = [id(one) for group in part.param_groups for one in group["params"]]
            if mine and equal.issuperset(mine):
                yield f"parts/{name}/state"


def _parameters(name: str, module: Any, equal: set[int]) -> Iterator[str]:
    from holdfast.snapshot.paths import piece  # not before there is a save

    for key, one in module.named_parameters(remove_duplicate=False):
        if id(one) in equal:
            yield f"parts/{name}/{piece(key)}"
