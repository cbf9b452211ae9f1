"""The whole time line in the vectorised ledger: attempts and gaps in turn, added up.

Built for each question from the attempts' views, which remember their own sums; so it costs a few
operations an attempt, however many steps there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from holdfast.core.ledger.account import Account, Disruption
from holdfast.core.ledger.attempt import BEFORE_ALL, AttemptView
from holdfast.core.ledger.course import MOST, Course, CourseAttempt, pieces_of
from holdfast.core.ledger.facts import AttemptFact, NoticeFact, RunFact
from holdfast.core.ledger.few import Cut, time_of
from holdfast.core.ledger.gaps import Gaps
from holdfast.core.ledger.kinds import RESCHEDULE, STEP, STOPPED, is_disruption
from holdfast.core.ledger.lineage import Part, Stretch, trace
from holdfast.core.ledger.spans import SpanColumns
from holdfast.core.ledger.stretches import OWN_KINDS, Stretches, of_attempt


class Capacity(NamedTuple):
    """From `at_ns` on, so many chips work. `of`: of so many; None: of as many as before."""

    at_ns: int
    chips: int
    of: int | None = None


class _Level(NamedTuple):
    """Between the two, so many chips work, of so many."""

    start_ns: int
    end_ns: int
    chips: int
    of: int


class TimeLine:
    """One run up to `end_ns`.

    `views` are its attempts and `capacity` its changes of capacity, by time; `waits` is settled;
    `kinds` names the kinds that spans and waits have as numbers.
    """

    def __init__(
        self,
        run: RunFact,
        end_ns: int,
        views: Sequence[AttemptView],
        waits: SpanColumns,
        capacity: Sequence[Capacity],
        kinds: Sequence[str],
    ) -> None:
        self._run = run
        self._end_ns = end_ns
        self._views = views
        self._changes = [one.at_ns for one in capacity]
        self._chips = list(_chips(run, capacity))
        self._kinds = kinds
        self._gaps = Gaps(run, end_ns, views, waits, kinds)
        self._parts = [(i, part) for i, view in enumerate(views) for part in view.parts]
        self._kept, self._stretches = trace([part for _, part in self._parts])
        self._kept_until = self._kept_times()

    def account(self, window_ns: int | None = None, *, with_disruptions: bool = True) -> Account:
        """The account, or that of its last `window_ns`; steps count where they end.

        `with_disruptions`: and what each of them cost, and the first start; else it has none.
        """
        from_ns = self._run.requested_ns
        if window_ns is not None:
            from_ns = max(from_ns, self._end_ns - window_ns)
        total = sum(view.total_steps for view in self._views)
        kept_of: dict[int, int] = {}
        for p, until in self._kept.items():
            part = self._parts[p][1]
            count = self._counted(part, 0, until, from_ns)[0]
            kept_of[part.attempt] = kept_of.get(part.attempt, 0) + count
        kept = sum(kept_of.values())
        if from_ns > self._run.requested_ns:
            total -= sum(view.steps.completed_until(from_ns) for view in self._views)
        levels = self._levels(from_ns)
        found = self._walk(from_ns, levels, with_disruptions=with_disruptions)
        return Account(
            name=self._run.name,
            start_ns=from_ns,
            end_ns=self._end_ns,
            chips=self._chips_at(self._end_ns),
            kinds=found.kinds,
            steps_kept=kept,
            lost_steps=total - kept,
            disruptions=found.disruptions,
            paid=sum((level.end_ns - level.start_ns) * level.of for level in levels),
            first_start_ns=found.first_start_ns,
            kept_of={attempt: count for attempt, count in kept_of.items() if count},
            kept_ns=found.kept_ns,
        )

    def last_kept_step(self) -> int:
        """The newest step of the kept chain: of its last part, else that part's resume step."""
        if not self._parts:
            return 0
        part = self._parts[-1][1]
        if part.low < part.high:
            return part.steps.last[part.high - 1]
        return part.restore.step if part.restore is not None else (part.first_step or 1) - 1

    def kept_shares(self, parts: int) -> tuple[int, ...]:
        """How much of each of so many equal parts of it was kept steps, in percent."""
        start_ns, whole_ns = self._run.requested_ns, self._end_ns - self._run.requested_ns
        if whole_ns < parts:
            return ()
        edges = [start_ns + whole_ns * n // parts for n in range(parts + 1)]
        kept = [0] * parts
        for view, gap, kept_until in zip(
            self._views, self._gaps.in_order, self._kept_until, strict=False
        ):
            low, high = max(gap.start_ns, view.start_ns), min(self._end_ns, view.stop_ns)
            first, last = bisect_right(edges, low) - 1, bisect_left(edges, high)
            for n in range(first, last):
                a, b = max(low, edges[n]), min(high, edges[n + 1])
                kept[n] += view.kept_between(a, b, kept_until)
        lengths = (b - a for a, b in pairwise(edges))
        return tuple(round(100 * ns / length) for ns, length in zip(kept, lengths, strict=True))

    def kept_by_attempt(self) -> dict[int, int]:
        """The last step that was kept of each attempt that has any; all, where none was lost."""
        found: dict[int, int] = {}
        for p, until in self._kept.items():
            attempt = self._parts[p][1].attempt
            found[attempt] = max(found.get(attempt, 0), until)
        return found

    def course(self, notices: Sequence[NoticeFact], most: int = MOST) -> Course:
        """The whole of it in at most so many pieces (a few more where attempts are more)."""
        names = [*OWN_KINDS, *self._kinds]
        in_order = list(self._in_order(names))
        owners = np.repeat(
            [owner for _, owner in in_order], [len(one.start) for one, _ in in_order]
        )
        columns = zip(*(one for one, _ in in_order), strict=True)
        found = Stretches(*map(np.concatenate, columns))
        del in_order  # a second copy of what may be much
        once = list(dict.fromkeys(names))  # a span may be of a kind that there is without spans too
        found = found._replace(kind=np.array([once.index(name) for name in names])[found.kind])
        return Course(
            start_ns=self._run.requested_ns,
            end_ns=self._end_ns,
            pieces=pieces_of(found, owners, once, most),
            launches=tuple(map(_launch, self._views)),
            notices=tuple(notices),
            is_over=self._run.ended_ns is not None,
        )

    def _in_order(self, names: list[str]) -> Iterator[tuple[Stretches, int]]:
        """Gaps and attempts in turn, each with its attempt's number (-1: none).

        Kinds are places in `names`, which grows by those of gaps.
        """
        for i, gap in enumerate(self._gaps.in_order):
            yield self._gaps.stretches(gap, names), -1
            if i < len(self._views):
                view = self._views[i]
                until_ns = min(self._gaps.in_order[i + 1].start_ns, self._end_ns)
                found = of_attempt(view, self._kept_until[i], gap.start_ns, until_ns)
                yield found._replace(kind=found.kind + len(OWN_KINDS)), view.fact.attempt

    # --- Time by kind ----------------------------------------------------------------------------

    def _levels(self, from_ns: int) -> list[_Level]:
        """The stretches in which as many chips work, of as many."""
        changes = [at_ns for at_ns in self._changes if from_ns < at_ns < self._end_ns]
        bounds = [(a, b) for a, b in pairwise([from_ns, *changes, self._end_ns]) if a < b]
        return [_Level(a, b, *self._chips[bisect_right(self._changes, a)]) for a, b in bounds]

    def _chips_at(self, at_ns: int) -> int:
        """How many the run has then."""
        return self._chips[bisect_right(self._changes, at_ns)][1]

    def _attempt_time(self, i: int, cuts: list[Cut] | None, a: int, b: int) -> dict[str, int]:
        """Wall nanoseconds by kind that attempt `i` had between two moments of the time line.

        `cuts`: as of `AttemptView.cuts`.
        """
        view, kept_until = self._views[i], self._kept_until[i]
        a = max(a, view.start_ns, self._gaps.in_order[i].start_ns)
        b = min(b, view.stop_ns, self._end_ns)
        if a >= b:  # the run had ended by then, or another attempt had this time
            return {}
        if cuts is not None:
            return time_of(cuts, a, b, kept_until)
        named: dict[str, int] = {}
        for kind, ns in view.time_between(a, b, kept_until).items():
            name = kind if isinstance(kind, str) else self._kinds[kind]
            named[name] = named.get(name, 0) + ns
        return named

    # --- What was kept, and what disruptions cost ------------------------------------------------

    def _kept_times(self) -> list[tuple[int, ...]]:
        """For each attempt, for each of its parts, when its last kept step ended."""
        times: list[list[int]] = [[] for _ in self._views]
        for p, (i, part) in enumerate(self._parts):
            until_ns = BEFORE_ALL
            if p in self._kept and part.low < part.high:
                _, until_ns = part.steps.place(part.low, part.high, self._kept[p])
            times[i].append(until_ns)
        return [tuple(row) for row in times]

    def _counted(self, part: Part, above: int, until: int, from_ns: int) -> tuple[int, int, int]:
        """How many steps of a part are above one number and up to another, and end in time.

        And when the last step below them ends, and the last of them.
        """
        if part.low == part.high:
            return 0, 0, 0
        low, low_ns = part.steps.place(part.low, part.high, above)
        high, high_ns = part.steps.place(part.low, part.high, until)
        if from_ns > self._run.requested_ns:
            low = max(low, part.steps.completed_until(from_ns))
        return max(0, high - low), low_ns, high_ns

    def _lost_by_disruption(self, from_ns: int) -> dict[int, tuple[int, int]]:
        """Position of a disrupted attempt → (steps that it cost, their own wall time)."""
        lost: dict[int, tuple[int, int]] = {}
        for stretch in self._stretches:
            blamed = self._blamed(stretch)
            i, part = self._parts[stretch.part]
            if blamed is None or part.low == part.high:
                continue
            count, low_ns, high_ns = self._counted(part, stretch.above, stretch.until, from_ns)
            own = self._views[i].own_between(max(low_ns, from_ns), min(high_ns, self._end_ns))
            steps, ns = lost.get(blamed, (0, 0))
            lost[blamed] = (steps + count, ns + own)
        return lost

    def _blamed(self, stretch: Stretch) -> int | None:
        """The disruption right before the attempt with which a stretch left, by its position."""
        i, part = self._parts[stretch.left_with]
        if not part.opens_attempt or i == 0:
            return None
        before = self._views[i - 1].fact
        return i - 1 if is_disruption(before.end_ns, before.cause) else None

    def _walk(self, from_ns: int, levels: Sequence[_Level], *, with_disruptions: bool) -> _Walked:
        """Chip-nanoseconds by kind (rules 5 and 6), what each disruption cost, and the first start.

        A disruption lasts up to the end of the first step that a later attempt completed. All in
        one walk, since to cut an attempt into its stretches takes longer than to add them up; and
        backwards, so that a crash loop of n attempts costs n sums and not n².
        """
        lost = self._lost_by_disruption(from_ns) if with_disruptions else {}
        kinds, kept_ns = _without_work(levels), 0
        found: list[Disruption] = []
        resumed: _Resumed | None = None
        time: dict[str, int] = {}  # from the end of the attempt to there
        for i in range(len(self._views) - 1, -1, -1):
            view, gap = self._views[i], self._gaps.in_order[i + 1]
            between = self._gaps.time(gap, gap.start_ns, gap.end_ns)
            for level in _overlapping(levels, gap.start_ns, gap.end_ns):
                is_whole = level.start_ns <= gap.start_ns and gap.end_ns <= level.end_ns
                part = between if is_whole else self._gaps.time(gap, level.start_ns, level.end_ns)
                _add_gap(kinds, part, level)
            cuts = view.cuts(self._kinds)
            for level in _overlapping(levels, view.start_ns, view.stop_ns):
                during = self._attempt_time(i, cuts, level.start_ns, level.end_ns)
                _add(kinds, during, level.chips)
                kept_ns += during.get(STEP, 0)
            if not with_disruptions:
                continue
            _add(time, between)
            if self._is_disrupted(view.fact, from_ns):
                waterfall = self._attempt_time(i, cuts, view.left_ns, view.stop_ns)
                _add(waterfall, time)
                chips = self._chips_at(view.stop_ns)
                found.append(_disruption(view, lost.get(i, (0, 0)), resumed, waterfall, chips))
            first = view.first_step_ns()
            if first is not None:
                resumed = _Resumed(first[1], view.own_between(*first))
                time = self._attempt_time(i, cuts, view.start_ns, first[1])
            else:
                _add(time, self._attempt_time(i, cuts, view.start_ns, view.stop_ns))
        for level in levels:
            part = self._gaps.time(self._gaps.in_order[0], level.start_ns, level.end_ns)
            _add_gap(kinds, part, level)
        kinds = {kind: ns for kind, ns in kinds.items() if ns or kind == STEP}
        begins_here = with_disruptions and from_ns <= self._run.requested_ns
        first_start = {kind: ns for kind, ns in time.items() if ns} if begins_here else {}
        return _Walked(kinds, kept_ns, tuple(found[::-1]), first_start)

    def _is_disrupted(self, fact: AttemptFact, from_ns: int) -> bool:
        if fact.end_ns is None or not is_disruption(fact.end_ns, fact.cause):
            return False
        return from_ns <= self._run.requested_ns or fact.end_ns > from_ns


def _launch(view: AttemptView) -> CourseAttempt:
    steps, fact = view.steps, view.fact
    return CourseAttempt(
        attempt=fact.attempt,
        start_ns=view.start_ns,
        end_ns=fact.end_ns,
        cause=fact.cause,
        first_step=steps.first[0] if len(steps) else 0,
        last_step=steps.last[len(steps) - 1] if len(steps) else 0,
        resume_step=view.parts[0].restore.step if view.parts and view.parts[0].restore else 0,
    )


class _Walked(NamedTuple):
    """What a walk adds up: see `Account`."""

    kinds: dict[str, int]
    kept_ns: int
    disruptions: tuple[Disruption, ...]
    first_start_ns: dict[str, int]


class _Resumed(NamedTuple):
    """The first step that a later attempt completed: its end and own time."""

    end_ns: int
    own_ns: int


def _disruption(
    view: AttemptView,
    lost: tuple[int, int],
    resumed: _Resumed | None,
    waterfall: dict[str, int],
    chips: int,
) -> Disruption:
    fact = view.fact
    downtime_ns = None
    if resumed is not None:
        downtime_ns = max(0, resumed.end_ns - view.left_ns - resumed.own_ns)
    return Disruption(
        attempt=fact.attempt,
        cause=fact.cause or "",
        lost_steps=lost[0],
        lost_ns=lost[1],
        downtime_ns=downtime_ns,
        at_ns=view.stop_ns,
        resumed_ns=resumed.end_ns if resumed is not None else None,
        waterfall_ns={kind: ns for kind, ns in waterfall.items() if ns},
        chips=chips,
    )


def _chips(run: RunFact, changes: Sequence[Capacity]) -> Iterator[tuple[int, int]]:
    """How many chips work, of how many: before any change, then after each.

    What a run has is first told when it has its hosts: it waited for as many.
    """
    of = next((one.of for one in changes if one.of is not None), run.chips)
    yield of, of
    for one in changes:
        of = of if one.of is None else one.of
        yield min(one.chips, of), of


def _without_work(levels: Iterable[_Level]) -> dict[str, int]:
    """Chip-nanoseconds of those of the run's chips that do not work."""
    idle = sum((one.end_ns - one.start_ns) * (one.of - one.chips) for one in levels)
    return {STEP: 0, RESCHEDULE: idle}


def _overlapping(levels: Sequence[_Level], start_ns: int, end_ns: int) -> Iterator[_Level]:
    """Those that share some time with what lies between the two."""
    at = bisect_right(levels, start_ns, key=itemgetter(1)) if len(levels) > 1 else 0
    while at < len(levels) and levels[at].start_ns < end_ns:
        yield levels[at]
        at += 1


def _add(totals: dict[str, int], more: Mapping[str, int], times: int = 1) -> None:
    for kind, ns in more.items():
        totals[kind] = totals.get(kind, 0) + ns * times


def _add_gap(kinds: dict[str, int], part: Mapping[str, int], level: _Level) -> None:
    """Count time between attempts; STOPPED are all chips, also those that did not work before."""
    _add(kinds, part, level.chips)
    if STOPPED in part and level.chips < level.of:
        missing = part[STOPPED] * (level.of - level.chips)
        _add(kinds, {STOPPED: missing, RESCHEDULE: -missing})
