"""Copies of JAX's arrays on their own devices: a thread fetches them beside the next steps.

An array of JAX never changes, but a step that is given it as a donation takes its memory. So at the
boundary the devices are told to copy all arrays, after what they were given to do before, and the
host goes on: it waits neither for the step nor for the copies. The program that copies is compiled
beside the training. Until it is there, and where a device lacks the room for a second state, arrays
are copied at the boundary.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.snapshot.arrays import ArrayKind, Leaf
from holdfast.snapshot.layout import Placed
from holdfast.snapshot.room import size_words

NOT_ON = {"cpu"}
"""Platforms that gain nothing by it: they copy with the cores that train."""
MARGIN = 16  # one part in so many of a device's memory stays free
_KEPT = 4  # programs, of as many kinds of trees

_OF_JAX = (ArrayKind.JAX, ArrayKind.KEY)
_Signature = tuple[tuple[Any, tuple[tuple[Any, ...], ...]], ...]


class Copied:
    """Arrays as they were at a boundary."""

    def __init__(
        self, placed: Sequence[Placed], before: Any, give_up: Callable[[str], None]
    ) -> None:
        """`placed`: of the copies. `before` is there once the devices have come to them."""
        self._placed = placed
        self._before = before
        self._give_up = give_up

    def fetch(self, copy: Callable[[Sequence[Placed]], None]) -> int:
        """Have `copy` bring them to the host, once the devices have made them.

        How many ns making them kept the devices from other work. The devices have the room again
        after this. Raises what goes wrong.
        """
        try:
            self._before.block_until_ready()
            began_ns = time.perf_counter_ns()
            sys.modules["jax"].block_until_ready([piece.source for _, _, piece in self._placed])
            took_ns = time.perf_counter_ns() - began_ns
            copy(self._placed)
        except Exception as error:
            self._give_up(f"a copy of them on their devices failed ({_line(error)})")
            raise
        finally:
            self._placed, self._before = (), None
        return took_ns


class _Program(NamedTuple):
    """Copies all arrays of one sharding; and, of the first one, the smallest before them."""

    copy_all: Callable[[list[Any]], list[Any]]
    copy_one: Callable[[list[Any]], list[Any]] | None
    smallest: int


class DeviceCopies:
    """Makes them, for one rank. `take` is for the training's thread, all else for any."""

    def __init__(
        self, beside: Callable[[Callable[[], None]], None], say: Callable[[str], None]
    ) -> None:
        """`beside` runs some work in a thread; `say` is told once why copies are not made here."""
        self._beside = beside
        self._say = say
        self._programs: dict[_Signature, list[_Program] | None] = {}  # None: being compiled
        self._most_bytes: dict[Any, int] = {}  # that a device had in use, without copies of ours
        self._is_off = False
        self.is_ready = False  # the next copy is made here, most likely, and waits for no step

    def take(self, placed: Sequence[Placed]) -> tuple[Copied | None, list[Placed]]:
        """Have the devices copy what they can; and what is to be copied at the boundary."""
        self.is_ready = False
        here: list[Placed] = []
        rest: list[Placed] = []
        for one in placed:
            (here if may_be_copied(one[1]) else rest).append(one)
        copied = self._copied(here) if here and not self._is_off else None
        if copied is None:
            return None, list(placed)
        self.is_ready = not any(leaf.kind in _OF_JAX for _, leaf, _ in rest)
        return copied, rest

    def _copied(self, placed: Sequence[Placed]) -> Copied | None:
        try:
            groups = _by_sharding(placed)
            signature = tuple(
                (sharding, tuple(_like(placed[number]) for number in numbers))
                for sharding, numbers in groups.items()
            )
            programs = self._programs.get(signature)
            if programs is None:
                self._compile(signature)
                return None
            if lack := self._lack(signature):
                self.give_up(lack)
                return None
            made, before = _run(placed, list(groups.values()), programs)
        except Exception as error:  # another version of JAX, or a device that is full
            self.give_up(f"their devices could not copy them ({_line(error)})")
            return None
        return Copied(made, before, self.give_up)

    def give_up(self, why: str) -> None:
        """Nothing is copied here any more in this attempt."""
        self.is_ready = False
        if not self._is_off:
            self._is_off = True
            self._programs.clear()
            self._say(f"arrays of JAX are copied at the boundary, because {why}")

    def _compile(self, signature: _Signature) -> None:
        if signature in self._programs:
            return
        if len(self._programs) == _KEPT:
            self._programs.clear()
        self._programs[signature] = None

        def work() -> None:
            try:
                self._programs[signature] = _programs(signature)
                self.is_ready = not self._is_off
            except Exception as error:
                self.give_up(f"the program that copies them was not compiled ({_line(error)})")

        self._beside(work)

    def _lack(self, signature: _Signature) -> str:
        """What device has no room for the copies beside what a step takes, and how much; or ""."""
        for device, wanted_bytes in _needs(signature).items():
            if device.platform == "cpu":
                continue  # its memory is the host's
            told = device.memory_stats() or {}
            if not {"bytes_limit", "peak_bytes_in_use"} <= told.keys():
                return f"{device} does not tell how much memory is free"
            limit_bytes = told["bytes_limit"]
            # The most that was in use since the start, and the copies may be part of it by now.
            peak_bytes = told["peak_bytes_in_use"]
            most_bytes = self._most_bytes.setdefault(device, peak_bytes)
            if peak_bytes > most_bytes + wanted_bytes:
                most_bytes = self._most_bytes[device] = peak_bytes
            room_bytes = limit_bytes - limit_bytes // MARGIN - most_bytes
            if wanted_bytes > room_bytes:
                return (
                    f"{device} has no room for a copy of them ({size_words(wanted_bytes)}): steps "
                    f"take up to {size_words(most_bytes)} of {size_words(limit_bytes)}"
                )
        return ""


