"""The script's own numbers (`run.done(metrics=…)`): taken in the loop, fetched in a thread.

The loop only keeps the values. The watcher's thread fetches them, some from a device, and writes a
line. What cannot be kept costs the number and a sentence, never the training.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Word
from holdfast.journal.metric_lines import MOST_NAMES, is_name
from holdfast.journal.writer import JournalWriter
from holdfast.session.say import say

# Of each name: so many values of an attempt are all kept, and later at most one in so long. That is
# 300 kB a day.
KEPT_VALUES = 4_096
KEPT_EVERY_NS = 10_000_000_000
MOST_WAITING = 1_024  # steps whose values are still to be fetched; the oldest are given up
MOST_SENTENCES = 8


class Metrics:
    """The numbers of one rank's steps, until they are written down."""

    def __init__(self, writer: JournalWriter) -> None:
        self._writer = writer
        self._waiting: deque[tuple[int, dict[Any, Any]]] = deque(maxlen=MOST_WAITING)
        self._kept: dict[str, tuple[int, int]] = {}  # how many values of a name, and the last when
        self._refused: set[str] = set()

    def offer(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Keep the values for the thread; the mapping may be used again. Never raises."""
        try:
            if len(metrics) <= MOST_NAMES:
                self._waiting.append((step, dict(metrics)))
                return
            why = f"it holds {len(metrics)} names, and {MOST_NAMES} are kept"
        except Exception as error:
            why = f"give a dict of names and numbers ({type(error).__name__}: {error})"
        self._refuse("metrics", step, why)

    def write(self) -> None:
        """Fetch what is waiting, and write it down. Of one thread."""
        while self._waiting:
            step, metrics = self._waiting.popleft()
            at_ns = now_ns()
            values = {}
            for name, given in metrics.items():
                value = self._value(step, name, given, at_ns)
                if value is not None:
                    values[name] = value
            if values:
                self._writer.record_metrics(step, values, at_ns)

    def _value(self, step: int, name: Any, given: Any, at_ns: int) -> float | None:
        """The number; None: it is not kept."""
        count, kept_ns = self._kept.get(name, (0, 0)) if is_name(name) else (0, 0)
        if count >= KEPT_VALUES and at_ns - kept_ns < KEPT_EVERY_NS:
            return None
        try:
            if not is_name(name):
                raise ValueError("a name is text of up to 80 printable characters")
            if not count and len(self._kept) >= MOST_NAMES:
                raise ValueError(f"{MOST_NAMES} other names are kept already")
            value = self._fetched(step, given)
        except Exception as error:
            self._refuse(f"metric {str(name)[:80]!r}", step, str(error) or type(error).__name__)
            return None
        self._kept[name] = count + 1, at_ns
        return value

    def _fetched(self, step: int, given: Any) -> float:
        """A number of Python's, or a scalar of a framework's, which may be still to come."""
        if type(given) is float or type(given) is int:
            return float(given)
        if isinstance(given, str | bytes) or math.prod(getattr(given, "shape", ())) != 1:
            raise ValueError(f"{type(given).__name__} is not one number")
        page = self._writer.page
        page.store(Word.AWAITED, step)  # a device that hangs shows here too
        page.store(Word.AWAITED_AT, now_ns())
        try:
            item = getattr(given, "item", None)
            return float(given if item is None else item())
        finally:
            page.store(Word.AWAITED_AT, 0)

    def _refuse(self, what: str, step: int, why: str) -> None:
        if what not in self._refused and len(self._refused) < MOST_SENTENCES:
            self._refused.add(what)
            say(f"{what} of step {step} cannot be kept: {why}; training goes on")
