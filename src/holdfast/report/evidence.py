"""Incident files: what a supervisor found out about an attempt that broke.

    attempts/0003/incidents/*.json   {attempt, cause, words, exits, last_lines, traceback}
    attempts/0003/restart.json       {phases_ns, woken, cold}: how the attempt after it was started

They are for people. A file that is damaged, or has other keys than these, is a note in the report
and never an error: the numbers do not depend on it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast.core.redact import redacted_text
from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import read_json
from holdfast.journal.fields import printable
from holdfast.journal.incidents import restart_of
from holdfast.journal.regular import is_real_folder, open_regular
from holdfast.journal.store import RunFolder
from holdfast.report.findings import DisruptionEvidence, RestartFindings

MAX_RANK_DIGITS = 9
MAX_STACKS, MAX_STACKS_BYTES = 8, 1 << 14  # of one incident: as many as people read
_STACKS = re.compile(r"rank-([0-9]{5,9})\.stacks\.txt")


def evidence_of(
    folder: RunFolder, attempts: Iterable[int]
) -> tuple[list[DisruptionEvidence], list[str]]:
    """What is known about these attempts, and a sentence for each file that cannot be read.

    Of several files of one attempt, the first by name tells the story: supervisors number them.
    """
    found: list[DisruptionEvidence] = []
    notes: list[str] = []
    for attempt in attempts:
        place = folder.incidents_dir(attempt)
        restart = _restart(restart_of(folder, attempt))
        for path in sorted(place.glob("*.json") if is_real_folder(place) else ()):
            try:
                raw = read_json(path)
                stacks = tuple(_stacks(place, raw.get("stacks")))
                found.append(_evidence(attempt, raw, restart, stacks))
            except (StoreUnavailable, FileNotFoundError) as error:
                notes.append(str(error))
            else:
                break
    return found, notes


def _evidence(
    attempt: int,
    raw: dict[str, Any],
    restart: RestartFindings | None,
    stacks: tuple[tuple[int, str], ...],
) -> DisruptionEvidence:
    exits = raw.get("exits")
    lines = raw.get("last_lines")
    rank = raw.get("rank")
    return DisruptionEvidence(
        attempt=attempt,
        words=_text(raw.get("words")),
        exits=tuple(e if isinstance(e, int) else None for e in _list(exits)),
        last_lines=tuple(redacted_text(printable(str(line))) for line in _list(lines)),
        traceback=_text(raw.get("traceback")),
        restart=restart,
        rank=rank if type(rank) is int and rank >= 0 else None,
        stacks=stacks,
    )


def _stacks(place: Path, names: object) -> Iterator[tuple[int, str]]:
    """Where ranks stood, from the files that the incident names; only such as we write."""
    for name in _list(names)[:MAX_STACKS]:
        match = _STACKS.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            continue
        try:
            with os.fdopen(open_regular(place / name), "rb") as file:
                text = file.read(MAX_STACKS_BYTES).decode(errors="replace")
        except OSError:
            continue
        yield int(match[1]), redacted_text(printable(text))


def _restart(raw: dict[str, Any] | None) -> RestartFindings | None:
    """How the next attempt was started; None: it was not, or nobody says how."""
    phases, woken, cold = ((raw or {}).get(key) for key in ("phases_ns", "woken", "cold"))
    if not isinstance(phases, dict):
        return None
    return RestartFindings(
        {printable(str(k)): ns for k, ns in phases.items() if type(ns) is int and ns >= 0},
        tuple(rank for rank in _list(woken) if type(rank) is int),
        {
            int(rank): printable(str(why))
            for rank, why in (cold.items() if isinstance(cold, dict) else ())
            if rank.isascii() and rank.isdigit() and len(rank) < MAX_RANK_DIGITS
        },
    )


def _text(value: object) -> str | None:
    return redacted_text(printable(value)) if isinstance(value, str) and value.strip() else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
