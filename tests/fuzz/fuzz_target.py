"""One reader under fuzz: bytes in, an answer or a documented error out, nothing else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fuzz_guard import guarded
from fuzz_mutate import Mutator

from holdfast.errors import HoldfastError


@dataclass(frozen=True)
class Target:
    """`read(data, place)` puts the bytes where the reader looks, inside the folder, and reads."""

    name: str
    read: Callable[[bytes, Path], object]
    seeds: Callable[[], list[bytes]]
    mutate: Mutator
    max_bytes: int = 1 << 17

    def run(self, data: bytes, place: Path) -> None:
        """Read once; whatever comes out of here is a finding."""
        with guarded(len(data)):
            self.read(data, place)


@contextlib.contextmanager
def documented(*others: type[Exception]) -> Iterator[None]:
    """Let the errors pass that a reader may raise; their words must fit on any terminal."""
    try:
        yield
    except (HoldfastError, *others) as error:
        sayable(str(error))


def sayable(text: str) -> None:
    """Raise UnicodeEncodeError for text that cannot be printed or sent."""
    text.encode("utf-8")


def put(path: Path, data: bytes) -> Path:
    """Write a file, and the folders above it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True)
        return put(path, data)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return path
