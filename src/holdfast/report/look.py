"""A recorded run to look at in a notebook: its account, and the charts of its page."""

from __future__ import annotations

from typing import Any

from holdfast.config import run_store
from holdfast.core.ledger.account import Account
from holdfast.core.ledger.course import Course
from holdfast.core.ledger.step_times import StepTimes
from holdfast.journal.live import live_journals
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunStore
from holdfast.report.charts import notebook_chart
from holdfast.report.run_charts import lost_time, step_times, time_line

NOTEBOOK_PIECES = 2_000  # of a time line that the reader may zoom


class Look:
    """A recorded run, as it was when `holdfast.look` was called.

    Its charts are those of the page that `holdfast report --html` writes. Each raises
    ConfigurationError where the extra `dashboard` is not installed.
    """

    def __init__(self, account: Account, course: Course, steps: StepTimes) -> None:
        self.account = account
        """Where the time went: `goodput`, `kinds`, `disruptions` and the rest."""
        self._course = course
        self._steps = steps

    def timeline(self) -> Any:
        """The time line as an Altair chart, each moment in the colour of its kind; it zooms."""
        figure = time_line(self._course, self.account, NOTEBOOK_PIECES, dated=True)
        return notebook_chart(figure).interactive(bind_y=False)

    def badput(self) -> Any:
        """From all time, loss by loss, to goodput, as an Altair chart."""
        return notebook_chart(lost_time(self.account))

    def step_times(self) -> Any:
        """Step time over the run, as an Altair chart."""
        return notebook_chart(step_times(self._course, self._steps, dated=True))

    def __repr__(self) -> str:
        goodput = "unknown" if self.account.goodput is None else f"{self.account.goodput:.1%}"
        return f"<Look at {self.account.name}: goodput {goodput}>"


def look(name: str, *, store: str | None = None) -> Look:
    """Read what the run of that name has recorded; it may be under way.

    `store`: where runs live; by default as for the commands. Raises UnknownRun, StoreUnavailable,
    and JournalError when the run has left nothing that can be read.
    """
    folder = RunStore.at(run_store(store)).get(name)
    recorded = load_run(folder.path, live_journals(folder))
    now_ns = recorded.asked_ns
    account = recorded.account(now_ns)
    return Look(account, recorded.ledger.course(now_ns), recorded.ledger.step_times(now_ns))
