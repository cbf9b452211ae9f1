"""State that lives in objects: models, optimizers, iterators, and the random generators.

A part is anything with state_dict and load_state_dict, or get_state and set_state, or numpy's and
Python's own generators (`numpy.random.Generator`, `random.Random`).
"""

from __future__ import annotations

import array
import importlib
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.errors import StateMismatch, Unstorable
from holdfast.snapshot.modules import module_state

_PROTOCOLS = (
    ("state_dict", "load_state_dict"),
    ("get_state", "set_state"),
    ("getstate", "setstate"),  # random.Random
)


def is_part(value: Any) -> bool:
    """Whether `part_state` and `load_part` work on it."""
    return _protocol(value) is not None or _bit_generator(value) is not None


def is_of_run(part: Any) -> bool:
    """Whether a part belongs to the run: torch's models, optimizers, schedulers, gradient scalers.

    For the `shared` paths of a capture. It says nothing of what ranks hold: slices are what their
    placements say (DTensors), what a framework keeps equal is declared, and anything
    else is the same on all ranks only where its checksums are, in each set anew.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    kinds = [torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]
    kinds += [kind for kind in [getattr(torch.amp, "GradScaler", None)] if kind is not None]
    return isinstance(part, tuple(kinds))


def part_state(part: Any, path: str) -> Any:
    """The part's state as a tree; `path` names it in errors.

    Raises:
        Unstorable: it has no state that can be asked for, or asking for it failed.

    """
    bits = _bit_generator(part)
    if bits is not None:
        return bits.state
    protocol = _protocol(part)
    if protocol is None:
        raise Unstorable(
            path,
            f"a {type(part).__qualname__} has neither state_dict and load_state_dict "
            "nor get_state and set_state",
        )
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(part, torch.nn.Module):
            return module_state(part)
        return getattr(part, protocol[0])()
    except Exception as error:
        raise Unstorable(path, f"{protocol[0]}() failed: {error!r}") from error


def load_part(part: Any, state: Any, path: str) -> None:
    """Give a part its state back, in place.

    Raises:
        StateMismatch: the part refuses the state.

    """
    bits = _bit_generator(part)
    protocol = _protocol(part)
    try:
        if bits is not None:
            bits.state = state
        elif protocol is not None:
            getattr(part, protocol[1])(_named(part, state))
        else:
            raise TypeError("it has no way to take a state")
    except Exception as error:
        why = " ".join(str(error).split())  # PyTorch says what is wrong from its second line on
        raise StateMismatch(
            path, f"what {type(part).__qualname__} accepts", f"a state it refuses ({why:.400})"
        ) from error


def _named(part: Any, state: Any) -> Any:
    """A module's state under the names that it has now: torch.compile puts `_orig_mod.` into them.

    So what a compiled module has saved fits the one that is not compiled, and the other way round.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(part, torch.nn.Module) or not isinstance(state, dict):
        return state
    names = {plain_name(name): name for name in part.state_dict()}
    return {names.get(plain_name(name), name): value for name, value in state.items()}


def plain_name(name: str) -> str:
    """Without what torch.compile puts into the names of a module that it wraps."""
    return name.replace("_orig_mod.", "")


def _protocol(part: Any) -> tuple[str, str] | None:
    for names in _PROTOCOLS:
        if all(callable(getattr(part, name, None)) for name in names):
            return names
    return None


def _bit_generator(part: Any) -> Any:
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None and isinstance(part, numpy_random.Generator):
        return part.bit_generator
    return None


def capture_rng() -> dict[str, Any]:
    """The states of the process's global random generators.

    Python's; numpy's and torch's (CPU, and CUDA if it is in use) only if they are loaded.
    """
    version, words, gauss = random.getstate()
    found: dict[str, Any] = {"python": {"version": version, "words": words, "gauss": gauss}}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        words = array.array("I", words)  # numpy takes longer over a tuple
        found["python"]["words"] = numpy.frombuffer(words, numpy.uint32)  # 625: not as JSON
        found["numpy"] = numpy.random.get_state(legacy=False)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):  # it may be half imported
        found["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            found["torch_cuda"] = list(torch.cuda.get_rng_state_all())
            found["torch_cuda_current"] = torch.cuda.current_device()
    return found


def restore_rng(states: Mapping[str, Any]) -> None:
    """Set the global generators to states from `capture_rng`.

    What was captured is restored even if this process has not imported the library yet: a script
    that imports torch later must still draw the same numbers.

    Raises:
        StateMismatch: a state that the library refuses.

    """
    for name, restore in (("python", _python), ("numpy", _numpy), ("torch", _torch)):
        if name in states:
            try:
                restore(states[name])
            except Exception as error:
                raise StateMismatch(
                    f"rng/{name}", f"a state of {name}'s generator", f"one it refuses ({error})"
                ) from error
    if "torch_cuda" in states:
        _torch_cuda(states["torch_cuda"], states.get("torch_cuda_current"))


def capture_order(source: Any) -> dict[str, Any]:
    """What the order of a pass through `source` follows from: the generators that it draws from.

    The process's, and those of torch that a data loader has for itself.
    """
    found = capture_rng()
    for name in ("torch_cuda", "torch_cuda_current"):
        found.pop(name, None)
    return found | capture_own(source)


def restore_order(source: Any, states: Mapping[str, Any]) -> None:
    """Have the next pass through `source` come in the order of that which began with `states`.

    Raises:
        StateMismatch: a state that the library refuses.

    """
    restore_rng(states)
    restore_own(source, states)


def capture_own(source: Any) -> dict[str, Any]:
    """The states of torch's generators that a data loader and its samplers have for themselves."""
    return {place: own.get_state() for place, own in _own_generators(source)}


def restore_own(source: Any, states: Mapping[str, Any]) -> None:
    """Set them to states from `capture_own`; one that has none there stays as it is."""
    for place, own in _own_generators(source):
        if place in states:
            own.set_state(states[place])


def _own_generators(source: Any) -> Iterator[tuple[str, Any]]:
    """Each with the place where it was found."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    batches = getattr(source, "batch_sampler", None)
    inner = getattr(batches, "batch_sampler", None)  # of which accelerate gives each rank a share
    holders = {
        "loader": source,
        "sampler": getattr(source, "sampler", None),
        "batch_sampler": batches,
        "sampler_of_batches": getattr(batches, "sampler", None),
        "inner_batch_sampler": inner,
        "inner_sampler_of_batches": getattr(inner, "sampler", None),
    }
    for place, holder in holders.items():
        own = getattr(holder, "generator", None)
        if isinstance(own, torch.Generator):
            yield place, own


def _python(state: Mapping[str, Any]) -> None:
    words = tuple(int(word) for word in state["words"])
    random.setstate((state["version"], words, state["gauss"]))


def _numpy(state: Any) -> None:
    importlib.import_module("numpy").random.set_state(state)


def _torch(state: Any) -> None:
    importlib.import_module("torch").set_rng_state(state)


def _torch_cuda(saved: Sequence[Any], current: int | None) -> None:
    """Of each device that this process sees; where others are there, that of the current one.

    A rank trains on one of them, whose number may be another one here.
    """
    cuda = importlib.import_module("torch").cuda
    count = cuda.device_count() if cuda.is_available() else 0
    if count != len(saved):
        saved = [saved[current or 0]] * count
    if saved:
        cuda.set_rng_state_all(saved)
