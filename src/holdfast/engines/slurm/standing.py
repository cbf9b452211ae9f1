"""What Slurm tells of jobs, nodes and partitions, from the text of `scontrol --oneliner`. Pure.

The plain output is read: releases differ in whether they write JSON, and in what. Its dates have no
zone, so `scontrol` is run with UTC as its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from holdfast.core.durations import SECOND_NS, seconds_in_words
from holdfast.core.hosts.engine import EngineHost, EngineWait, HostStage, Submission
from holdfast.engines.protocol import EngineError, OrderStanding
from holdfast.engines.slurm.plain_words import state_in_words
from holdfast.engines.slurm.script import COMMENT, Grace, lead_s, time_limit_s
from holdfast.errors import ConfigurationError

MARGIN_S = 5  # between the end of a save and the kill
OVER = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
}  # fmt: skip
HAS_NODES = {"RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING"}
_GONE = {"DOWN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "UNKNOWN"}
_LEAVING = {"DRAIN", "DRAINED", "DRAINING", "FAILING", "MAINT"}
_COMING = {"POWERING_UP", "CONFIGURING", "REBOOT_ISSUED"}


class Partition(NamedTuple):
    """What a partition allows; None: no limit."""

    name: str
    nodes: int
    most_nodes: int | None
    longest_s: int | None
    grace_s: int
    is_default: bool


def field(line: str, key: str) -> str:
    """A field's text, which may have blanks in it; "" where there is none."""
    # One blank at a time: where many are, a search for the end would start at each of them.
    found = re.search(rf"(?:^| ){key}=(.*?)(?= [A-Z][\w:/]*=|$)", " ".join(line.split()))
    text = found[1].strip() if found else ""
    return "" if text in ("(null)", "N/A", "None", "Unknown") else text


def record_of(text: str, job: str) -> str:
    """Of `scontrol show job` the job's own line: an array's tasks stand under its first one's."""
    found = (line for line in text.splitlines() if field(line, "JobId") == job)
    return next(found, text)


def is_of(job: str, wanted: Submission) -> bool:
    """Whether a job is that run's: by its comment, or its name where a site has its own."""
    comment = field(job, "Comment")
    if comment.startswith(COMMENT):
        return comment == f"{COMMENT}{wanted.run_id}"
    return field(job, "JobName") == wanted.run


def moment_ns(text: str) -> int | None:
    """Unix nanoseconds of a date; None: there is none. Raises EngineError."""
    if not text:
        return None
    try:
        moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        raise EngineError(f"Slurm says {text[:40]!r}, which is no date") from None
    return int(moment.timestamp()) * SECOND_NS


def job_standing(job: str, names: Sequence[str], nodes: str, most: int) -> OrderStanding:
    """Of `scontrol show job`, the names of its nodes, and `scontrol show node` of them.

    `most`: how many nodes it was given at its start; while it has all, their order is their number.
    """
    state = field(job, "JobState")
    if not state:
        raise EngineError(f"Slurm says {job[:60]!r} instead of a job")
    reason = field(job, "Reason").partition(",")[0]  # behind it: which nodes
    words = state_in_words(state, reason, field(job, "Restarts"))
    is_pending = state == "PENDING"
    since = "StartTime" if state in HAS_NODES else "EndTime" if state in OVER else "SubmitTime"
    return OrderStanding(
        words,
        () if state in OVER or is_pending else _hosts(job, names, nodes, most),
        is_over=state in OVER,
        since_unix_ns=moment_ns(field(job, since)),
        expected_unix_ns=moment_ns(field(job, "StartTime")) if is_pending else None,
    )


def _hosts(job: str, names: Sequence[str], nodes: str, most: int) -> tuple[EngineHost, ...]:
    lines = {field(line, "NodeName"): line for line in nodes.splitlines() if line.strip()}
    preempted_ns = moment_ns(field(job, "PreemptTime"))
    found = []
    for index, name in enumerate(names):
        stage, reason = _stage(lines.get(name, ""), is_configuring="CONF" in field(job, "JobState"))
        deadline_ns = None
        if preempted_ns is not None and stage is not HostStage.GONE:
            stage, reason = HostStage.DRAINING, "the job is preempted"
            deadline_ns = moment_ns(field(job, "EndTime"))
        number = index if len(names) == most else None
        found.append(EngineHost(name, stage, number, reason, deadline_ns))
    return tuple(found)


def _stage(node: str, *, is_configuring: bool) -> tuple[HostStage, str]:
    said = field(node, "State").upper()
    states = set(said.rstrip("*$@~#!%^-").split("+"))
    reason = re.sub(r" \[[^\]]*\]$", "", field(node, "Reason"))
    if not said:
        return HostStage.GONE, "Slurm does not know it"
    quoted = f"Slurm says {reason or said!r}"
    if states & _GONE or "*" in said:
        return HostStage.GONE, quoted
    if states & _LEAVING:
        return HostStage.DRAINING, quoted
    if states & _COMING or is_configuring:
        return HostStage.COMING, f"Slurm says {said!r}"
    return HostStage.READY, ""


