"""Slurm: when the job ends, and what will be done to its node; `scontrol` tells, asked seldom.

A job's `EndTime` moves when its limit is changed, and comes near when it is preempted (by then the
partition's `GraceTime`). Drains and maintenance reservations send no signal at all. The plain
output is read, one line a record: releases differ in whether `scontrol` writes JSON, and in what.
Its dates have no zone, so it is run with UTC as its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from holdfast.core.durations import SECOND_NS
from holdfast.core.notices.board import NoticeAction, NoticeState
from holdfast.errors import ConfigurationError
from holdfast.notices.protocol import News, SourceSurroundings, Tools, Trouble, Watch
from holdfast.notices.said import Said, SourceMemory

POLL_S = 60.0  # each host of the job asks the same controller
SELDOM = 5  # polls; of what is announced hours ahead
SHORTEST_POLL_S, LONGEST_POLL_S = 0.1, 3600.0
LIMIT_S = 20.0
END_LIMIT_S = 1.0
OUTPUT_LIMIT_BYTES = 4 << 20
MOST_NODE_LISTS = 100
NO_DATES = ("", "Unknown", "None", "N/A", "(null)")
LEAVING = {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"}


@dataclass(frozen=True, slots=True)
class Reservation:
    """A maintenance reservation; `nodes` as Slurm writes lists of them: n[1-4]."""

    name: str
    start_unix_ns: int
    end_unix_ns: int
    nodes: str


def job_end(text: str) -> Said | None:
    """When a job ends: its time limit, or the grace period of its preemption; None: unlimited.

    Raises Trouble for a text that is no job.
    """
    if not _field(text, "JobId"):
        raise Trouble(f"scontrol says {text[:40]!r} instead of a job")
    end_unix_ns = _moment(_field(text, "EndTime"))
    if _moment(_field(text, "PreemptTime")) is not None:
        return Said(NoticeAction.TERMINATE, "the job is preempted", at_unix_ns=end_unix_ns)
    if end_unix_ns is None or _field(text, "TimeLimit") == "UNLIMITED":
        return None
    return Said(NoticeAction.TIME_LIMIT, "the job's end", at_unix_ns=end_unix_ns)


def record_of(text: str, job: str) -> str:
    """The job's own line: under the number of an array's first task all of its tasks stand."""
    found = (line for line in text.splitlines() if _field(line, "JobId") == job)
    return next(found, text)


def node_leaves(text: str) -> Said | None:
    """Whether a node is drained, and why; raises Trouble for a text that is no node."""
    states = _field(text, "State").upper().rstrip("*$@~#!%^-").split("+")
    if not _field(text, "NodeName"):
        raise Trouble(f"scontrol says {text[:40]!r} instead of a node")
    if not LEAVING.intersection(states):
        return None
    reason = _field(text, "Reason")
    return Said(NoticeAction.DRAIN, f"the node is drained: {reason}" if reason else "drained")


def maintenances(text: str) -> list[Reservation]:
    """The maintenance reservations of all nodes; raises Trouble for a text that has none."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("No reservations in the system"):
            continue
        name = _field(line, "ReservationName")
        start, end = (_moment(_field(line, key)) for key in ("StartTime", "EndTime"))
        if not name or start is None or end is None:
            raise Trouble(f"scontrol says {line[:40]!r} instead of a reservation")
        if "MAINT" in _field(line, "Flags").split(","):
            found.append(Reservation(name, start, end, _field(line, "Nodes")))
    return found


def _field(line: str, key: str) -> str:
    """A field's text, which may have blanks in it; "" if it is not there."""
    # One blank at a time: where many are, a search for the field's end would start at each of them.
    found = re.search(rf"(?:^| ){key}=(.*?)(?= [A-Z][\w:/]*=|$)", " ".join(line.split()))
    return found[1].strip() if found else ""


def _moment(text: str) -> int | None:
    if text in NO_DATES:
        return None
    try:
        moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        raise Trouble(f"{text[:40]!r} is no date") from None
    return int(moment.timestamp()) * SECOND_NS


