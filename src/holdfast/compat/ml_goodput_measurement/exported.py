"""Log entries of a job as people export them: JSON, one array or one object a line.

An object is an entry as a cloud's tools export it (its fields below `jsonPayload`, with
`timestamp` and `receiveTimestamp` beside them), or the fields alone, as in the library's cache.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.compat.ml_goodput_measurement import keys
from holdfast.core.save.word import MAX_STEP
from holdfast.errors import ConfigurationError
from holdfast.journal.facts.lines import MAX_CHIPS
from holdfast.journal.layout import MAX_TIME_NS
from holdfast.journal.names import shown

WRONG_CLOCK_S = 30.0
"""A host whose entries come so much later, or earlier, than they say has a wrong clock."""

MAX_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Exported:
    """One job's entries in order. `received_s` is when the log got each (unix s; None: unsaid).

    `damaged` counts what was no entry; `others` names the other jobs of the file.
    """

    job: str
    entries: list[dict[str, Any]]
    received_s: list[float | None]
    damaged: int
    others: tuple[str, ...]


def read_export(path: str | os.PathLike[str], job: str | None = None) -> Exported:
    """Read a file of entries. Raises ConfigurationError when there is none, or whose job is unsaid.

    A line that is torn or no entry is counted and passed over.
    """
    found: dict[str, list[tuple[float, dict[str, Any], float | None]]] = {}
    damaged = 0
    for raw in _objects(Path(path)):
        payload = _payload(raw)
        if payload is None:
            damaged += 1
            continue
        name = str(payload.get(keys.JOB_NAME, ""))
        received = _moment(raw.get("receiveTimestamp")) if "jsonPayload" in raw else None
        stamped = _moment(raw.get("timestamp")) if "jsonPayload" in raw else None
        at = received if received is not None else stamped
        found.setdefault(name, []).append((at if at is not None else 0.0, payload, received))
    names = sorted(name for name in found if name)
    if job is None:
        if len(names) > 1:
            raise ConfigurationError(
                f"{path} holds entries of {len(names)} jobs ({_few(names)}); say which with --job"
            )
        job = names[0] if names else ""
    rows = found.get(job, [])
    if rows and rows[0][0] > rows[-1][0]:  # newest first, as some tools export
        rows.reverse()
    rows.sort(key=lambda row: row[0])
    if not rows:
        raise ConfigurationError(f"{path} holds no entry of job {shown(job)}; it has {_few(names)}")
    return Exported(
        job,
        [row[1] for row in rows],
        [row[2] for row in rows],
        damaged,
        tuple(name for name in names if name != job),
    )


def _few(names: list[str]) -> str:
    return ", ".join(map(shown, names[:5])) or "none"


def corrected(exported: Exported) -> tuple[list[dict[str, Any]], list[tuple[int, float]]]:
    """The entries by one clock: the log's, where hosts' own were wrong; and what was corrected.

    That is (attempt, seconds added). An entry comes to the log right after what it tells of, or a
    little later; so the least delay of an attempt's entries is how far its clock is off.
    """
    parts: list[list[int]] = [[]]
    for at, entry in enumerate(exported.entries):
        if keys.JOB_START in entry and parts[-1]:
            parts.append([])
        parts[-1].append(at)
    entries = list(exported.entries)
    moved: list[tuple[int, float]] = []
    for number, part in enumerate(parts):
        delays = [
            received - times[-1]
            for at in part
            if (received := exported.received_s[at]) is not None
            and (times := list(_times(entries[at]).values()))
        ]
        if delays and abs(off := min(delays)) > WRONG_CLOCK_S:
            moved.append((number, off))
            for at in part:
                shifted = {name: time + off for name, time in _times(entries[at]).items()}
                entries[at] = {**entries[at], **shifted}
    return entries, moved


def _times(entry: Mapping[str, Any]) -> dict[str, float]:
    """Fields that are moments."""
    return {
        name: float(value)
        for name, value in entry.items()
        if name.endswith(("_time", "_timestamp")) and isinstance(value, int | float)
    }


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    """What the file holds; {} for what is no object."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigurationError(f"{path} is larger than {MAX_BYTES >> 30} GiB: export less")
        with path.open(encoding="utf-8", errors="replace") as file:
            start = file.read(1)
            while start.isspace():
                start = file.read(1)
            file.seek(0)
            if start == "[":
                yield from _array(file.read(), path)
            else:
                yield from (_decoded(line) for line in file if line.strip())
    except OSError as problem:
        raise ConfigurationError(
            f"the entries in {path} cannot be read ({problem.strerror}); give the path of an "
            "exported file"
        ) from None


def _array(text: str, path: Path) -> Iterator[dict[str, Any]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigurationError(
            f"{path} is a JSON array that is cut short or damaged: export it anew, or as one "
            "object a line"
        ) from None
    yield from (one if isinstance(one, dict) else {} for one in found)


def _decoded(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _payload(raw: dict[str, Any]) -> dict[str, Any] | None:
    """An entry's fields; None: it is none, or its numbers are none."""
    fields = raw.get("jsonPayload", raw)
    if not isinstance(fields, dict) or not fields:
        return None
    payload = {name: value for name, value in fields.items() if value is not None}
    for name, value in payload.items():
        if name in keys.COUNTS:
            fits = _is_number(value, 0, MAX_STEP if name == keys.STEP else MAX_CHIPS)
        elif name.endswith(("_time", "_timestamp", "_secs")):
            fits = _is_number(value, 0, MAX_TIME_NS / 1e9)
        else:
            continue
        if not fits:
            return None
    return None if keys.STEP_START in payload and keys.STEP not in payload else payload


def _is_number(value: Any, low: float, high: float) -> bool:
    """Whether it is one, and within bounds: no NaN, no time that no clock shows."""
    return not isinstance(value, bool) and isinstance(value, int | float) and low <= value <= high


def _moment(text: Any) -> float | None:
    try:
        at = datetime.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    unix_s = at.replace(tzinfo=at.tzinfo or datetime.UTC).timestamp()
    return unix_s if _is_number(unix_s, 0, MAX_TIME_NS / 1e9) else None
