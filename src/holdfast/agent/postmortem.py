"""Why a rank ended: everything that can be known on this host, put together for the verdict.

A SIGKILL tells nobody who sent it. The kernel counts its own, per cgroup of the victim: in
`memory.events` (v2) or `memory.oom_control` (v1). A dead process has no cgroup any more, and a
wrapper may move a rank into another one after its start, so each rank is looked at while it lives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from signal import SIGKILL
from typing import Any

from holdfast.agent.launch import report_name
from holdfast.agent.output import RankOutput
from holdfast.agent.ranks import RankPages
from holdfast.agent.stacks import Collected
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.journal.layout import RankPhase
from holdfast.journal.rank_reports import read_report

LOOK_EVERY_NS = 500_000_000
_KEY = b"oom_kill"


class Postmortem:
    """Collects the ends of one attempt's ranks, whose live files are in `scratch`.

    Nothing is read from the run store: that may hang, and the loop waits for what is said here.
    """

    def __init__(self, scratch: Path, pages: RankPages, outputs: list[RankOutput]) -> None:
        self._scratch = scratch
        self._pages = pages
        self._outputs = {output.rank: output for output in outputs}
        self.oom = OomWatch()
        self._codes: dict[int, int | None] = {}
        self._reports: dict[int, RankReport] = {}
        self.asked_to_stop = False  # the ranks, by now
        self.stacks: dict[int, Collected] = {}
        """Where the ranks stood when they hung, by rank."""

    def exit_of(self, fields: Mapping[str, Any]) -> Exit:
        """The end of one rank, from what the reaper says and what the rank left behind."""
        rank, code, number = fields["rank"], fields["code"], fields["signal"]
        self._codes[rank] = -number if number is not None else code
        phase = self._pages.phase(rank)
        report = read_report(self._scratch / report_name(rank))
        if report is not None:
            self._reports[rank] = report
        return Exit(
            code=code,
            signal=number,
            core_dumped=bool(fields.get("core_dumped")),
            finished=phase is RankPhase.FINISHED,
            has_session=phase is not None,
            report=report,
            # 137: what a shell in between says of a command that died of a SIGKILL.
            oom_killed=(number == SIGKILL or code == 128 + SIGKILL) and self.oom.has_killed(rank),
            asked_to_stop=self.asked_to_stop,
        )

    def evidence(self) -> tuple[RankEvidence, ...]:
        """What is known of every rank's end."""
        found = []
        for rank, output in sorted(self._outputs.items()):
            report, hung = self._reports.get(rank), self.stacks.get(rank)
            one = RankEvidence(
                rank,
                self._codes.get(rank),
                tuple(output.last_lines),
                traceback=report.traceback if report else hung.traceback if hung else None,
                stacks=hung.text if hung else "",
                where=(hung.stack.where if hung else "") or "",
            )
            found.append(one)
        return tuple(found)


class OomWatch:
    """Whether the kernel killed a rank for want of memory.

    `root` is where cgroups are mounted, `proc` the process table.
    """

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> None:
        self._root = root
        self._proc = proc
        self._before: dict[Path, int] = {}
        self._seen_in: dict[int, set[Path]] = {}
        # The whole machine's count: only for a rank whose cgroup shows none.
        self._vmstat = proc / "vmstat"
        self._count_first(self._vmstat)
        self._next_look_ns = 0

    def look(self, pids: dict[int, int], now_ns: int) -> None:
        """Where the ranks (rank → pid) are now; a few times a second is often enough."""
        if not pids or now_ns < self._next_look_ns:
            return
        self._next_look_ns = now_ns + LOOK_EVERY_NS
        for rank, pid in pids.items():
            for counter in self._counters(pid):
                self._seen_in.setdefault(rank, set()).add(counter)
                self._count_first(counter)

    def has_killed(self, rank: int) -> bool:
        """Whether a count that concerns the rank has gone up."""
        counters = self._seen_in.get(rank) or {self._vmstat}
        return any((_count(path) or 0) > self._before[path] for path in counters)

    def _count_first(self, counter: Path) -> None:
        self._before.setdefault(counter, _count(counter) or 0)

    def _counters(self, pid: int) -> Iterator[Path]:
        """The counters of a process's cgroup that are there, by /proc/PID/cgroup (cgroups(7))."""
        try:
            lines = (self._proc / str(pid) / "cgroup").read_text(errors="replace").splitlines()
        except OSError:
            return
        for line in lines:
            number, controllers, path = line.split(":", 2)
            if number == "0":
                mounts, name = [self._root, self._root / "unified"], "memory.events"
            elif "memory" in controllers.split(","):
                mounts, name = [self._root / "memory"], "memory.oom_control"
            else:
                continue
            # In a container the mount may begin at the very cgroup that the path still names.
            places = [mount / part for mount in mounts for part in (path.lstrip("/"), "")]
            for counter in (place / name for place in places):
                if _count(counter) is not None:
                    yield counter
                    break


def _count(counter: Path) -> int | None:
    """How many the kernel has killed by this counter; None if it does not say."""
    try:
        lines = counter.read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(b" ")
        if name == _KEY and value.strip().isdigit():
            return int(value)
    return None
