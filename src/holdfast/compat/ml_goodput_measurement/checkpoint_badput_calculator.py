"""What checkpoints blocked a job for, from the entries of Orbax's checkpoint logger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

OPERATION_TYPE_SAVE: Final = "save"
OPERATION_TYPE_RESTORE: Final = "restore"
OPERATION_TYPE_EMERGENCY_RESTORE: Final = "emergency_restore"

OPERATION_TYPE_LOCAL: Final = "local"
OPERATION_TYPE_PERSISTENT: Final = "persistent"
OPERATION_TYPE_PERSISTENT_AND_LOCAL: Final = "persistent_and_local"

_RESTORES = (OPERATION_TYPE_RESTORE, OPERATION_TYPE_EMERGENCY_RESTORE)
_Entry = dict[str, Any]

# Name of a statistic → the entries' field, in seconds.
_SAVE_FIELDS = {
    "checkpoint_manager_blocking_time": "checkpoint_manager_blocking_duration_secs",
    "checkpointer_blocking_time": "checkpointer_blocking_duration_secs",
    "wait_for_prev_time": "wait_for_prev_duration_secs",
    "get_old_steps_time": "get_old_steps_duration_secs",
}
_RESTORE_FIELDS = {
    "checkpoint_manager_time": "checkpoint_manager_duration_secs",
    "restore_time": "checkpointer_duration_secs",
    "broadcast_time": "broadcast_duration_secs",
}


@dataclass
class SaveCheckpointManagerVerticalStepStats:
    """Saves: seconds over all steps, of each part of a save."""

    total_checkpoint_manager_blocking_time: float = 0.0
    average_checkpoint_manager_blocking_time: float = 0.0
    minimum_checkpoint_manager_blocking_time: float = 0.0
    maximum_checkpoint_manager_blocking_time: float = 0.0
    standard_deviation_checkpoint_manager_blocking_time: float = 0.0

    total_checkpointer_blocking_time: float = 0.0
    average_checkpointer_blocking_time: float = 0.0
    minimum_checkpointer_blocking_time: float = 0.0
    maximum_checkpointer_blocking_time: float = 0.0
    standard_deviation_checkpointer_blocking_time: float = 0.0

    total_wait_for_prev_time: float = 0.0
    average_wait_for_prev_time: float = 0.0
    minimum_wait_for_prev_time: float = 0.0
    maximum_wait_for_prev_time: float = 0.0
    standard_deviation_wait_for_prev_time: float = 0.0

    total_get_old_steps_time: float = 0.0
    average_get_old_steps_time: float = 0.0
    minimum_get_old_steps_time: float = 0.0
    maximum_get_old_steps_time: float = 0.0
    standard_deviation_get_old_steps_time: float = 0.0


@dataclass
class RestoreCheckpointManagerVerticalStepStats:
    """Restores: seconds over all steps, of each part of a restore."""

    total_checkpoint_manager_time: float = 0.0
    average_checkpoint_manager_time: float = 0.0
    minimum_checkpoint_manager_time: float = 0.0
    maximum_checkpoint_manager_time: float = 0.0
    standard_deviation_checkpoint_manager_time: float = 0.0

    total_restore_time: float = 0.0
    average_restore_time: float = 0.0
    minimum_restore_time: float = 0.0
    maximum_restore_time: float = 0.0
    standard_deviation_restore_time: float = 0.0

    total_broadcast_time: float = 0.0
    average_broadcast_time: float = 0.0
    minimum_broadcast_time: float = 0.0
    maximum_broadcast_time: float = 0.0
    standard_deviation_broadcast_time: float = 0.0


@dataclass
class SaveProcessedStep:
    """One step's save; several entries of it are hosts of one save."""

    step: str = ""
    total_checkpoint_manager_blocking_time: float = 0.0
    total_checkpointer_blocking_time: float = 0.0
    total_wait_for_prev_time: float = 0.0
    total_get_old_steps_time: float = 0.0
    occurrence: int = 0


@dataclass
class RestoreProcessedStep:
    """One step's restore; several entries of it are hosts of one restore."""

    step: str = ""
    total_checkpoint_manager_time: float = 0.0
    total_restore_time: float = 0.0
    total_broadcast_time: float = 0.0
    broadcast_occurrence: int = 0
    occurrence: int = 0


@dataclass
class CheckpointLoggerOptions:
    """`client` stands for a cloud's logging client; with `use_goodput_logger` there is none."""

    job_name: str = "checkpoint_job"
    logger_name: str = "checkpoint_logger"
    client: Any = None
    use_goodput_logger: bool = False


