"""The hosts of a run of several: what each was, which part it had when, and how exact its clock is.

Their slowness is told by the controller while the run lives (`holdfast hosts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from holdfast.core.durations import SECOND_NS, clock_words
from holdfast.core.hosts.chips import chips_of_slices
from holdfast.core.hosts.placement import ranks_words
from holdfast.core.visible import clean
from holdfast.journal.facts.hosts import KnownHost, KnownHosts
from holdfast.journal.recorded import RecordedLedger
from holdfast.report.findings import DisruptionEvidence, HostFindings
from holdfast.report.words import MISSING, counted

HEADINGS = ("host", "state", "slice", "chips", "parts", "clock", "disruptions")
MOST_PARTS, MOST_NUMBERS = 3, 6  # of one host in a table
MOST_SLICES = 8


def hosts_of(
    recorded: RecordedLedger, evidence: Iterable[DisruptionEvidence]
) -> tuple[HostFindings, ...]:
    """Each by its number, with the disruptions that are its own; none: the run has one host."""
    broke: dict[int, list[int]] = {}
    for one in evidence:
        if one.host is not None:
            broke.setdefault(one.host, []).append(one.attempt)
    return tuple(
        HostFindings(
            host.index,
            host.state,
            host.slot,
            host.slice,
            tuple((p.first_attempt, p.last_attempt, p.first_rank, p.last_rank) for p in host.parts),
            host.ahead_ns,
            _error_ns(host),
            tuple(broke.get(host.index, ())),
            host.chips,
        )
        for host in recorded.facts.controllers.hosts.all(recorded.facts.clock)
    )


def _error_ns(host: KnownHost) -> int | None:
    """Over all boots between it and the run's clock; of the controller's own that is nothing."""
    mapped_ns = None if host.clock is None else host.clock.error_ns
    return host.error_ns if mapped_ns is None else mapped_ns


def with_hosts(
    evidence: Sequence[DisruptionEvidence], hosts: KnownHosts
) -> tuple[DisruptionEvidence, ...]:
    """The same, each with the host of the rank that broke first."""
    found = []
    for one in evidence:
        host = None if one.rank is None else hosts.host_of(one.attempt, one.rank)
        if host is not None:
            rank = f"rank {one.rank}: "
            cause = None if one.words is None else one.words.removeprefix(rank)
            words = None if cause is None else f"host {host}, {rank}{cause}"
            one = replace(one, host=host, words=words)
        found.append(one)
    return tuple(found)


def host_to_json(host: HostFindings) -> dict[str, Any]:
    """As the report's document has it."""
    is_known = host.ahead_ns is not None and host.error_ns is not None
    return {
        "index": host.index,
        "state": host.state,
        "trains_as": host.slot,
        "slice": host.slice or None,
        "chips": host.chips,
        "parts": [
            {"attempts": [first, last], "ranks": [low, high]}
            for first, last, low, high in host.parts
        ],
        "clock": {
            "ahead_s": host.ahead_ns / SECOND_NS if host.ahead_ns is not None else None,
            "bound_s": host.error_ns / SECOND_NS if host.error_ns is not None else None,
        }
        if is_known
        else None,
        "incidents": list(host.incidents),
    }


def table(hosts: Sequence[HostFindings], most: int) -> list[tuple[str, ...]]:
    """The headings, then a row for each of as many as are shown.

    Chips are left out where no host says how many it has.
    """
    rows = [HEADINGS, *map(_cells, by_interest(hosts, most))]
    if all(host.chips is None for host in hosts):
        at = HEADINGS.index("chips")
        rows = [(*row[:at], *row[at + 1 :]) for row in rows]
    return rows


def _cells(host: HostFindings) -> tuple[str, ...]:
    return (
        str(host.index),
        clean(host.state),
        clean(host.slice) or MISSING,
        MISSING if host.chips is None else f"{host.chips:,}",
        _parts(host.parts),
        clock_words(host.ahead_ns, host.error_ns),
        _numbers([f"attempt {number}" for number in host.incidents]),
    )


def summary(hosts: Sequence[HostFindings]) -> str:
    """How many there are, how many of each state but `assigned`, and the chips of each slice."""
    states = [host.state for host in hosts]
    others = [(state, states.count(state)) for state in sorted({*states} - {"assigned"})]
    told = "".join(f", {count} {clean(state)}" for state, count in others)
    return f"{len(hosts)} hosts: {states.count('assigned')} assigned{told}{_chips(hosts)}"


def _chips(hosts: Sequence[HostFindings]) -> str:
    found = chips_of_slices((one.slice, one.chips) for one in hosts if one.slot is not None)
    if not found:
        return ""
    named = [f"{chips:,} in slice {clean(name)}" for name, chips in found.items() if name]
    left = " …" if len(named) > MOST_SLICES else ""
    each = f" ({', '.join(named[:MOST_SLICES])}{left})" if named else ""
    return f"; {counted(sum(found.values()), 'chip')} train{each}"


def by_interest(hosts: Sequence[HostFindings], most: int) -> list[HostFindings]:
    """As many as are shown, by their numbers: those that broke, or do not train, first."""
    places = sorted(hosts, key=lambda one: (not one.incidents, one.state == "assigned", one.index))
    return sorted(places[:most], key=lambda one: one.index)


def _parts(parts: Sequence[tuple[int, int, int, int]]) -> str:
    words = []
    for first, last, low, high in parts[-MOST_PARTS:]:
        ranks = f"rank {low}" if low == high else f"ranks {ranks_words(low, high)}"
        when = f"attempt {first}" if first == last else f"attempts {first}–{last}"
        words.append(f"{ranks} in {when}")
    left = "… " if len(parts) > MOST_PARTS else ""
    return left + "; ".join(words) if words else MISSING


def _numbers(words: Sequence[str]) -> str:
    left = "… " if len(words) > MOST_NUMBERS else ""
    return left + ", ".join(words[-MOST_NUMBERS:]) if words else MISSING
