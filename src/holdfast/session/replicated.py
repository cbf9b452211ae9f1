"""What PyTorch's DistributedDataParallel keeps equal on all ranks: parameters, and what follows.

Ranks of one host may each copy a part of that. DDP has no list of what it wraps, so its
constructor is watched. The parameters that a module has when it is wrapped are equal after each
step, for as long as the wrapper lives, and so is the state of an optimizer of nothing else. Those
that come later are not, nor those that were frozen then and are trained now: DDP knows nothing of
them. Buffers are not (running statistics), nor is what a script keeps by itself. Whether all of
that is really equal is compared when sets are sealed.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.session.hooks import hook_into
from holdfast.session.upon_import import upon_import

_LOSS = "each rank copies all of the model, and not a part of it"


_wrappers: weakref.WeakKeyDictionary[Any, tuple[set[int], list[int]]] = weakref.WeakKeyDictionary()
"""Those that were made in this process: what each trains, and which of its own it does not."""
_watching: list[bool] = []


def _watch() -> None:
    module = sys.modules.get("torch.nn.parallel.distributed")
    if module is None:
        return

    def note(_: Any, wrapper: Any, *__: Any, **___: Any) -> None:
        mine = wrapper._module_parameters  # which it keeps, so that no other gets the id of one
        trained = {id(one) for one in mine if one.requires_grad}
        frozen = [number for number, one in enumerate(mine) if not one.requires_grad]
        _wrappers[wrapper] = trained, frozen

    hook_into(module.DistributedDataParallel, "__init__", _LOSS, after=note)


def _equal() -> set[int]:
    """The parameters that are equal now."""
    found: set[int] = set()
    for wrapper, (trained, frozen) in list(_wrappers.items()):
        found |= trained
        still = [wrapper._module_parameters[number] for number in frozen]
        found.update(id(one) for one in still if not one.requires_grad)
    return found


class ReplicatedParts:
    """Which arrays of a script's parts DDP keeps equal, as far as it was made after this."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}
        self._paths: tuple[str, ...] = ()  # of what was found last
        if not _watching:
            _watching.append(True)
            upon_import("torch", _watch, _LOSS)

    def paths(self, parts: Mapping[str, Any], states: Mapping[str, Any]) -> tuple[str, ...]:
        """Paths of such arrays, or prefixes of such paths.

        `parts`: by name, as tracked; `states`: of each, as it was gathered just now.
        """
        equal = _equal()
        if not equal:
            return ()
        found = {name: _keys(part, states[name], equal) for name, part in parts.items()}
        if found != self._found:
            from holdfast.snapshot.paths import piece  # not before there is a save

            self._paths = tuple(
                f"parts/{name}/{piece(key)}" for name, keys in found.items() for key in keys
            )
            self._found = found
        return self._paths


def _keys(part: Any, state: Any, equal: set[int]) -> list[str]:
    """What of a part's state is equal."""
    torch = sys.modules["torch"]
    if isinstance(part, torch.nn.Module):
        return [key for key, one in _parameters(part, state) if id(one) in equal]
    if isinstance(part, torch.optim.Optimizer):
        mine = [id(one) for group in part.param_groups for one in group["params"]]
        return ["state"] if mine and equal.issuperset(mine) else []
    return []


def _parameters(module: Any, state: Any) -> Iterable[tuple[str, Any]]:
    """By name; most states have them themselves, which takes a tenth of the time."""
    for name, first in module.named_parameters():
        if isinstance(state, dict) and state.get(name) is first:
            return state.items()
        break
    return module.named_parameters(remove_duplicate=False)  # type: ignore[no-any-return]
