"""The names that people know from ml-goodput-measurement 0.2.3, and which of our kinds they are.

That library tells fewer kinds of lost time apart, and does not see the wait for the first resources
at all: it counts like later ones here, so that goodput and badput still add up to all time. The
types are those of `holdfast.compat.ml_goodput_measurement`, which asks here.
"""

from __future__ import annotations

from collections.abc import Mapping

CUSTOM = "CUSTOM_BADPUT_EVENTS"
OTHER = "OTHER"
RECOVERY = "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"
BADPUT_TYPES = (
    "TPU_INITIALIZATION",
    "TRAINING_PREP",
    "PROGRAM_STARTUP",
    "DATA_LOADING_SYNC",
    "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
    "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
    "WASTED_PROGRESS_FROM_DISRUPTION",
    RECOVERY,
    CUSTOM,
    OTHER,
)
_TYPE_OF: Mapping[str, str] = {
    "startup": "TRAINING_PREP",
    "compile": "PROGRAM_STARTUP",
    "data": "DATA_LOADING_SYNC",
    "save": "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
    "restore": "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
    "lost": "WASTED_PROGRESS_FROM_DISRUPTION",
    "detect": RECOVERY,
    "hang": RECOVERY,
    "drain": RECOVERY,
    "backoff": RECOVERY,
    "reschedule": RECOVERY,
    "queued": RECOVERY,
    "stopped": OTHER,  # by a person: nothing recovers, and that library has no name for it
}
# Spans that recorders of the drop-in make of the library's own events.
_RECORDED: Mapping[str, str] = {
    "custom:tpu_init": "TPU_INITIALIZATION",
    "custom:training_prep": "TRAINING_PREP",
    "custom:checkpoint_restore": "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
    "custom:elastic_slice_down": "ELASTIC_SLICE_DOWN",
    "custom:elastic_scale_up": "ELASTIC_SCALE_UP",
    "custom:elastic_reinitialization": "ELASTIC_REINITIALIZATION",
}


def type_of(kind: str) -> str:
    """The library's type of one of our kinds; of a custom one with its name behind a dot."""
    if kind in _RECORDED:
        return _RECORDED[kind]
    family, _, name = kind.partition(":")
    if family == "custom":
        return f"{CUSTOM}.{name.upper()}"
    return _TYPE_OF.get(family, OTHER)


def badput_tag(name: str, window_s: int = 0) -> str:
    """TensorBoard's tag of a type, or of that in a rolling window (that library has none)."""
    family = f"rolling_window_badput/{window_s}" if window_s else "badput"
    return f"{family}/{name.lower().replace('.', '/', 1)}"


def goodput_tag(window_s: int = 0) -> str:
    """TensorBoard's tag of goodput."""
    return f"rolling_window_goodput/{window_s}" if window_s else "goodput/goodput"


def percent_of(seconds: float, elapsed_s: float) -> float:
    """The library reports shares in percent; 0 where no time has gone by."""
    return 100 * seconds / elapsed_s if elapsed_s else 0.0
