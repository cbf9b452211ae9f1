"""One run as parts of its page: the sections and the time line that `holdfast report --html` has.

Kept open, so that a look costs what the run has written since the last one. What takes long to draw
is drawn less often, as long as the run only goes on.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from html import escape
from typing import NamedTuple

from holdfast.core.alerts import AlertPolicy, alerts
from holdfast.core.durations import SECOND_NS
from holdfast.core.visible import clean
from holdfast.errors import JournalError
from holdfast.journal.live import live_journals
from holdfast.journal.recorded import RecordedLedger
from holdfast.journal.store import RunFolder, RunStore
from holdfast.report.overview import Overview
from holdfast.report.page import environment
from holdfast.report.run_data import course_data
from holdfast.report.run_page import CHARTS, sections, timeline_of
from holdfast.runs.cache import outside
from holdfast.runs.reading import RunReading
from holdfast.serve.banner import banner
from holdfast.serve.topic import Parts
from holdfast.serve.vitals import vital_of

CHARTS_EVERY_S = 10.0
CHARTS_SHARE = 20  # of a young run they are no more behind than this part of its time
ALERTS_EVERY_S = 1.0  # their times are whole seconds
SETTLED_S = 60.0  # what is written through a map shows in a file's times only after a while
COURSE_BYTES_PER_S = 128 << 10  # a time line of many pieces is sent less often
CHECK_FIRST_S, CHECK_SHARE = 60.0, 100  # a check may take a hundredth of the time
COURSE, ALERTS = "course", "alerts"
WAITING = "waiting"  # the part that a run has instead of all others while nothing is recorded

_log = logging.getLogger(__name__)

Saves = tuple[tuple[int, int], ...]


class SeenRun(NamedTuple):
    """What a page shows of a run whose journals were just read, and when sets were complete.

    `is_final` False: more will be known with no file's changing.
    """

    view: Overview
    saves: Saves
    is_final: bool = True


See = Callable[[RunFolder, RecordedLedger], SeenRun]
"""Raises JournalError while nothing is recorded, HoldfastError when it cannot be read."""


def charts_pause_s(elapsed_s: float) -> float:
    """How long charts may stay while numbers beside them go on: they are to agree."""
    return min(CHARTS_EVERY_S, elapsed_s / CHARTS_SHARE)


class RunLook:
    """Of one thread at a time. Calling it looks, and gives the parts."""

    def __init__(
        self,
        store: RunStore,
        name: str,
        see: See,
        policy: AlertPolicy = AlertPolicy(),  # noqa: B008 - it is frozen
    ) -> None:
        """`name` is one of the store's; nothing is opened yet."""
        self.name = name
        self._store = store
        self._see = see
        self._policy = policy
        self._reading: RunReading | None = None
        self._seen: SeenRun | None = None
        self._signature, self._changed_s = "", 0.0
        self._is_settled = False
        self._check_after_s, self._has_differed = time.monotonic() + CHECK_FIRST_S, False
        self._parts: Parts = {}
        self._alerts, self._alerts_after_s = "", 0.0
        self._charts: dict[str, str] = {}
        self._charted: tuple[object, ...] = ()
        self._charts_after_s = self._course_after_s = 0.0
        self._course = ""
        self.timeline: object = None

    @property
    def view(self) -> Overview | None:
        """What was read last; None: nothing yet."""
        return None if self._seen is None else self._seen.view

    def __call__(self) -> Parts:
        """Raises UnknownRun when it was deleted, HoldfastError when it cannot be read."""
        try:
            is_new = self.read()
        except JournalError as error:
            self._parts = {WAITING: escape(clean(str(error)))}
            return self._parts
        if self._seen is not None:
            if is_new:
                self._parts = self._rendered(self._seen.view, self._seen.saves)
            self._parts = {**self._parts, ALERTS: self._render_alerts(is_new)}
        return self._parts

    def read(self) -> bool:
        """Read what is new into `view`; whether it may look different now.

        Raises JournalError while nothing is recorded, and HoldfastError as calling it does.
        """
        folder = self._store.get(self.name)
        seen = outside(folder.path).signature
        if self._reading is None or self._reading.folder.identity != folder.identity:
            self._begin(folder)
        live = live_journals(folder)
        if seen != self._signature:
            self._signature, self._changed_s = seen, time.monotonic()
        was_settled, self._is_settled = (
            self._is_settled,
            time.monotonic() - self._changed_s > SETTLED_S,
        )
        # Once more after that: what an age decides is decided by then.
        rests = was_settled and self._is_settled and not live and not self._moves()
        if self._seen is not None and rests:
            return False
        assert self._reading is not None  # noqa: S101 - it was begun
        recorded = self._reading.recorded
        recorded.facts.live.update(live)
        if time.monotonic() < self._check_after_s:
            recorded.refresh()
        else:
            self._check(recorded)
        self._seen = self._see(folder, recorded)
        return True

    def _check(self, recorded: RecordedLedger) -> None:
        """Now and then everything is read anew: what follows a run for days says the same still."""
        began_s = time.monotonic()
        if not recorded.check() and not self._has_differed:
            self._has_differed = True
            _log.warning(
                "run %s: what was followed so far differed from a new reading of its journals, "
                "which counts from now on; this is a mistake in Holdfast: please report it",
                self.name,
            )
        now_s = time.monotonic()
        self._check_after_s = now_s + max(CHECK_FIRST_S, CHECK_SHARE * (now_s - began_s))

    def _begin(self, folder: RunFolder) -> None:
        self._reading = RunReading(folder)
        self._seen = None
        self._charted = ()
        self._charts_after_s = self._course_after_s = self._alerts_after_s = 0.0

    def _moves(self) -> bool:
        """Whether what is shown changes though no file does."""
        return self._seen is not None and (self._seen.view.is_live or not self._seen.is_final)

    def _render_alerts(self, is_new: bool) -> str:
        """The banner; of a run that is over it goes on by the clock, until that is no news."""
        now_s = time.monotonic()
        if self._reading is not None and now_s >= self._alerts_after_s and (is_new or self._alerts):
            self._alerts_after_s = now_s + ALERTS_EVERY_S
            now_ns = time.time_ns()
            summary = self._reading.summary((), now_ns, live=False)  # those were read just now
            found, _ = alerts(vital_of(summary, self._reading, now_ns), self._policy)
            self._alerts = banner(found, linked=False)
        return self._alerts

    def _rendered(self, view: Overview, saves: Saves) -> Parts:
        now_s = time.monotonic()
        # What is not going on as it was is drawn at once.
        state = (view.state, len(view.incidents), len(view.course.launches), view.is_live)
        is_first = not self._charted
        if state != self._charted or now_s >= self._charts_after_s:
            self._charted = state
            found = sections(view)
            self._charts = {name: found[name] for name in CHARTS} | self._drawn(view)
            took_s = 0.0 if is_first else time.monotonic() - now_s  # the first loads what draws
            pause_s = max(charts_pause_s(view.account.elapsed_ns / SECOND_NS), 10 * took_s)
            self._charts_after_s = time.monotonic() + pause_s
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
