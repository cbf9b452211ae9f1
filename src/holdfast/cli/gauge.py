"""Goodput so far, for the status block: the ordinary ledger over the ordinary journals.

A thread of its own reads the run's folder every few seconds; what it shows is at most that old. A
store that cannot be read leaves the last value standing.
"""

from __future__ import annotations

import threading
from pathlib import Path

from holdfast.errors import HoldfastError

PERIOD_S = 3.0


class Gauge:
    """Reads while it is open; `text` is what there is to show."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._closing = threading.Event()
        self.text = ""
        threading.Thread(target=self._run, name="holdfast-gauge", daemon=True).start()

    def close(self) -> None:
        """No more readings; one under way ends by itself."""
        self._closing.set()

    def _run(self) -> None:
        from holdfast.journal.recorded import RecordedLedger  # numpy: only where somebody looks on

        recorded = RecordedLedger(self._run_dir)
        while not self._closing.wait(PERIOD_S):
            try:
                recorded.refresh()
                account = recorded.account()
            except (HoldfastError, OSError):
                continue
            if account.goodput is not None:
                self.text = (
                    f"{account.goodput:.1%} = {_share(account.scheduling_goodput)} scheduling "
                    f"× {_share(account.runtime_goodput)} runtime"
                )


def _share(value: float | None) -> str:
    return "—" if value is None else f"{value:.1%}"
