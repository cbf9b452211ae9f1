"""The runs of a store as parts of pages: rows, the counts, and what cannot be read.

One look a second reads the runs that are under way; all of them are looked at as often as that is
cheap. Rows are rendered again when what they show has changed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.alerts import LIVE_STATES, URGENCY, Alert, AlertPolicy, alerts
from holdfast.core.ledger.summary import ALL, RunSummary, Window
from holdfast.core.visible import clean
from holdfast.journal.store import RunStore
from holdfast.report.page import environment
from holdfast.report.run_top import STATE_TONES
from holdfast.report.words import MISSING, percent
from holdfast.runs.listing import Listing, RunList
from holdfast.runs.state import STATES
from holdfast.serve.banner import banner, short
from holdfast.serve.shown import PAGE_ROWS, Shown
from holdfast.serve.topic import Parts
from holdfast.serve.vitals import vital_of

ALL_EVERY_S = 1.0  # at least: a run that is new is seen then
SHARE = 0.2  # of one core, for looking at all
PATIENCE_S = 0.25  # for reading, in one look
FRESH_S = 0.25  # for several people who look at different pages of it
WHY_CHARS = 140
PROBLEMS, PROBLEM_CHARS = 20, 400
WHOLE = (Window(ALL, None),)
ALL_NEWEST = Shown()


@dataclass(frozen=True, slots=True)
class RunsPageRow:
    """What a run's row shows."""

    name: str
    state: str
    tone: str
    goodput: str
    step: str
    saved: str
    attempts: str
    seen: str
    why: str
    course: str = ""


class RunsLook:
    """Calling it looks, and gives the parts of one page of the list; from any thread."""

    def __init__(
        self,
        store: RunStore,
        *,
        cache: Path | None,
        scratch: str | None,
        policy: AlertPolicy = AlertPolicy(),  # noqa: B008 - it is frozen
    ) -> None:
        self._policy = policy
        self._alerts: dict[str, tuple[Alert, ...]] = {}
        self._runs = RunList(store, cache=cache, scratch=scratch)
        self._known: dict[str, RunSummary] = {}
        self._problems: tuple[str, ...] = ()
        self._unread: tuple[str, ...] = ()
        self._next_all_s = 0.0
        self._rendered: dict[str, tuple[RunsPageRow, str]] = {}
        self._lock = threading.Lock()
        self._looked_s = -1e9

    def __call__(self, shown: Shown = ALL_NEWEST) -> Parts:
        """The parts of a page of the list; raises StoreUnavailable when it cannot be read."""
        now_ns = time.time_ns()
        with self._lock:
            if time.monotonic() - self._looked_s > FRESH_S:
                self._look(now_ns)
                self._looked_s = time.monotonic()
            return self.parts(now_ns, shown)

    def _look(self, now_ns: int) -> None:
        began_s = time.monotonic()
        if began_s >= self._next_all_s:
            listing = self._runs.look(now_ns, WHOLE, patience_s=PATIENCE_S)
            self._take(listing)
            self._alert(listing, now_ns)
            took_s = time.monotonic() - began_s
            wait_s = 0.0 if self._unread else max(ALL_EVERY_S, took_s / SHARE)
            self._next_all_s = time.monotonic() + wait_s
        elif live := [name for name, run in self._known.items() if run.state in LIVE_STATES]:
            listing = self._runs.look(now_ns, WHOLE, only=live, patience_s=PATIENCE_S)
            self._known |= {run.name: run for run in listing.runs}
            self._alert(listing, now_ns)

    def _take(self, listing: Listing) -> None:
        """All that there is; what had to wait is shown as it was."""
        found = {run.name: run for run in listing.runs}
        for name in listing.unread:
            if name in self._known:
                found[name] = self._known[name]
        self._known = found
        self._alerts = {name: self._alerts.get(name, ()) for name in found}
        self._unread = tuple(name for name in listing.unread if name not in found)
        self._problems = listing.problems

    def _alert(self, listing: Listing, now_ns: int) -> None:
        for run in listing.runs:
            vital = vital_of(run, self._runs.reading(run.name), now_ns)
            self._alerts[run.name], _ = alerts(vital, self._policy)

    def parts(self, now_ns: int, shown: Shown) -> Parts:
        """What a page of the list shows, by the ids of its parts; rows by `row:NAME`."""
        runs = list(self._known.values())
        chosen = shown.chosen(runs)
        shown = shown.on(min(shown.page, max(1, -(-len(chosen) // PAGE_ROWS))))
        first = (shown.page - 1) * PAGE_ROWS
        rows = {run.name: self._row(run, now_ns) for run in chosen[first : first + PAGE_ROWS]}
        self._rendered = {name: one for name, one in self._rendered.items() if name in self._known}
        return {
            "counts": render("counts", counts(runs), len(runs), len(self._unread)),
            "pages": render("pages", shown, first + 1, first + len(rows), len(chosen)),
            "alerts": self._render_alerts(),
            "problems": self._render_problems(),
            "order": json.dumps(list(rows)),
            **{f"row:{name}": text for name, text in rows.items()},
        }

    def _row(self, run: RunSummary, now_ns: int) -> str:
        row = row_of(run, now_ns)
        known = self._rendered.get(run.name)
        if known is None or known[0] != row:
            known = row, render("row", row)
            self._rendered[run.name] = known
        return known[1]

    def _render_alerts(self) -> str:
        """The most urgent first."""
        found = [one for alerts in self._alerts.values() for one in alerts]
        found.sort(key=lambda one: (URGENCY.index(one.kind), one.run))
        return banner(found, linked=True)

    def _render_problems(self) -> str:
        problems = [short(clean(words), PROBLEM_CHARS) for words in self._problems]
        return render("problems", problems[:PROBLEMS], max(0, len(problems) - PROBLEMS))


def render(macro: str, *values: object) -> str:
    """One part as HTML."""
    parts = environment().get_template("runs_parts.html").module
    return str(getattr(parts, macro)(*values)).strip()


def row_of(run: RunSummary, now_ns: int) -> RunsPageRow:
    """A run's row; the texts are clean, and not yet HTML."""
    why = run.why or (" ".join(run.holder.split()) if run.holder else "")
    return RunsPageRow(
        name=clean(run.name),
        state=run.state,
        tone=STATE_TONES.get(run.state, ""),
        goodput=percent(run.spent().goodput),
        step=MISSING if run.step is None else f"{run.step:,}",
        saved=MISSING if run.saved_step is None else f"{run.saved_step:,}",
        attempts=f"{run.attempts:,}",
        seen=ago(run.seen_unix_ns, now_ns),
        why=short(clean(why), WHY_CHARS),
        course=spark(run.course),
    )


def spark(course: Sequence[int]) -> str:
    """Shares in percent as the outline of bars, for a path of 24 × 100."""
    if not course:
        return ""
    width = 24 / len(course)
    steps = (f"V{100 - share}H{(i + 1) * width:g}" for i, share in enumerate(course))
    return f"M0 100{''.join(steps)}V100Z"


def ago(then_unix_ns: int | None, now_ns: int) -> str:
    """How long ago, to a unit that does not change while one looks."""
    if then_unix_ns is None:
        return MISSING
    seconds = max(0, now_ns - then_unix_ns) // 1_000_000_000
    if seconds < 10:
        return "now"
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds // 10 * 10} s ago"


def counts(runs: Sequence[RunSummary]) -> list[tuple[str, str, int]]:
    """How many are in each state there is: the state, its tone, how many."""
    found = {state: sum(run.state == state for run in runs) for state in STATES}
    return [(state, STATE_TONES.get(state, ""), n) for state, n in found.items() if n]