def may_be_copied(leaf: Leaf) -> bool:
    """Whether an array is one of JAX's, in the own memory of devices that gain by it."""
    if leaf.kind not in _OF_JAX or not leaf.pieces:
        return False
    sharding = leaf.pieces[0].source.sharding
    device = next(iter(sharding.addressable_devices))
    kind = sharding.memory_kind
    return device.platform not in NOT_ON and kind in (None, device.default_memory().kind)


def _by_sharding(placed: Sequence[Placed]) -> dict[Any, list[int]]:
    """Which of them one program can copy."""
    found: dict[Any, list[int]] = {}
    for number, (_, _, piece) in enumerate(placed):
        found.setdefault(piece.source.sharding, []).append(number)
    return found


def _like(one: Placed) -> tuple[Any, ...]:
    source = one[2].source
    return source.shape, source.dtype


def _needs(signature: _Signature) -> dict[Any, int]:
    """Bytes of the copies on each device."""
    found: dict[Any, int] = {}
    for sharding, arrays in signature:
        nbytes = sum(
            math.prod(sharding.shard_shape(shape)) * dtype.itemsize for shape, dtype in arrays
        )
        for device in sharding.addressable_devices:
            found[device] = found.get(device, 0) + nbytes
    return found


def _programs(signature: _Signature) -> list[_Program]:
    jax = sys.modules["jax"]

    def copies(arrays: list[Any]) -> list[Any]:
        return [jax.numpy.copy(array) for array in arrays]

    found: list[_Program] = []
    for sharding, arrays in signature:
        likes = [jax.ShapeDtypeStruct(*like, sharding=sharding) for like in arrays]
        smallest = min(range(len(likes)), key=lambda number: math.prod(likes[number].shape))
        copy_one = None
        if not found:
            copy_one = jax.jit(copies).lower([likes[smallest]]).compile()
        found.append(_Program(jax.jit(copies).lower(likes).compile(), copy_one, smallest))
    return found


def _run(
    placed: Sequence[Placed], groups: Sequence[Sequence[int]], programs: Sequence[_Program]
) -> tuple[list[Placed], Any]:
    """The copies, and what is there before them."""
    made = list(placed)
    before = None
    for numbers, program in zip(groups, programs, strict=True):
        sources = [placed[number][2].source for number in numbers]
        if program.copy_one is not None:
            (before,) = program.copy_one([sources[program.smallest]])
        for number, copy in zip(numbers, program.copy_all(sources), strict=True):
            entry, leaf, piece = placed[number]
            made[number] = entry, leaf, type(piece)(piece.index, piece.shape, copy)
    return made, before


def _line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
