"""What a rank that failed said about it: `attempts/0003/ranks/rank-00000.json`, read back."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.core.exits import RankReport
from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import read_json
from holdfast.journal.fields import target, text, whole
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
