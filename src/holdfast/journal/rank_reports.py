"""What a rank that failed said about it: `attempts/0003/ranks/rank-00000.json`, read back."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.core.exits import ExitCause, RankReport
from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import read_json
from holdfast.journal.fields import printable, target, text, whole
from holdfast.journal.incidents import incident_of
from holdfast.journal.store import RunFolder

REPORT_MAX_BYTES = 1 << 20  # two texts of 20,000 characters, each of up to 12 bytes in JSON
_FILE = re.compile(r"rank-(\d{5,9})\.json")


def report_path(folder: RunFolder, attempt: int, rank: int) -> Path:
    """Where a rank's report lies."""
    return folder.ranks_dir(attempt) / f"rank-{rank:05d}.json"


def read_report(path: Path) -> RankReport | None:
    """The report in a file; None when there is none, or none that makes sense."""
    try:
        data = read_json(path, REPORT_MAX_BYTES)
        declared = data.get("declared") is True
        return RankReport(
            type=text(data, "type"),
            message=text(data, "message"),
            where=text(data, "where"),
            traceback=text(data, "traceback"),
            declared=declared,
            rollback_to=target(data, "rollback_to") if declared else None,
            skip_batches=whole(data, "skip_batches") if declared else 0,
        )
    except (StoreUnavailable, FileNotFoundError, ValueError):
        return None


def read_reports(folder: RunFolder, attempt: int) -> list[tuple[int, RankReport]]:
    """All reports of an attempt's ranks, by rank."""
    try:
        names = [path.name for path in folder.ranks_dir(attempt).iterdir()]
    except OSError:
        return []
    ranks = sorted(int(match[1]) for name in names if (match := _FILE.fullmatch(name)))
    found = ((rank, read_report(report_path(folder, attempt, rank))) for rank in ranks)
    return [(rank, report) for rank, report in found if report is not None]


def error_of(folder: RunFolder, attempt: int, cause: str) -> str:
    """The exception that ended an attempt, and where: `ValueError at train.py:41`; "": none did.

    Of several ranks' the one that the attempt's incident names: others only lost contact with it.
    Of a hang where it hung: `load (train.py:41)`; "": nobody knows.
    """
    if cause == ExitCause.HANG:
        where = (incident_of(folder, attempt) or {}).get("where")
        return printable(where) if type(where) is str else ""
    reports = dict(read_reports(folder, attempt))
    if not reports:
        return ""
    story = incident_of(folder, attempt) if len(reports) > 1 else None
    rank = None if story is None else story.get("rank")
    report = (
        reports.get(rank, reports[min(reports)]) if type(rank) is int else reports[min(reports)]
    )
    return f"{report.type} at {report.where}" if report.where else report.type
