"""What alerts go by, of a run that was just summed up."""

from __future__ import annotations

from holdfast.core.alerts import LIVE_STATES, Vital
from holdfast.core.durations import SECOND_NS
from holdfast.core.ledger.summary import RunSummary
from holdfast.errors import HoldfastError
from holdfast.export.sample import Sample, sample_of
from holdfast.journal.attempts import crash_loop
from holdfast.report.words import cause_in_words
from holdfast.runs.reading import RunReading


def vital_of(run: RunSummary, reading: RunReading | None, now_ns: int) -> Vital:
    """`reading`: what its journals said; None: nobody writes them. `now_ns`: unix time."""
    seen_age_ns = None if run.seen_unix_ns is None else max(0, now_ns - run.seen_unix_ns)
    if reading is None or run.state not in LIVE_STATES:
        return Vital(run.name, run.state, run.why, seen_age_ns=seen_age_ns)
    sample = sample_of(run, reading, now_ns)
    loops, cause = _loops(reading)
    age_ns = _save_age_ns(run, sample, reading)
    end = crash_loop(reading.known)
    return Vital(
        name=run.name,
        state=run.state,
        why=run.why,
        since_step_ns=_ns(sample.since_step_s),
        is_suspected=sample.hang_suspected,
        loops=loops,
        last_cause=cause,
        alike=end.alike if end else 0,
        alike_words=end.words if end else "",
        alike_age_ns=max(0, now_ns - end.ended_unix_ns) if end else 0,
        save_age_ns=age_ns,
        has_saved=bool(sample.tiers) or run.saved_step is not None,
        announced=tuple(
            (one.words, None if one.deadline_ns is None else one.deadline_ns - reading.now_ns)
            for one in reading.recorded.facts.controllers.announced
        ),
        seen_age_ns=seen_age_ns,
    )


def _loops(reading: RunReading) -> tuple[int, str]:
    """How many attempts in a row, up to now, ended with no step; and the last one's cause."""
    try:
        disruptions = reading.recorded.account(reading.now_ns).disruptions
    except HoldfastError:
        return 0, ""
    count = 0
    for one in reversed(disruptions):
        if one.resumed_ns is not None:
            break
        count += 1
    # The first of them had come further than the one before: only what followed got nowhere.
    return max(0, count - 1), cause_in_words(disruptions[-1].cause) if count > 1 else ""


def _save_age_ns(run: RunSummary, sample: Sample, reading: RunReading) -> int | None:
    ages = [tier.age_s for tier in sample.tiers.values()]
    if ages:
        return _ns(min(ages))
    if run.saved_step is not None or run.start_ns is None:
        return None  # there is one, and nobody says since when
    return max(0, reading.now_ns - run.start_ns)


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND_NS)
