"""Answers that take long, worked out beside the looks: seldom, one at a time, and kept.

A look asks for what there is and goes on; a later look finds the newer answer. The first one only
asks: a page that opens has the processor to itself.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")

EVERY_S = 60.0  # at least, between two answers to one question
SHARE = 0.05  # of one core, for each question
MOST = 64  # answers that are kept


@dataclass(slots=True)
class _Answer(Generic[T]):
    about: Hashable = None
    value: T | None = None
    working: Future[T] | None = None
    asked_about: Hashable = None
    began_s: float = 0.0
    not_before_s: float = -1e9


class Beside(Generic[S, T]):
    """Belongs to whoever calls `get`; calls may come from several threads, of one key from one."""

    def __init__(self, executor: Executor, clock: Callable[[], float] = time.monotonic) -> None:
        """`executor` works things out: with one thread, one at a time."""
        self._executor = executor
        self._clock = clock
        self._known: OrderedDict[Hashable, _Answer[T]] = OrderedDict()

    def get(
        self, key: Hashable, about: Hashable, take: Callable[[], S], work_out: Callable[[S], T]
    ) -> tuple[T | None, bool]:
        """The newest answer, None while there is none; and whether it is about just that.

        `about`: what the answer depends on. When that has changed, it is worked out again, later,
        from what `take` gives right now. Raises what `work_out` has raised, once for each time.
        """
        is_first = key not in self._known
        answer = self._known.setdefault(key, _Answer())
        self._known.move_to_end(key)
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        now_s = self._clock()
        if answer.working is not None and answer.working.done():
            self._take(answer, answer.working, now_s)
        is_new = answer.about != about
        if is_new and not is_first and answer.working is None and now_s >= answer.not_before_s:
            answer.asked_about, answer.began_s = about, now_s
            answer.working = self._executor.submit(work_out, take())
        return answer.value, not is_new

    def _take(self, answer: _Answer[T], done: Future[T], now_s: float) -> None:
        took_s = now_s - answer.began_s
        answer.working, answer.about = None, answer.asked_about
        answer.not_before_s = now_s + max(EVERY_S, took_s / SHARE)
        answer.value = done.result()