def job_of(queue: str, run_id: str) -> str:
    """Which job of `squeue --format=%i|%k` is of that run; "": none."""
    for line in queue.splitlines():
        job, _, comment = line.strip().partition("|")
        if comment == f"{COMMENT}{run_id}" and re.fullmatch(r"\d{1,12}", job):
            return job
    return ""


def queue_wait(job: str) -> EngineWait | None:
    """For how long a job that runs was in the queue, since it was put there last.

    Before its first start since it might start, which a user may have set. A requeue is a new time
    of submission, and Slurm itself lets such a job wait for a moment: that counts.
    """
    begins = "EligibleTime" if field(job, "Restarts") in ("", "0") else "SubmitTime"
    start_ns, end_ns = moment_ns(field(job, begins)), moment_ns(field(job, "StartTime"))
    if start_ns is None or end_ns is None or end_ns <= start_ns:
        return None
    return EngineWait("queue", start_ns, end_ns)


def partitions(text: str) -> tuple[Partition, ...]:
    """All of `scontrol show partition`."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, nodes = field(line, "PartitionName"), field(line, "TotalNodes")
        if not name or not nodes.isdigit():
            raise EngineError(f"Slurm says {line[:60]!r} instead of a partition")
        most, grace = field(line, "MaxNodes"), field(line, "GraceTime")
        try:
            longest_s = time_limit_s(field(line, "MaxTime") or "UNLIMITED")
        except ConfigurationError as error:
            raise EngineError(f"Slurm says of partition {name}: {error}") from None
        found.append(
            Partition(
                name,
                int(nodes),
                int(most) if most.isdigit() else None,
                longest_s,
                int(grace) if grace.isdigit() else 0,
                field(line, "Default") == "YES",
            )
        )
    return tuple(found)


def chosen(wanted: Submission, all_of_them: Sequence[Partition]) -> list[Partition]:
    """Those that the job may run in; raises ConfigurationError for one that there is not."""
    said = wanted.option("partition")
    known = {one.name: one for one in all_of_them}
    if not said:
        found = [one for one in all_of_them if one.is_default]
        if not found:
            raise ConfigurationError(
                f"this cluster has no default partition: add --option partition=NAME, one of "
                f"{', '.join(known)}"
            )
        return found
    for name in said.split(","):
        if name not in known:
            raise ConfigurationError(
                f"there is no partition {name!r} here; there are {', '.join(known)}"
            )
    return [known[name] for name in said.split(",")]


def check_fits(wanted: Submission, places: Sequence[Partition]) -> None:
    """Raises ConfigurationError for what none of these partitions will ever start."""
    names = " and ".join(one.name for one in places)
    most = max(min(one.nodes, one.most_nodes or one.nodes) for one in places)
    if wanted.all_hosts > most:
        raise ConfigurationError(
            f"--hosts {wanted.hosts} and --spares {wanted.spares} are {wanted.all_hosts} nodes, "
            f"and a job of partition {names} gets {most} at most"
        )
    time, longest_s = wanted.option("time"), [one.longest_s for one in places]
    if not time or None in longest_s:
        return
    asked_s, limit_s = time_limit_s(time), max(one for one in longest_s if one is not None)
    if asked_s is None or asked_s > limit_s:
        raise ConfigurationError(
            f"--option time={time} is above the limit of partition {names}, "
            f"{seconds_in_words(limit_s)}: the job would wait for ever; a run goes on after its "
            "limit by itself"
        )


def grace_of(wanted: Submission, places: Sequence[Partition], config: str) -> Grace:
    """From the partitions' GraceTime and Slurm's KillWait, whichever is less, less a margin."""
    found = re.search(r"^KillWait\s*=\s*(\d{1,6}) sec", config, re.MULTILINE)
    limits = [("KillWait", int(found[1]))] if found else []
    limits += [(f"GraceTime of {one.name}", one.grace_s) for one in places if one.grace_s]
    if not limits:
        return Grace(None, "How long a preemption leaves is not known: see --grace.")
    name, least_s = min(limits, key=lambda one: one[1])
    seconds = max(1, least_s - min(MARGIN_S, least_s // 2))
    words = f"A preemption or scancel leaves {least_s} s ({name})"
    save_s = (wanted.save_ns or 0) / SECOND_NS
    if save_s > seconds:
        words += f"; a save takes {seconds_in_words(save_s)}, and that is longer"
    return Grace(seconds, f"{words}; the time limit is told {lead_s(wanted)} s ahead.")
