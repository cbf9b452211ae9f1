"""Which arrays nothing but an optimizer's step changes: these may be copied beside the next step.

They are the parameters of a tracked `torch.optim.Optimizer` and its state. PyTorch calls a hook of
ours before each step of any optimizer, and the hook has the step wait for the copy: on a device the
stream waits, and the host goes on. Everything else is copied at the boundary: buffers, averages,
what the script keeps by itself. Where the hook cannot help, that is said once, with the reason.

Version counters of tensors prove nothing here: fused optimizers and `.data` leave them as they are.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from holdfast.session.say import say

if TYPE_CHECKING:  # numpy: not before there is a state
    from holdfast.snapshot.described import Region
    from holdfast.snapshot.late import LateCopy

LATE_ON = {"cuda"}
"""Kinds of devices. A CPU gains nothing by it: it copies with the cores that train."""

EVERYTHING = "everything"
NOT_OURS = "it is no torch.optim.Optimizer, so that nobody sees when its steps begin"
IN_BACKWARD = "hooks of its parameters may change them in the backward pass"
UNSEEN = "its steps are not seen: compiled, in a CUDA graph, or not in each step of the run"
IN_GRAPH = "its step is captured in a CUDA graph"
RENORMED = "its max_norm changes it in the forward pass"
UNSAFE = "the script has called run.snapshot_safe(False)"


class Optimizers:
    """The optimizers of a script, and the copy that their steps wait for."""

    def __init__(self) -> None:
        self.is_safe = True  # the script changes nothing but in their steps
        self.span: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._known: dict[int, tuple[str, Any]] = {}
        self._normed: list[tuple[str, Any]] = []  # modules that change their weight
        self._foreign: list[str] = []  # optimizers whose steps nobody sees
        self._calls: dict[int, int] = {}  # steps of each
        self._counted: tuple[int, dict[int, int]] = (0, {})  # how many there were, at which step
        self._said: set[str] = set()
        self.speaks = True
        self._is_off = False  # nothing is copied late any more
        self._hooked: Any = None
        self._late: LateCopy | None = None
        self._thread = threading.get_ident()

    def track(self, parts: Mapping[str, Any]) -> None:
        """Parts that the script has named."""
        torch = sys.modules.get("torch")
        if torch is None:
            return
        for name, part in parts.items():
            if isinstance(part, torch.nn.Module):
                self._normed += _normed(name, part, torch)
            elif (optimizer := _inner(part, torch)) is not None:
                self._known[id(optimizer)] = (name, optimizer)
                self._hook(torch)
            elif hasattr(part, "param_groups"):
                self._foreign.append(name)

    def begin(self, step: int) -> None:
        """The first step comes after this one."""
        self._counted = step, dict(self._calls)

    def _hook(self, torch: Any) -> None:
        module = sys.modules.get("torch.optim.optimizer")
        register = getattr(module, "register_optimizer_step_pre_hook", None)
        is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
        if self._hooked is not None or register is None or is_compiling is None:
            return

        def before_step(optimizer: Any, _: Any, __: Any) -> None:
            # A compiler that traces the step must find nothing here that it could refuse; the step
            # then counts as unseen.
            if not is_compiling():
                self._before_step(torch, optimizer)

        self._hooked = register(before_step)

    def close(self) -> None:
        """No optimizer calls us any more, nor waits for anything."""
        self._late = None
        if self._hooked is not None:
            self._hooked.remove()

    def _before_step(self, torch: Any, optimizer: Any) -> None:
        number = id(optimizer)
        self._calls[number] = self._calls.get(number, 0) + 1
        late = self._late
        if late is None or not late.is_under_way:
            return
        try:
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                name, _ = self._known.get(number, ("an optimizer", None))
                self._give_up(f"{name}: {IN_GRAPH}")
                late.spoil(f"{name}: {IN_GRAPH}")  # what is captured now runs later, unseen
                return
            is_ours = late.waits_here and threading.get_ident() == self._thread
            with self.span() if is_ours else contextlib.nullcontext():
                late.hold(lambda device: torch.cuda.current_stream(device).cuda_stream)
        except Exception as error:
            # The step goes on; what it changes makes the copy one of no step.
            self._give_up(f"an optimizer could not wait for a copy ({error!r})")
            late.spoil(f"an optimizer could not wait for the copy ({error!r})")

    def _give_up(self, why: str) -> None:
        """Nothing is copied late in this attempt any more."""
        self._is_off = True
        self._say(EVERYTHING, why)

    def copying(self, late: LateCopy) -> None:
        """Steps wait for this one from now on."""
        self._late = late

    def may_be_late(self, step: int) -> Set[Region] | None:
        """Where arrays are that may be copied beside the step after this one; None: nowhere."""
        if self._late is not None and self._late.was_changed:
            self._give_up(str(self._late.problem))
        return (self._places(step) if not self._is_off else None) or None

    def _places(self, step: int) -> set[Region]:
        (since, counted), self._counted = self._counted, (step, dict(self._calls))
        found: set[Region] = set()
        refused = [(name, NOT_OURS) for name in self._foreign if _is_used()]
        for number, (name, optimizer) in self._known.items():
            places = _places(_tensors(optimizer))
            if not places:
                continue
            if not self.is_safe:
                refused.append((EVERYTHING, UNSAFE))
            elif _has_hooks(optimizer):
                refused.append((name, IN_BACKWARD))
            elif self._calls.get(number, 0) - counted.get(number, 0) < step - since:
                refused.append((name, UNSEEN))
            else:
                found |= places
        for name, module in self._normed:
            if places := _places([module.weight]) & found:
                found -= places
                refused.append((name, RENORMED))
        for what, why in refused:
            self._say(what, why)
        return found

    def _say(self, what: str, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            self.tell(f"{what} is copied at the boundary, because {why}")

    def tell(self, words: str) -> None:
        """Say something of snapshots, where this rank is the one that speaks."""
        if self.speaks:
            say(f"Snapshots: {words}")


def _is_used() -> bool:
    """Whether there may be arrays on such a device at all."""
    torch = sys.modules["torch"]
    return "cpu" in LATE_ON or bool(torch.cuda.is_initialized())


def _inner(part: Any, torch: Any) -> Any:
    """The optimizer whose steps call the hook: a wrapper's own (accelerate's) does not."""
    while part is not None:
        inner = getattr(part, "optimizer", None)
        if isinstance(part, torch.optim.Optimizer) and not isinstance(inner, torch.optim.Optimizer):
            return part
        part = inner if isinstance(inner, torch.optim.Optimizer) else None
    return None


def _tensors(optimizer: Any) -> list[Any]:
    found: list[Any] = []
    for group in optimizer.param_groups:
        found += group["params"]
    for state in optimizer.state.values():
        found += state.values()
    return found


def _places(values: Sequence[Any]) -> set[Region]:
    """Where those are that may be copied late, and how large they are."""
    torch = sys.modules["torch"]
    kinds = (torch.Tensor, torch.nn.Parameter)
    plain = [value for value in values if type(value) in kinds]
    others = [] if len(plain) == len(values) else [one for one in values if type(one) not in kinds]
    found: set[Region] = set()
    for kind in LATE_ON:
        is_there = attrgetter(f"is_{kind}")  # a tenth of the time that `device.type` takes
        chosen = [*compress(plain, map(is_there, plain))]
        try:
            found.update(zip(map(torch.Tensor.data_ptr, chosen), map(_NBYTES, chosen), strict=True))
        except RuntimeError:  # one of them is without memory of its own
            others += plain
        for value in others:
            value = getattr(value, "_local_tensor", value)  # of a DTensor: that is what is copied
            if getattr(value, f"is_{kind}", False):
                with contextlib.suppress(RuntimeError):
                    found.add((value.data_ptr(), value.nbytes))
    return found


_NBYTES = attrgetter("nbytes")


def _has_hooks(optimizer: Any) -> bool:
    """Whether something is called for its parameters while the backward pass is under way."""
    return any(
        getattr(one, "_post_accumulate_grad_hooks", None) or hasattr(one, "_in_backward_optimizers")
        for group in optimizer.param_groups
        for one in group["params"]
    )


def _normed(name: str, module: Any, torch: Any) -> Iterator[tuple[str, Any]]:
    for path, one in module.named_modules():
        if isinstance(one, torch.nn.Embedding | torch.nn.EmbeddingBag) and one.max_norm is not None:
            yield f"{name}.{path}" if path else name, one
