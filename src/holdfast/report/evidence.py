"""Incident files: what a supervisor found out about an attempt that broke.

    attempts/0003/incidents/*.json   {attempt, cause, words, exits, last_lines, traceback}

They are for people. A file that is damaged, or has other keys than these, is a note in the report
and never an error: the numbers do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import read_json
from holdfast.journal.fields import printable
from holdfast.journal.regular import is_real_folder
from holdfast.journal.store import RunFolder
from holdfast.report.findings import Evidence


def evidence_of(folder: RunFolder, attempts: Iterable[int]) -> tuple[list[Evidence], list[str]]:
    """What is known about these attempts, and a sentence for each file that cannot be read.

    Of several files of one attempt, the first by name tells the story: supervisors number them.
    """
    found: list[Evidence] = []
    notes: list[str] = []
    for attempt in attempts:
        place = folder.incidents_dir(attempt)
        for path in sorted(place.glob("*.json") if is_real_folder(place) else ()):
            try:
                found.append(_evidence(attempt, read_json(path)))
            except (StoreUnavailable, FileNotFoundError) as error:
                notes.append(str(error))
            else:
                break
    return found, notes


def _evidence(attempt: int, raw: dict[str, Any]) -> Evidence:
    exits = raw.get("exits")
    lines = raw.get("last_lines")
    return Evidence(
        attempt=attempt,
        words=_text(raw.get("words")),
        exits=tuple(e if isinstance(e, int) else None for e in _list(exits)),
        last_lines=tuple(printable(str(line)) for line in _list(lines)),
        traceback=_text(raw.get("traceback")),
    )


def _text(value: object) -> str | None:
    return printable(value) if isinstance(value, str) and value.strip() else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