class Slurm:
    """The controller, as `scontrol` asks it about this job and this node."""

    name = "slurm"

    def __init__(
        self,
        scontrol: str,
        job: str,
        tools: Tools,
        around: SourceSurroundings,
        poll_s: float = POLL_S,
    ) -> None:
        self._scontrol, self._job, self._tools = scontrol, job, tools
        self._poll_s = poll_s
        self._node = around.environment.get("SLURMD_NODENAME", "")
        self._environment = {**around.environment, "TZ": "UTC", "LC_ALL": "C"}
        self._environment.pop("SLURM_TIME_FORMAT", None)
        self._memory, self._reserved = (
            SourceMemory(self.name, tools),
            SourceMemory(self.name, tools),
        )
        self._job_said = ""  # by the last answer about the job
        self._expanded: dict[str, list[str]] = {}  # lists of nodes, by how Slurm writes them

    @property
    def watches(self) -> Sequence[Watch]:
        """The job's end; of a node that is known its state and the maintenance reservations."""
        of_the_node = (self._watch_node, self._watch_reservations) if self._node else ()
        return self._watch_job, *of_the_node

    async def _watch_job(self) -> News:
        while True:
            end = job_end(await self._ask_job())
            yield self._memory.news("job", end)
            await self._tools.sleep(self._poll_s)

    async def _watch_node(self) -> News:
        while True:
            leaves = node_leaves(await self._ask("--oneliner", "show", "node", self._node))
            yield self._memory.news("node", leaves)
            await self._tools.sleep(SELDOM * self._poll_s)

    async def _watch_reservations(self) -> News:
        while True:
            yield self._reserved.all_news(await self._reservations())
            await self._tools.sleep(SELDOM * self._poll_s)

    async def _ask_job(self) -> str:
        told = await self._ask("--oneliner", "show", "job", self._job)
        self._job_said = record_of(told, self._job)
        return self._job_said

    async def _reservations(self) -> dict[str, Said]:
        """What the maintenance reservations of this node announce, as far as the job lasts."""
        says = {}
        found = maintenances(await self._ask("--oneliner", "show", "reservation"))
        job = self._job_said or await self._ask_job()
        end, now_unix_ns = job_end(job), self._tools.clock().unix_ns
        for one in found:
            is_after_us = end is not None and one.start_unix_ns >= (end.at_unix_ns or 0)
            is_ours = one.name == _field(job, "Reservation")  # the job was made for it
            if is_after_us or is_ours or one.end_unix_ns <= now_unix_ns:
                continue
            if self._node not in await self._nodes(one.nodes):
                continue
            has_come = one.start_unix_ns <= now_unix_ns
            says[f"reservation {one.name}"] = Said(
                NoticeAction.TERMINATE,
                f"maintenance reservation {one.name}",
                NoticeState.STARTED if has_come else NoticeState.SCHEDULED,
                at_unix_ns=None if has_come else one.start_unix_ns,
            )
        return says

    async def _nodes(self, listed: str) -> list[str]:
        """The names in a list such as n[1-4]."""
        if listed in NO_DATES:
            return []
        if listed not in self._expanded:
            if len(self._expanded) >= MOST_NODE_LISTS:
                self._expanded.clear()
            self._expanded[listed] = (await self._ask("show", "hostnames", listed)).split()
        return self._expanded[listed]

    async def _ask(self, *words: str) -> str:
        """What `scontrol` prints; raises Trouble where it fails, prints too much or takes long."""
        try:
            process = await asyncio.create_subprocess_exec(
                self._scontrol,
                *words,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                env=self._environment,
            )
        except (OSError, ValueError) as error:
            raise Trouble(f"{self._scontrol} cannot be run: {error}") from None
        try:
            async with asyncio.timeout(LIMIT_S):
                printed, complaint = await _bounded(process.stdout), await _bounded(process.stderr)
                status = await process.wait()
        except TimeoutError:
            raise Trouble(f"scontrol has not answered within {LIMIT_S:g} s") from None
        finally:
            await _end(process)
        if status != 0:
            why = " ".join(complaint.split())[:100]
            raise Trouble(f"scontrol {' '.join(words)} fails with {status}: {why}")
        return printed


async def _bounded(stream: asyncio.StreamReader | None) -> str:
    """All that comes, as text; raises Trouble above the limit."""
    read = bytearray()
    while stream is not None and (chunk := await stream.read(1 << 16)):
        read += chunk
        if len(read) > OUTPUT_LIMIT_BYTES:
            raise Trouble(f"scontrol prints more than {OUTPUT_LIMIT_BYTES} bytes")
    return read.decode("utf-8", "replace").strip()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let go of it whatever it does, and of what it has still to say."""
    with contextlib.suppress(ProcessLookupError, TimeoutError):
        if process.returncode is None:
            process.kill()
        async with asyncio.timeout(END_LIMIT_S):
            await process.communicate()


def make(option: str, tools: Tools, around: SourceSurroundings) -> Slurm:
    """Of the path of `scontrol`, looked up in PATH where none is given, and how often it is asked.

    `PATH@SECONDS`, either of them alone, or nothing. Raises ConfigurationError outside a job, and
    for seconds that are not valid.
    """
    job = around.environment.get("SLURM_JOB_ID", "")
    if not re.fullmatch(r"[0-9]{1,12}", job):
        raise ConfigurationError(
            f"slurm tells of a job, and SLURM_JOB_ID is {job!r} here: use it inside one"
        )
    scontrol, is_told, seconds = option.rpartition("@")
    if not is_told:
        return Slurm(option or "scontrol", job, tools, around)
    try:
        poll_s = float(seconds)
    except ValueError:
        poll_s = 0.0
    if not SHORTEST_POLL_S <= poll_s <= LONGEST_POLL_S:
        raise ConfigurationError(
            f"slurm:{option}: behind the @ stands how often the controller is asked, in seconds "
            f"from {SHORTEST_POLL_S:g} to {LONGEST_POLL_S:g}, for example slurm:@10"
        )
    return Slurm(scontrol or "scontrol", job, tools, around, poll_s)
