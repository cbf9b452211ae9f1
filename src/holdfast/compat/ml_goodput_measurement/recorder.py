"""Recording where a job's time goes: the calls of version 0.2.3, as entries of a log."""

from __future__ import annotations

import datetime
import logging
from typing import TYPE_CHECKING, Any

from holdfast.compat.ml_goodput_measurement import clock, keys

if TYPE_CHECKING:
    from holdfast.compat.ml_goodput_measurement.local import LocalLog

_Moment = datetime.datetime | None

logger = logging.getLogger(__name__)


class GoodputRecorder:
    """Records what happens in a job. Nothing here raises, and a record costs microseconds.

    The first of an attempt makes its journal.

    The job is a run of the same name in the configured store (`HOLDFAST_STORE`), a process of it an
    attempt. Other than the job's start and end, everything is optional.
    """

    def __init__(
        self,
        job_name: str,
        logger_name: str,
        logging_enabled: bool = False,
        cloud_logger: Any = None,
        *,
        background_grace_period_s: float = 5.0,
        background_batch_size: int = 100,
        background_max_latency_s: float = 2.0,
    ) -> None:
        """Of several processes one should record: `logging_enabled` says whether it is this one.

        `cloud_logger` is any object with `write_cloud_logging_entry(dict)`, which then gets the
        entries, and nothing is written to the store. The last three are the library's, for a
        sending thread that is not needed here.
        """
        del background_grace_period_s, background_batch_size, background_max_latency_s
        self.job_name = job_name
        self._cloud_logger: Any = None
        self._local: LocalLog | None = None
        self._has_trouble = False
        if not logging_enabled:
            return
        if cloud_logger is None:
            # Not before somebody records: a script imports this in every process.
            from holdfast.compat.ml_goodput_measurement.local import LocalLog

            cloud_logger = self._local = LocalLog.of(job_name, logger_name)
        self._cloud_logger = cloud_logger

    def flush(self) -> None:
        """Wait until everything recorded is where it can be read: in the local store, at once."""
        flush = getattr(self._cloud_logger, "flush", None)
        if flush is not None:
            flush()

    def record_step_start_time(self, step: int, start_time: _Moment = None) -> None:
        """A step begins now, or began at `start_time`; the one before it is done."""
        if self._local is None or start_time is not None:
            self._record(start_time, {keys.STEP: step}, keys.STEP_START)
            return
        try:
            self._local.record_step(step)
        except Exception as problem:
            self._pass_over(problem)

    def record_checkpoint_progress(self, step: int, checkpoint_start_time: _Moment) -> None:
        """Nothing, as in the library: what was kept follows from where the job resumed."""

    def record_job_start_time(self, start_time: _Moment = None) -> None:
        """The job was started, or started again: an attempt begins."""
        self._record(start_time, {}, keys.JOB_START)

    def record_job_end_time(self, end_time: _Moment = None) -> None:
        """The job is done, and the step that was under way too."""
        self._record(end_time, {}, keys.JOB_END)

    def record_tpu_init_start_time(self, start_time: _Moment = None) -> None:
        """Initialization of the accelerators begins."""
        self._record(start_time, {}, keys.TPU_INIT_START)

    def record_tpu_init_end_time(self, end_time: _Moment = None) -> None:
        """The accelerators are there."""
        self._record(end_time, {}, keys.TPU_INIT_END)

    def record_training_preparation_start_time(self, start_time: _Moment = None) -> None:
        """What comes before the first step begins: the model, the optimizer, a checkpoint."""
        self._record(start_time, {}, keys.PREPARATION_START)

    def record_training_preparation_end_time(self, end_time: _Moment = None) -> None:
        """Training is prepared."""
        self._record(end_time, {}, keys.PREPARATION_END)

    def record_data_loading_start_time(self, start_time: _Moment = None) -> None:
        """The training loop waits for data."""
        self._record(start_time, {}, keys.DATA_START)

    def record_data_loading_end_time(self, end_time: _Moment = None) -> None:
        """It has them."""
        self._record(end_time, {}, keys.DATA_END)

    def record_custom_badput_event_start_time(
        self, start_time: _Moment = None, custom_badput_event_type: str = "unknown"
    ) -> None:
        """Something of that type keeps training from going on."""
        fields = {keys.CUSTOM_TYPE: custom_badput_event_type}
        self._record(start_time, fields, keys.CUSTOM_START)

    def record_custom_badput_event_end_time(
        self, end_time: _Moment = None, custom_badput_event_type: str = "unknown"
    ) -> None:
        """It does so no longer."""
        self._record(end_time, {keys.CUSTOM_TYPE: custom_badput_event_type}, keys.CUSTOM_END)

    def _record(self, at: _Moment, fields: dict[str, Any], time_field: str) -> None:
        """Write an entry. Its counts may come as anything that is a whole number."""
        if self._cloud_logger is None:
            return
        try:
            fields |= {name: int(fields[name]) for name in keys.COUNTS if name in fields}
            at_s = self._now_s() if at is None else at.timestamp()
            entry = {keys.JOB_NAME: self.job_name, **fields, time_field: at_s}
            self._cloud_logger.write_cloud_logging_entry(entry)
        except Exception as problem:
            self._pass_over(problem)

    def _now_s(self) -> float:
        now_ns = clock.unix_ns if self._local is None else self._local.now_ns
        return now_ns() / clock.NS_PER_S

    def _pass_over(self, problem: Exception) -> None:
        """What cannot be recorded is said once, and costs the training nothing."""
        if not self._has_trouble:
            self._has_trouble = True
            logger.warning(
                "goodput of job %s: not everything is recorded: %s", self.job_name, problem
            )
