"""The kinds of time that a job's own events become, and the badput type of each of the ledger's."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.compat.ml_goodput_measurement.shapes import BadputType, BadputValue
from holdfast.core.ledger import kinds as ledger
from holdfast.export.familiar import CUSTOM, OTHER, type_of

TPU_INIT = "custom:tpu_init"
PREPARATION = "custom:training_prep"
ELASTIC_DOWN = "custom:elastic_slice_down"
ELASTIC_UP = "custom:elastic_scale_up"
ELASTIC_REINIT = "custom:elastic_reinitialization"
CHECKPOINT_RESTORE = "custom:checkpoint_restore"
FIRST_STEP = "startup:first_step"  # what an attempt's first step took longer than others
AFTER_STEPS = "custom:after_last_step"  # what a job did between its last step and its end
LATER_DATA = "data:in_steps"  # waits for data after an attempt's first step began

_ELASTIC = (
    BadputType.ELASTIC_SLICE_DOWN,
    BadputType.ELASTIC_SCALE_UP,
    BadputType.ELASTIC_REINITIALIZATION,
)


def wait_kind(event_type: str) -> str:
    """The span of an elastic wait."""
    return ELASTIC_UP if "scale_up" in event_type.lower() else ELASTIC_DOWN


def custom_kind(event_type: str) -> str:
    """The span of a custom event; its types are told apart without regard to case."""
    return f"{ledger.CUSTOM_PREFIX}{event_type.upper()}"


def badput_seconds(seconds: Mapping[str, float], *, elastic: bool) -> dict[BadputType, BadputValue]:
    """Seconds by the ledger's kind → by badput type; they add up to all that was not productive.

    But for DATA_LOADING_ASYNC, which tells once more what DATA_LOADING_SYNC has of later waits, as
    its readers leave it out of sums. The elastic types are there when asked for, or not zero.
    """
    custom: dict[str, float] = {}
    badput: dict[BadputType, BadputValue] = {}
    found = dict.fromkeys(BadputType, 0.0)
    for kind, length in seconds.items():
        name, _, event = _type_of(kind).partition(".")
        if name == CUSTOM:
            custom[event] = custom.get(event, 0.0) + length
        elif kind != ledger.STEP:
            found[BadputType[name]] += length
    found[BadputType.DATA_LOADING_ASYNC] = seconds.get(LATER_DATA, 0.0)
    for badput_type in BadputType:
        if badput_type is BadputType.CUSTOM_BADPUT_EVENTS:
            badput[badput_type] = custom
        elif badput_type not in _ELASTIC or elastic or found[badput_type]:
            badput[badput_type] = found[badput_type]
    return badput


def is_accounted(kind: str) -> bool:
    """Whether somebody recorded what this time was."""
    family = kind.partition(":")[0]
    return family in (ledger.STEP, ledger.STOPPED) or _type_of(kind) != OTHER


def _type_of(kind: str) -> str:
    """The type, as exporters tell it, but for a start: a recorder says what is in one."""
    if kind == FIRST_STEP:
        return BadputType.PROGRAM_STARTUP.name
    return OTHER if kind.partition(":")[0] == ledger.STARTUP else type_of(kind)
