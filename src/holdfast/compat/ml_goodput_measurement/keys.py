"""The fields of the library's log entries: what a recorder writes and a calculator reads.

Times are unix seconds (float). A start and an end are two entries.
"""

from __future__ import annotations

from typing import Final

JOB_NAME: Final = "job_name"
JOB_START: Final = "job_start_time"
JOB_END: Final = "job_end_time"
STEP: Final = "step_count"
STEP_START: Final = "step_start_time"

TPU_INIT_START: Final = "tpu_init_start_time"
TPU_INIT_END: Final = "tpu_init_end_time"
PREPARATION_START: Final = "training_prep_start_time"
PREPARATION_END: Final = "training_prep_end_time"
DATA_START: Final = "data_loading_start_time"
DATA_END: Final = "data_loading_end_time"

CUSTOM_TYPE: Final = "custom_badput_event_type"
CUSTOM_START: Final = "custom_badput_event_start_time"
CUSTOM_END: Final = "custom_badput_event_end_time"

ELASTIC_TYPE: Final = "elastic_wait_event_type"
ELASTIC_WAIT_START: Final = "elastic_wait_start_time"
ELASTIC_WAIT_END: Final = "elastic_wait_end_time"
REINIT_START: Final = "elastic_reinit_start_time"
REINIT_END: Final = "elastic_reinit_end_time"

SLICES_AT: Final = "elastic_slice_counts_timestamp"
SLICES_ACTIVE: Final = "active_slices"
SLICES_TOTAL: Final = "total_slices"
SLICES_AVAILABLE: Final = "available_slices"

COUNTS: Final = (STEP, SLICES_ACTIVE, SLICES_TOTAL, SLICES_AVAILABLE)
"""Fields that are whole numbers."""

# Entries of Orbax's checkpoint logger, in the same log.
EVENT_TYPE: Final = "event_type"
SAVE_START: Final = "checkpoint_manager_blocking_start_time"
SAVE_SECONDS: Final = "checkpoint_manager_blocking_duration_secs"
RESTORE_START: Final = "checkpoint_manager_start_time"
RESTORE_SECONDS: Final = "checkpoint_manager_duration_secs"
