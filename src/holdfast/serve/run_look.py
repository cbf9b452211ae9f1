"""One run as parts of its page: the sections and the time line that `holdfast report --html` has.

Kept open, so that a look costs what the run has written since the last one. What takes long to draw
is drawn less often, as long as the run only goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from holdfast.errors import JournalError
from holdfast.journal.live import live_journals
from holdfast.journal.recorded import Recorded
from holdfast.journal.store import RunFolder, RunStore
from holdfast.report.overview import Overview
from holdfast.report.page import environment
from holdfast.report.run_data import course_data
from holdfast.report.run_page import CHARTS, sections, timeline_of
from holdfast.report.words import clean
from holdfast.runs.cache import signature
from holdfast.serve.topic import Parts

CHARTS_EVERY_S = 10.0
SETTLED_S = 60.0  # what is written through a map shows in a file's times only after a while
COURSE_BYTES_PER_S = 128 << 10  # a time line of many pieces is sent less often
COURSE = "course"
WAITING = "waiting"  # the part that a run has instead of all others while nothing is recorded

Saves = tuple[tuple[int, int], ...]
See = Callable[[RunFolder, Recorded], tuple[Overview, Saves]]
"""What a page shows of a run whose journals were just read, and when sets were complete."""


@dataclass(slots=True)
class _Opened:
    folder: RunFolder
    recorded: Recorded


class RunLook:
    """Of one thread at a time. Calling it looks, and gives the parts."""

    def __init__(self, store: RunStore, name: str, see: See) -> None:
        """`name` is one of the store's; nothing is opened yet."""
        self.name = name
        self._store = store
        self._see = see
        self._opened: _Opened | None = None
        self._signature, self._changed_s = "", 0.0
        self._parts: Parts = {}
        self._charts: dict[str, str] = {}
        self._charted: tuple[object, ...] = ()
        self._charts_after_s = self._course_after_s = 0.0
        self._course = ""
        self._saves: Saves = ()
        self.view: Overview | None = None
        self.timeline: object = None

    def __call__(self) -> Parts:
        """Raises UnknownRun when it was deleted, HoldfastError when it cannot be read."""
        try:
            is_new = self.read()
        except JournalError as error:
            self._parts = {WAITING: escape(clean(str(error)))}
            return self._parts
        if is_new and self.view is not None:
            self._parts = self._rendered(self.view, self._saves)
        return self._parts

    def read(self) -> bool:
        """Read what is new into `view`; whether it may look different now.

        Raises JournalError while nothing is recorded, and HoldfastError as calling it does.
        """
        folder = self._store.get(self.name)
        seen = signature(folder.path)
        opened = self._opened
        if opened is None or opened.folder.identity != folder.identity:
            opened = self._opened = _Opened(folder, Recorded(folder.path))
            self.view = None
            self._charted = ()
            self._charts_after_s = self._course_after_s = 0.0
        live = live_journals(folder)
        if seen != self._signature:
            self._signature, self._changed_s = seen, time.monotonic()
        is_settled = time.monotonic() - self._changed_s > SETTLED_S
        if self.view is not None and is_settled and not live and not self._moves():
            return False
        opened.recorded.facts.live.update(live)
        opened.recorded.refresh()
        self.view, self._saves = self._see(folder, opened.recorded)
        return True

    def _moves(self) -> bool:
        """Whether what is shown changes by the clock alone."""
        return self.view is not None and self.view.is_live

    def _rendered(self, view: Overview, saves: Saves) -> Parts:
        now_s = time.monotonic()
        # What is not going on as it was is drawn at once.
        state = (view.state, len(view.incidents), len(view.course.launches), view.is_live)
        if state != self._charted or now_s >= self._charts_after_s:
            self._charted = state
            found = sections(view)
            self._charts = {name: found[name] for name in CHARTS} | self._drawn(view)
            took_s = time.monotonic() - now_s
            self._charts_after_s = time.monotonic() + max(CHARTS_EVERY_S, 10 * took_s)
            self._course_after_s = 0.0
        else:
            found = sections(view, without=CHARTS)
        if now_s >= self._course_after_s:
            self._course = json.dumps(course_data(view, saves), separators=(",", ":"))
            self._course_after_s = now_s + len(self._course) / COURSE_BYTES_PER_S
        return {**found, **self._charts, COURSE: self._course}

    def _drawn(self, view: Overview) -> dict[str, str]:
        """The time line's words and numbers; its drawing is for pages that load."""
        self.timeline = drawn = timeline_of(view)
        pieces = environment().get_template("pieces.html").module
        numbers = drawn["numbers"]
        return {
            "timeline-words": escape(drawn["words"]),
            "timeline-numbers": str(pieces.table(numbers.heads, numbers.rows)),  # type: ignore[attr-defined]
        }
