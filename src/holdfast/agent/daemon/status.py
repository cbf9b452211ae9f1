"""What the daemon says of itself: one plain object, for `agent.json`, metrics and people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.agent.daemon.holders import Sight
from holdfast.core.daemon.autocheckpoint import Autocheckpoint
from holdfast.core.daemon.events import DeviceHolder, ProcessInRound, RoundOutcome, RoundReport
from holdfast.core.durations import SECOND_NS
from holdfast.core.notices.board import Announcement
from holdfast.journal.clocks import read_clock_pair

if TYPE_CHECKING:
    from holdfast.notices.listener import Standing


@dataclass(slots=True)
class AgentCounts:
    """What has happened since the agent was started."""

    signalled: int = 0
    refused: int = 0
    left_behind: int = 0
    releases: int = 0
    failed_releases: int = 0
    rounds: dict[RoundOutcome, int] = field(default_factory=lambda: dict.fromkeys(RoundOutcome, 0))
    looks: int = 0
    look_ns: int = 0  # how long the last one took
    sight: Sight = Sight(())  # noqa: RUF009 - it is frozen


def status(
    machine: Autocheckpoint,
    tally: AgentCounts,
    last: RoundReport | None,
    standings: Sequence[Standing],
    release: str,
) -> dict[str, Any]:
    """Everything, with moments as unix seconds."""
    clocks = read_clock_pair()

    def moment_s(at_ns: int | None) -> float | None:
        return None if at_ns is None else round((at_ns + clocks[1] - clocks[0]) / SECOND_NS, 3)

    def announced(one: Announcement) -> dict[str, Any]:
        return {
            "words": one.words,
            "action": one.action.value,
            "sources": list(one.sources),
            "since_unix_s": moment_s(one.since_ns),
            "deadline_unix_s": moment_s(one.deadline_ns),
        }

    now = machine.round
    return {
        "at_unix_s": clocks[1] / SECOND_NS,
        "phase": "quiet" if now is None else "saving",
        "next_unix_s": moment_s(machine.next_ns()) if now is None else None,
        "ends_unix_s": moment_s(machine.ends_ns),
        "announced": [announced(one) for one in machine.board.announcements],
        "round": None if now is None else _round(now.about, now.entries.values(), now.unreadable),
        "last_round": None
        if last is None
        else {
            **_round(last.about, last.entries, last.unreadable),
            "outcome": last.outcome.value,
            "began_unix_s": moment_s(last.began_ns),
            "over_unix_s": moment_s(last.over_ns),
        },
        "release": release,
        "sources": [
            {
                "name": one.name,
                "why": one.why,
                "has_answered": one.has_answered,
                "failures": one.failures,
                "trouble": one.trouble,
            }
            for one in standings
        ],
        "holders": [_holder(one) for one in tally.sight.holders],
        "unreadable": tally.sight.unreadable,
        "totals": {
            "signalled": tally.signalled,
            "refused": tally.refused,
            "left_behind": tally.left_behind,
            "releases": tally.releases,
            "failed_releases": tally.failed_releases,
            "rounds": {outcome.value: count for outcome, count in tally.rounds.items()},
            "looks": tally.looks,
            "last_look_s": tally.look_ns / SECOND_NS,
        },
    }


def _round(about: str, entries: Any, unreadable: int) -> dict[str, Any]:
    return {
        "about": about,
        "processes": [_entry(one) for one in entries],
        "unreadable": unreadable,
    }


def _entry(one: ProcessInRound) -> dict[str, Any]:
    took_ns = None
    if one.ended_ns is not None and one.signalled_ns is not None:
        took_ns = one.ended_ns - one.signalled_ns
    return {
        **_holder(one.holder),
        "is_signalled": one.signalled_ns is not None,
        "has_ended": one.ended_ns is not None,
        "took_s": None if took_ns is None else took_ns / SECOND_NS,
        "refused": one.refused,
        "fate": one.fate,
    }


def _holder(one: DeviceHolder) -> dict[str, Any]:
    return {
        "pid": one.process.pid,
        "command": one.command,
        "uid": one.uid,
        "devices": list(one.devices),
        "works_for": None if one.works_for is None else one.works_for.pid,
    }
