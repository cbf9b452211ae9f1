"""Why a rank ended: everything that can be known on this host, put together for the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from signal import SIGKILL
from typing import Any

from holdfast.agent.launch import report_name
from holdfast.agent.oom import OomWatch
from holdfast.agent.output import RankOutput
from holdfast.agent.ranks import RankPages
from holdfast.agent.stacks import Collected
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.journal.layout import RankPhase
from holdfast.journal.rank_reports import read_report


class Postmortem:
    """Collects the ends of one attempt's ranks, whose live files are in `scratch`.

    Nothing is read from the run store: that may hang, and the loop waits for what is said here.
    """

    def __init__(self, scratch: Path, pages: RankPages, outputs: list[RankOutput]) -> None:
        self._scratch = scratch
        self._pages = pages
        self._outputs = {output.rank: output for output in outputs}
        self._oom = OomWatch()
        self._codes: dict[int, int | None] = {}
        self._reports: dict[int, RankReport] = {}
        self.stacks: dict[int, Collected] = {}
        """Where the ranks stood when they hung, by rank."""

    def look(self, pids: dict[int, int], now_ns: int) -> None:
        """What can only be seen of a rank while it lives."""
        self._oom.look(pids, now_ns)

    def exit_of(self, fields: Mapping[str, Any], *, asked_to_stop: bool) -> Exit:
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
            oom_killed=(number == SIGKILL or code == 128 + SIGKILL) and self._oom.has_killed(rank),
            asked_to_stop=asked_to_stop,
        )

    def evidence(self) -> tuple[RankEvidence, ...]:
        """What is known of every rank's end."""
        return tuple(self._of(rank) for rank in sorted(self._outputs))

    def _of(self, rank: int) -> RankEvidence:
        report, hung = self._reports.get(rank), self.stacks.get(rank)
        return RankEvidence(
            rank,
            self._codes.get(rank),
            tuple(self._outputs[rank].last_lines),
            traceback=report.traceback if report else hung.traceback if hung else None,
            stacks=hung.text if hung else "",
            where=(hung.stack.where if hung else "") or "",
        )
