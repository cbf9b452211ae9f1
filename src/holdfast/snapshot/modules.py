"""What a PyTorch module's `state_dict()` gives, in a third of its time: training waits for it.

`state_dict()` asks each module of the tree for its own part, and any of them may answer in a way of
its own: a class overrides a method, somebody has registered a hook. Where none does, the tree is
walked. What is walked PyTorch keeps private, so both ways are tried once for each class of module.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from typing import Any

_ASKED = ("state_dict", "_save_to_state_dict", "get_extra_state")
_tried: weakref.WeakSet[type] = weakref.WeakSet()  # classes of which both ways gave the same

Inside = list[tuple[str, Any]]
"""All modules of a tree, as often as each is there, and what their names begin with in a state."""


def module_state(module: Any) -> Any:
    """What `module.state_dict()` gives, but for its `_metadata`, which no checkpoint keeps.

    Plain tensors may not be detached: who copies them makes an alias of each, which takes as long.
    """
    found = walked(module)
    return module.state_dict() if found is None else found


def walked(module: Any) -> OrderedDict[str, Any] | None:
    """The state of a tree of stock modules; None where `state_dict()` has to be asked."""
    try:
        inside = modules_in(module)
        if not are_stock(inside):
            return None
        found = walk(inside)
        new = {type(one) for _, one in inside}.difference(_tried)
        if new:
            if _who(found) != _who(module.state_dict(keep_vars=True)):
                return None
            _tried.update(new)
        torch = sys.modules["torch"]
        plain = torch.Tensor, torch.nn.Parameter
        for name, one in found.items():
            if type(one) not in plain:
                found[name] = one.detach()
        return OrderedDict(found)
    except Exception:  # PyTorch's own way says what is wrong
        return None


def _who(state: Any) -> list[tuple[str, int]]:
    return [(name, id(one)) for name, one in state.items()]


def modules_in(module: Any) -> Inside:
    """In the order of `state_dict`: itself first."""
    found: Inside = []
    _collect(module, "", found)
    return found


def _collect(module: Any, prefix: str, found: Inside) -> None:
    found.append((prefix, module))
    for name, one in module._modules.items():
        if one is not None:
            _collect(one, f"{prefix}{name}.", found)


def walk(inside: Inside) -> dict[str, Any]:
    """What stock modules store, by name: parameters and persistent buffers themselves."""
    found: dict[str, Any] = {}
    for prefix, module in inside:
        for name, one in module._parameters.items():
            if one is not None:
                found[prefix + name] = one
        if module._buffers:
            passing = module._non_persistent_buffers_set
            for name, one in module._buffers.items():
                if one is not None and name not in passing:
                    found[prefix + name] = one
    return found


def are_stock(inside: Inside) -> bool:
    """Whether nothing of these modules, and nobody who has patched PyTorch, changes a state."""
    torch_module = sys.modules["torch"].nn.Module
    place = vars(sys.modules[torch_module.__module__])
    stock = [(name, getattr(torch_module, name)) for name in _ASKED]
    if any(getattr(function, "__globals__", None) is not place for _, function in stock):
        return False
    for kind in {type(one) for _, one in inside}:
        if any(getattr(kind, name) is not function for name, function in stock):
            return False
    for _, one in inside:
        own = vars(one)
        if one._state_dict_hooks or one._state_dict_pre_hooks:
            return False
        if "state_dict" in own or "_save_to_state_dict" in own:
            return False
    return True
