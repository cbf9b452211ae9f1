"""Why a rank ended: everything that can be known on this host, put together for the verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.agent.output import RankOutput
from holdfast.agent.ranks import RankPages
from holdfast.core import actions as act
from holdfast.core.exits import Exit, RankReport
from holdfast.journal.incidents import story_of
from holdfast.journal.layout import Phase
from holdfast.journal.store import RunFolder

REPORT_MAX_BYTES = 1 << 18


class Postmortem:
    """Collects the ends of one attempt's ranks."""

    def __init__(
        self, folder: RunFolder, attempt: int, pages: RankPages, outputs: list[RankOutput]
    ) -> None:
        self._folder = folder
        self._attempt = attempt
        self._pages = pages
        self._outputs = {output.rank: output for output in outputs}
        self._oom_kills = oom_kills()
        self._codes: dict[int, int | None] = {}
        self._reports: dict[int, RankReport] = {}

    def exit_of(self, fields: Mapping[str, Any], *, asked_to_stop: bool) -> Exit:
        """The end of one rank, from what the reaper says and what the rank left behind."""
        rank, code, number = fields["rank"], fields["code"], fields["signal"]
        self._codes[rank] = -number if number is not None else code
        phase = self._pages.phase(rank)
        report = self._read_report(rank)
        if report is not None:
            self._reports[rank] = report
        return Exit(
            code=code,
            signal=number,
            core_dumped=bool(fields.get("core_dumped")),
            finished=phase is Phase.FINISHED,
            has_session=phase is not None,
            report=report,
            oom_killed=number == 9 and oom_kills() > self._oom_kills,
            asked_to_stop=asked_to_stop,
        )

    def exits(self, ranks: int) -> tuple[int | None, ...]:
        """Every rank's exit code, -signal, or None."""
        return tuple(self._codes.get(rank) for rank in range(ranks))

    def incident(self, action: act.EndAttempt) -> dict[str, Any]:
        """The story of a disruption, as `incidents/incident.json` holds it."""
        rank = action.rank if action.rank is not None else min(self._outputs)
        report = self._reports.get(rank)
        return story_of(
            action.attempt,
            action.cause,
            action.words,
            exits=self.exits(len(self._outputs)),
            rank=action.rank,
            last_lines=self._outputs[rank].last_lines,
            traceback=report.traceback if report else None,
        )

    def _read_report(self, rank: int) -> RankReport | None:
        path = self._folder.ranks_dir(self._attempt) / f"rank-{rank:05d}.json"
        try:
            with path.open("rb") as file:
                data = json.loads(file.read(REPORT_MAX_BYTES))
            return RankReport(
                type=str(data["type"]),
                message=str(data["message"]),
                where=str(data["where"]),
                traceback=str(data["traceback"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory, as far as we can see.

    A cgroup's own count (v2, then v1) where it is visible; else the machine's, which may count a
    neighbour's. Only compared with an earlier value, and only for a rank that died of SIGKILL.
    """
    for path, key in (
        (Path("/sys/fs/cgroup/memory.events"), b"oom_kill"),
        (Path("/sys/fs/cgroup/memory/memory.oom_control"), b"oom_kill"),
        (Path("/proc/vmstat"), b"oom_kill"),
    ):
        try:
            lines = path.read_bytes().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = line.partition(b" ")
            if name == key and value.strip().isdigit():
                return int(value)
    return 0
