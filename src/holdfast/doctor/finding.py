"""A finding: what is so, why it will hurt, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much it will hurt."""

    ERROR = "error"  # progress will be lost, or the run will not start
    WARNING = "warning"  # it will, on a bad day
    NOTE = "note"  # worth knowing


@dataclass(frozen=True, slots=True)
class Finding:
    """`check`: which one has found it, a name that stays."""

    check: str
    severity: Severity
    what: str
    why: str
    fix: str
