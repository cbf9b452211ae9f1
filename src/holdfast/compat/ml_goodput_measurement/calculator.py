"""Asking where a job's time went: the questions of version 0.2.3, to Holdfast's ledger."""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from holdfast.compat.ml_goodput_measurement import clock, exclusion_utils, keys
from holdfast.compat.ml_goodput_measurement.goodput_cache import GoodputCache
from holdfast.compat.ml_goodput_measurement.goodput_utils import (
    BadputType,
    BadputValue,
    GoodputInfo,
    GoodputType,
    IntervalWorkloadMetricDetails,
    StepInfo,
    WorkloadMetricDetails,
    compute_ideal_step_time,
)

if TYPE_CHECKING:
    from holdfast.compat.ml_goodput_measurement.books import Books, JobAnswer
    from holdfast.compat.ml_goodput_measurement.story import JobStory

UnproductiveTimeDict = dict[BadputType, BadputValue]
"""Seconds, or percent of the elapsed time, by badput type."""

logger = logging.getLogger(__name__)


class GoodputCalculator:
    """Answers about a job: of a recorder's run, or of any run in the store, or of a log's entries.

    Percentages are of the time from the job's first start to its end, or to now. From any thread.
    """

    _elastic = False  # whether answers always have the elastic badput types

    def __init__(
        self,
        job_name: str,
        logger_name: str,
        cloud_logger: Any = None,
        using_pathways: bool = False,
        max_logs_retention_period: datetime.timedelta | None = None,
        gcs_path: str | None = None,
        cache_dir: str = "/tmp",  # noqa: S108 - as in the library; nothing is written there
    ) -> None:
        """`cloud_logger` has `read_cloud_logging_entries(...)`; without one the store is asked.

        `max_logs_retention_period`, `gcs_path` and `cache_dir` mean nothing here.
        """
        del max_logs_retention_period
        self.job_name = job_name
        self.using_pathways = using_pathways
        if cloud_logger is None:
            from holdfast.compat.ml_goodput_measurement.local import LocalLog

            cloud_logger = LocalLog.of(job_name, logger_name)
        self._cloud_logger = cloud_logger
        self._is_local = hasattr(cloud_logger, "books")  # it keeps them itself
        self._goodput_cache = GoodputCache(job_name, cache_dir, gcs_path)
        self._own_asking = threading.RLock()
        self._story: JobStory | None = None
        self._number_of_interruptions = 0

    # --- The public questions ----------------------------------------------------------------

    def get_job_goodput(
        self,
        include_badput_breakdown: bool = False,
        configured_ideal_step_time: float | None = None,
    ) -> tuple[float, UnproductiveTimeDict, int]:
        """(goodput in percent, badput in percent by type if asked for, last productive step).

        Raises ValueError when nothing is known of the job.
        """
        with self._asking:
            answer = self._ask()
            self._ideal_step_time = configured_ideal_step_time
            return (
                answer.goodput,
                self._breakdown(answer, include_badput_breakdown),
                (answer.max_productive_step),
            )

    def get_job_goodput_interval(
        self, interval_start: datetime.datetime, interval_end: datetime.datetime
    ) -> tuple[float, UnproductiveTimeDict, int, float, int]:
        """Of a window: (goodput, badput by type, last productive step, seconds, disruptions).

        The window ends where it was said to end, or with the job. Raises ValueError when no time of
        the job is in it.
        """
        with self._asking:
            answer = self._books(interval_end).ask(
                clock.ns_of_moment(interval_end), clock.ns_of_moment(interval_start)
            )
            self._number_of_interruptions = answer.disruptions
            return (
                answer.goodput,
                self._breakdown(answer, True),
                answer.max_productive_step,
                answer.elapsed_s,
                answer.disruptions,
            )

    def get_job_goodput_with_exclusions(
        self,
        exclusion_intervals: list[tuple[datetime.datetime, datetime.datetime]],
        include_badput_breakdown: bool = False,
        configured_ideal_step_time: float | None = None,
    ) -> tuple[float, UnproductiveTimeDict, int, float]:
        """The same as if there had been no such stretches; the last value is their seconds.

        Of a stretch that time is left out which something was recorded of.
        """
        with self._asking:
            without = [
                (clock.ns_of(start), clock.ns_of(end))
                for start, end in exclusion_utils.normalize_intervals(exclusion_intervals)
            ]
            answer = self._ask(without)
            self._ideal_step_time = configured_ideal_step_time
            if answer.elapsed_s <= 0:
                return 0.0, {}, answer.max_productive_step, answer.excluded_s
            breakdown = self._breakdown(answer, include_badput_breakdown)
            return answer.goodput, breakdown, answer.max_productive_step, answer.excluded_s

    def get_step_deviation(
        self, configured_ideal_step_time: float | None = None
    ) -> dict[int, float]:
        """Step → seconds that it was off the ideal, which is computed unless it is given.

        Raises ValueError when there is no step to compute it from.
        """
        found = self._deviations(configured_ideal_step_time)
        self._goodput_cache.update_step_info(found)
        return found.step_deviations

    def get_job_goodput_details(self) -> WorkloadMetricDetails:
        """The last answer of `get_job_goodput` in seconds, with the steps' deviations."""
        return self._details(None)

    def _details(self, most: int | None) -> WorkloadMetricDetails:
        """With the deviations of the last `most` steps: of a million they cost half a second."""
        with self._asking:
            info = self._goodput_cache.get_goodput_info()
            if info is None:
                logger.warning("goodput was not asked for yet: its details are empty")
                return _no_details()
            try:
                found = self._deviations(self._ideal_step_time, most)
                self._goodput_cache.update_step_info(found)
            except ValueError as problem:
                logger.info("no deviations of steps: %s", problem)
            steps = self._goodput_cache.get_step_info()
            return {
                "goodput_time": {GoodputType.TOTAL: info.total_productive_time},
                "badput_time": info.total_unproductive_time,
                "max_productive_step": info.max_productive_step,
                "total_elapsed_time": info.total_elapsed_time,
                "disruption_count": info.number_of_disruptions,
                "step_time_deviation": steps.step_deviations if steps else {},
                "ideal_step_time": steps.ideal_step_time if steps else 0.0,
                "total_excluded_time": info.total_excluded_time,
            }

    def get_interval_metric_details(
        self, interval_start: datetime.datetime, interval_end: datetime.datetime
    ) -> IntervalWorkloadMetricDetails:
        """The same of a window, in percent; empty where nothing is known of it."""
        size = int((interval_end - interval_start).total_seconds())
        try:
            goodput, badput, step, *_ = self.get_job_goodput_interval(interval_start, interval_end)
        except ValueError as problem:
            logger.warning("no details of the window: %s", problem)
            return {
                "interval_goodput": {},
                "interval_badput": {},
                "interval_size": size,
                "max_productive_step": 0,
            }
        return {
            "interval_goodput": {GoodputType.TOTAL: goodput},
            "interval_badput": badput,
            "interval_size": size,
            "max_productive_step": step,
        }

    def sync_to_gcs(self) -> None:
        """Nothing: see `goodput_cache`."""
        self._goodput_cache.sync_to_gcs()

    # --- How they are answered ---------------------------------------------------------------

    _ideal_step_time: float | None = None

    @property
    def _asking(self) -> AbstractContextManager[Any]:
        """Held over a whole question. Of one log all calculators ask the same books."""
        return self._cloud_logger.reading if self._is_local else self._own_asking

    def _books(self, query_time: datetime.datetime | None = None) -> Books:
        """The job's books with everything that is new."""
        if self._is_local:
            return self._stored()
        self._fetch_new_entries(clock.utc_now() if query_time is None else query_time)
        return self._read_story()

    def _now(self) -> datetime.datetime:
        """By the clock of what is recorded."""
        with self._asking:
            now_ns = self._stored().now_ns() if self._is_local else clock.unix_ns()
        return datetime.datetime.fromtimestamp(now_ns / clock.NS_PER_S, datetime.UTC)

    def _stored(self) -> Books:
        books: Books = self._cloud_logger.books()
        return books

    def _read_story(self) -> JobStory:
        if self._story is None:
            from holdfast.compat.ml_goodput_measurement.story import JobStory

            self._story = JobStory(self.job_name)
        return self._story

    def _fetch_new_entries(self, query_time: datetime.datetime) -> Sequence[Mapping[str, Any]]:
        """Ask the log for what came since the last time."""
        with self._asking:
            if self._is_local:
                return []
            last = self._goodput_cache.get_last_entry_info()
            if last is None:
                new, info = self._cloud_logger.read_cloud_logging_entries()
                new = new[len(self._goodput_cache.get_cached_entries()) :]  # all of them, again
            elif last[0] is not None and query_time <= last[0]:
                return []
            else:
                new, info = self._cloud_logger.read_cloud_logging_entries(
                    start_time=last[0], end_time=query_time, last_entry_info=last
                )
            self._goodput_cache.update_cached_entries(new, info)
            story = self._read_story()
            before = set(story.contradictions)
            story.feed(new)
            for attempt in sorted(story.contradictions.keys() - before):
                words = story.contradictions[attempt]
                logger.warning("goodput of job %s: %s", self.job_name, words)
            return list(new)

    def _deviations(
        self, ideal: float | None, most: int | None = None, after: int = -1
    ) -> StepInfo:
        """Of the last `most` steps (None: of all) that come after a step.

        Raises ValueError when there is no step to compute the ideal from.
        """
        with self._asking:
            steps, lengths = self._books().step_times()
        if ideal is None:
            ideal = compute_ideal_step_time(lengths)
        if not len(steps) or not ideal:
            raise ValueError(
                "no completed step of a second or more is recorded: there is no ideal to "
                "deviate from"
            )
        first = int(steps.searchsorted(after, "right"))
        if most is not None:
            first = max(first, len(steps) - most)
        off = abs(lengths[first:] - ideal).tolist()
        return StepInfo(ideal, dict(zip(steps[first:].tolist(), off, strict=True)))

    def _ask(self, without: Sequence[tuple[int, int]] = ()) -> JobAnswer:
        books = self._books()
        answer = books.ask(books.now_ns(), without=without)
        self._number_of_interruptions = answer.disruptions
        self._goodput_cache.update_goodput_info(
            GoodputInfo(
                total_productive_time=answer.productive_s,
                total_elapsed_time=answer.elapsed_s,
                total_unproductive_time=answer.badput_s(elastic=self._elastic),
                max_productive_step=answer.max_productive_step,
                last_recorded_step=answer.max_productive_step,
                last_updated_timestamp=clock.utc_now(),
                number_of_disruptions=answer.disruptions,
                total_excluded_time=answer.excluded_s,
            )
        )
        return answer

    def _breakdown(self, answer: JobAnswer, wanted: bool) -> UnproductiveTimeDict:
        if not wanted:
            return {}
        whole = answer.elapsed_s
        seconds = answer.badput_s(elastic=self._elastic)
        return {
            kind: {name: part / whole * 100 for name, part in value.items()}
            if isinstance(value, dict)
            else value / whole * 100
            for kind, value in seconds.items()
        }

    def _get_current_productive_and_unproductive_time(
        self, interval_query: bool = False
    ) -> tuple[float, UnproductiveTimeDict, int, int]:
        """(productive seconds, unproductive ones by type, last productive step, last step)."""
        del interval_query
        with self._asking:
            books = self._stored() if self._is_local else self._read_story()
            answer = books.ask(books.now_ns())
        last = answer.max_productive_step
        return answer.productive_s, answer.badput_s(elastic=self._elastic), last, last

    def _get_step_times(self, entries: Sequence[Any]) -> dict[int, float]:
        """Seconds between the starts of steps that follow one another, by the first's number."""
        starts = [
            (int(entry[keys.STEP]), float(entry[keys.STEP_START]))
            for entry in entries
            if keys.STEP_START in entry
        ]
        return {step: b - a for (step, a), (after, b) in pairwise(starts) if after == step + 1}


def _no_details() -> WorkloadMetricDetails:
    return {
        "goodput_time": {},
        "badput_time": {},
        "max_productive_step": 0,
        "total_elapsed_time": 0.0,
        "disruption_count": 0,
        "step_time_deviation": {},
        "ideal_step_time": 0.0,
        "total_excluded_time": 0.0,
    }