class CheckpointBadputCalculator:
    """Statistics of the saves and restores in `entries`, or in a client's log."""

    entries: list[_Entry]
    """The entries that are counted; a caller may put them here."""

    def __init__(self, options: CheckpointLoggerOptions | None = None) -> None:
        """Raises ValueError when the log of a client is wanted and there is none."""
        self._options = options or CheckpointLoggerOptions()
        self._use_goodput_logger = self._options.use_goodput_logger
        self.entries = []
        if not self._use_goodput_logger:
            if self._options.client is None:
                raise ValueError(
                    "no client to read a log with was given, and Holdfast makes none: pass "
                    "CheckpointLoggerOptions(client=...), or set use_goodput_logger and entries"
                )
            self._logger = self._options.client.logger(self._options.logger_name)

    def read_entries(self) -> list[_Entry]:
        """`entries`, or those of the client's log, in its order."""
        if self._use_goodput_logger:
            return self.entries
        kinds = " OR ".join(
            f"jsonPayload.event_type={kind}" for kind in (OPERATION_TYPE_SAVE, *_RESTORES)
        )
        job = f'jsonPayload.job_name="{self._options.job_name}"'
        found = self._logger.list_entries(
            filter_=f"severity=INFO AND {job} AND ({kinds})", order_by="timestamp asc"
        )
        return [entry.payload for entry in found]

    def is_valid_save_stats(
        self,
        step_stats: _Entry,
        operation_type: str | None = OPERATION_TYPE_PERSISTENT_AND_LOCAL,
    ) -> bool:
        """Whether the entry is a save of that type."""
        if step_stats.get("event_type") != OPERATION_TYPE_SAVE:
            return False
        if operation_type in (OPERATION_TYPE_LOCAL, OPERATION_TYPE_PERSISTENT):
            return _place(step_stats) == operation_type
        return True

    def is_valid_restore_stats(
        self,
        step_stats: _Entry,
        operation_type: str | None = OPERATION_TYPE_PERSISTENT_AND_LOCAL,
    ) -> bool:
        """Whether the entry is a restore of that type; local ones are emergency restores."""
        kind = step_stats.get("event_type")
        if operation_type == OPERATION_TYPE_LOCAL:
            return kind == OPERATION_TYPE_EMERGENCY_RESTORE
        if operation_type == OPERATION_TYPE_PERSISTENT:
            return kind == OPERATION_TYPE_RESTORE
        return kind in _RESTORES

    def calculate_save_operation_checkpoint_manager_blocking_time(
        self, operation_type: str | None = OPERATION_TYPE_PERSISTENT_AND_LOCAL
    ) -> SaveCheckpointManagerVerticalStepStats:
        """What saves blocked for."""
        found = self._statistics(_SAVE_FIELDS, self.is_valid_save_stats, operation_type)
        return SaveCheckpointManagerVerticalStepStats(**found)

    def calculate_restore_operation_checkpoint_manager_blocking_time(
        self, operation_type: str | None = OPERATION_TYPE_PERSISTENT_AND_LOCAL
    ) -> RestoreCheckpointManagerVerticalStepStats:
        """What restores took."""
        found = self._statistics(_RESTORE_FIELDS, self.is_valid_restore_stats, operation_type)
        return RestoreCheckpointManagerVerticalStepStats(**found)

    def _statistics(
        self,
        fields: Mapping[str, str],
        is_valid: Callable[[_Entry, str | None], bool],
        operation_type: str | None,
    ) -> dict[str, float]:
        """Over steps, of each field; entries of one step and place are averaged first."""
        self.entries = self.read_entries()
        chosen = [entry for entry in self.entries if is_valid(entry, operation_type)]
        found: dict[str, float] = {}
        for name, key in fields.items():
            by_step: dict[tuple[str, str], list[float]] = {}
            for entry in chosen:
                if entry.get(key) is not None:
                    hosts = by_step.setdefault((str(entry.get("step")), _place(entry)), [])
                    hosts.append(float(entry[key]))
            found |= _spread(name, [sum(hosts) / len(hosts) for hosts in by_step.values()])
        return found


def _place(entry: _Entry) -> str:
    is_remote = str(entry.get("directory") or "").startswith("gs://")
    return OPERATION_TYPE_PERSISTENT if is_remote else OPERATION_TYPE_LOCAL


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    from statistics import stdev  # not with the module: every script that measures itself has it

    return {
        f"total_{name}": sum(values),
        f"average_{name}": sum(values) / len(values),
        f"minimum_{name}": min(values),
        f"maximum_{name}": max(values),
        f"standard_deviation_{name}": stdev(values) if len(values) > 1 else 0.0,
    }
