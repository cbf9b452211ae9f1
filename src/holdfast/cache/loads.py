"""Which programs were being loaded when their process ended.

A program that takes down the process that loads it would do so at every restart. So a mark lies
beside an entry while a process loads it. A mark of an earlier attempt tells that the process ended
meanwhile. Once may be chance: a host is taken, a peer fails. After the second time the entry is put
aside, and the program is compiled instead.

    NAME.hfx.ATTEMPT-RANK.loading     that rank of that attempt loads it
    NAME.hfx.bad                      the entry, put aside
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from holdfast.cache import traced
from holdfast.cache.tier import CacheTier

MARK = ".loading"
ASIDE = ".bad"
MOST_ENDS = 2


class Loads:
    """What one rank loads from its host's tier. Any thread may call it; nothing here raises."""

    def __init__(self, tier: CacheTier, attempt: int = 0, rank: int = 0) -> None:
        self._tier = tier
        self._attempt = attempt
        self._suffix = f".{attempt}-{rank}{MARK}"
        self._under_way: set[str] = set()

    def begin(self, name: str) -> bool:
        """Before an entry is loaded; False: it must not be."""
        with contextlib.suppress(OSError):
            if self.is_aside(name):
                return False
            marks = list(self._tier.folder.glob(f"{name}.*{MARK}"))
            ends = {_attempt_of(mark) for mark in marks} - {self._attempt}
            if len(ends) >= MOST_ENDS:
                self._put_aside(name, marks)
                return False
            if (self._tier.folder / name).exists():
                self._under_way.add(name)
                (self._tier.folder / f"{name}{self._suffix}").touch(mode=0o600)
        return True

    def end(self, name: str) -> None:
        """It is loaded, or was refused: this process lives."""
        if name not in self._under_way:
            return
        self._under_way.discard(name)
        with contextlib.suppress(OSError):
            for mark in self._tier.folder.glob(f"{name}.*{MARK}"):
                if mark.name.endswith(self._suffix) or _attempt_of(mark) != self._attempt:
                    mark.unlink(missing_ok=True)

    def close(self) -> None:
        """The process ends in good order."""
        for name in list(self._under_way):
            self.end(name)

    def is_aside(self, name: str) -> bool:
        """Whether the entry was put aside: it is not kept again, either."""
        return (self._tier.folder / f"{name}{ASIDE}").exists()

    def _put_aside(self, name: str, marks: list[Path]) -> None:
        path = self._tier.folder / name
        path.rename(path.with_name(f"{name}{ASIDE}"))
        for mark in marks:
            mark.unlink(missing_ok=True)
        self._tier.say_once(
            f"the compiled program {path} is put aside, and compiled at every start: {MOST_ENDS} "
            "attempts ended while they loaded it"
        )


def _attempt_of(mark: Path) -> int | str:
    """Which attempt a mark is of."""
    word = mark.name.removesuffix(MARK).rpartition(".")[2].partition("-")[0]
    return int(word) if word.isdecimal() else word


def aside(folder: Path) -> set[str]:
    """The names of the entries that were put aside there."""
    return {path.name.removesuffix(ASIDE) for path in folder.glob(f"*{ASIDE}")}


def clear(folder: Path) -> None:
    """Remove all files beside the programs. Raises OSError."""
    for path in _leftovers(folder):
        path.unlink(missing_ok=True)


def _leftovers(folder: Path) -> Iterator[Path]:
    yield from folder.glob(f"*{MARK}")
    yield from folder.glob(f"*{ASIDE}")
    yield from traced.leftovers(folder)
