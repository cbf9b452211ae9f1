"""What a live page shows of a run: what `holdfast report --html` does, kept up with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.cli.report_page import ENOUGH, FindingsSource, gains_of, look, source_of
from holdfast.journal.gathered import Gathered
from holdfast.journal.recorded import RecordedLedger
from holdfast.journal.store import RunFolder
from holdfast.report.findings import Findings, nearer
from holdfast.report.of_run import findings_of
from holdfast.report.overview import Gains
from holdfast.report.run_page import saves_of
from holdfast.serve.beside import Beside
from holdfast.serve.run_look import SeenRun


class Sights:
    """Sees runs of one store. What would raise goodput is worked out beside, and follows later."""

    def __init__(self, store: str | None, price_per_chip_hour: float | None) -> None:
        """`store` as it was named, if it was."""
        self._store = store
        self._price = price_per_chip_hour
        self._gains: Beside[Gathered, Gains] = Beside(
            ThreadPoolExecutor(1, thread_name_prefix="gains")
        )

    def __call__(self, folder: RunFolder, recorded: RecordedLedger) -> SeenRun:
        """Raises JournalError while nothing is recorded, HoldfastError when it cannot be read."""
        now_ns = max(recorded.now_ns(), recorded.facts.requested_ns or 0)
        findings = nearer(findings_of(folder, recorded, recorded.account(now_ns)), Path.cwd())
        source = source_of(recorded, now_ns, findings, self._store)
        gains, is_final = self._gains_of(folder, findings, source)
        view = look(findings, source, self._price, gains)
        return SeenRun(view, saves_of(findings.checkpoints), is_final)

    def _gains_of(
        self, folder: RunFolder, findings: Findings, source: FindingsSource
    ) -> tuple[Gains | None, bool]:
        """As of the last plan, and whether that is of all that is known."""
        disruptions = len(findings.account.disruptions)
        if disruptions < ENOUGH or source.gathered is None:
            return None, True
        gains, is_final = self._gains.get(
            folder.scratch_key, disruptions, source.gathered, gains_of
        )
        if gains is None and not is_final:
            return Gains((), "A plan is being fitted from what was recorded."), False
        return gains, is_final
