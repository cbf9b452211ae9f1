"""A fleet's report: all runs of a store together, as JSON and on a terminal.

Goodput is scheduling × runtime × program, as in A. Wongpanich et al., "Machine Learning Fleet
Efficiency", 2025 (arXiv:2502.06982). The denominator of scheduling goodput is the chip-time that
runs asked for, from each one's request on; with a capacity it is all chips of the fleet, so that
chips which nobody asked for count too. Program goodput is that of the runs which declared an ideal
step time; where none did it is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.core.ledger.account import NS_PER_S
from holdfast.core.summary import RunSummary, Spent, Window, fleet
from holdfast.core.visible import clean
from holdfast.report.document import NS_PER_CHIP_HOUR
from holdfast.report.kinds import words_of
from holdfast.report.terminal import WINDOW_WORDS
from holdfast.report.words import cause_in_words, chip_hours, counted, percent

FORMAT = 1
ROWS_SHOWN, CAUSES_SHOWN = 20, 8
NOT_KNOWN = "n/a"


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is told: the runs, the windows that are compared, and the one that is broken down.

    `capacity`: the fleet's chips; None: those that its runs asked for.
    """

    store: str
    now_ns: int
    runs: tuple[RunSummary, ...]
    windows: tuple[Window, ...]
    window: str
    capacity: int | None = None
    problems: tuple[str, ...] = ()

    def spent(self, window: str | None = None) -> Spent:
        """Of all runs in a window."""
        return fleet(self.runs, window or self.window)

    def scheduling(self, window: Window) -> float | None:
        """Scheduling goodput of a window; of no more than all where capacity is understated."""
        spent, from_ns = self.spent(window.name), window.from_ns
        if self.capacity is None:
            return spent.scheduling
        if from_ns is None:
            starts = [run.start_ns for run in self.runs if run.start_ns is not None]
            from_ns = min(starts, default=self.now_ns)
        whole = max(0, self.now_ns - from_ns) * self.capacity
        return min(1.0, spent.available / whole) if whole else None

    def states(self) -> dict[str, int]:
        """How many runs are in each state."""
        found: dict[str, int] = {}
        for run in self.runs:
            found[run.state] = found.get(run.state, 0) + 1
        return found

    def by_chip_hours(self) -> list[RunSummary]:
        """The runs that were there in the window, the greatest first."""
        there = [run for run in self.runs if run.spent(self.window).elapsed]
        return sorted(there, key=lambda run: (-run.spent(self.window).elapsed, run.name))


def document(told: Fleet) -> dict[str, Any]:
    """The JSON of docs/reference/fleet-json.md, in plain types."""
    spent = told.spent()
    return {
        "format": FORMAT,
        "store": told.store,
        "now": _iso(told.now_ns),
        "window": told.window,
        "capacity_chips": told.capacity,
        "states": told.states(),
        "fleet": {w.name: {"from": _iso(w.from_ns), **_factors(told, w)} for w in told.windows},
        "runs": [_run(run, told.windows) for run in told.runs],
        "causes": [
            {"cause": cause, "disruptions": count, "chip_hours": _hours(price)}
            for cause, count, price in spent.causes()
        ],
        "badput": [{"kind": k, "chip_hours": _hours(ns)} for k, ns in spent.badput()],
        "problems": list(told.problems),
    }


def _factors(told: Fleet, window: Window) -> dict[str, Any]:
    spent = told.spent(window.name)
    scheduling = told.scheduling(window)
    goodput = spent.goodput
    if told.capacity is not None and scheduling is not None and spent.runtime is not None:
        goodput = scheduling * spent.runtime
    return {
        **_shares(spent),
        "goodput": goodput,
        "scheduling_goodput": scheduling,
        "runs_with_ideal": sum(1 for run in told.runs if run.spent(window.name).paced),
    }


def _shares(spent: Spent) -> dict[str, Any]:
    return {
        "chip_hours": _hours(spent.elapsed),
        "productive_chip_hours": _hours(spent.productive),
        "goodput": spent.goodput,
        "scheduling_goodput": spent.scheduling,
        "runtime_goodput": spent.runtime,
        "program_goodput": spent.program,
        "steps_kept": spent.steps_kept,
        "lost_steps": spent.lost_steps,
        "disruptions": len(spent.losses),
    }


def _run(run: RunSummary, windows: Sequence[Window]) -> dict[str, Any]:
    return {
        "name": run.name,
        "run_id": run.run_id,
        "state": run.state,
        "why": run.why,
        "chips": run.chips,
        "attempts": run.attempts,
        "step": run.step,
        "saved_step": run.saved_step,
        "seen": _iso(run.seen_unix_ns),
        "from": _iso(run.start_ns),
        "to": _iso(run.end_ns),
        "windows": {w.name: _shares(run.spent(w.name)) for w in windows if w.name in run.within},
        "notes": list(run.notes),
    }


def show(told: Fleet, console: Console, *, every_run: bool = False) -> None:
    """Print it. `every_run`: also those beyond the first few."""
    for part in _parts(told, every_run):
        console.print(part, highlight=False)


def _parts(told: Fleet, every_run: bool) -> Iterator[RenderableType]:
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(told.states().items()))
    runs = counted(len(told.runs), "run")
    yield Text(clean(f"{told.store} · {runs}{f': {states}' if states else ''}"), style="bold")
    yield Text()
    yield _windows(told)
    within = "" if told.window == told.windows[0].name else f", {_window_words(told.window)}"
    yield Text()
    yield from _runs(told, every_run, within)
    spent = told.spent()
    if spent.losses:
        yield Text()
        yield _causes(spent, within)
    if spent.badput():
        yield Text()
        yield _badput(spent, within)
    if not any(told.spent(w.name).paced for w in told.windows):
        yield Text()
        yield Text(
            f"program goodput is {NOT_KNOWN}: no run says what a step should take "
            "(holdfast run --ideal-step S)",
            style="dim",
        )
    for problem in told.problems:
        yield Text.assemble(("note: ", "bold"), clean(problem))


def _windows(told: Fleet) -> Table:
    table = _table("", "goodput", "scheduling", "runtime", "program", "chip-hours", "disruptions")
    for window in told.windows:
        factors = _factors(told, window)
        table.add_row(
            _window_words(window.name),
            Text(percent(factors["goodput"]), style="bold"),
            percent(factors["scheduling_goodput"]),
            percent(factors["runtime_goodput"]),
            _program(factors["program_goodput"]),
            chip_hours(told.spent(window.name).elapsed),
            f"{factors['disruptions']:,}",
        )
    return table


def _runs(told: Fleet, every_run: bool, within: str) -> Iterator[RenderableType]:
    rows = told.by_chip_hours()
    shown = rows if every_run else rows[:ROWS_SHOWN]
    table = _table(
        f"run{within}", "state", "chips", "chip-hours", "goodput", "sched.", "runtime", "program",
        "disr.", "lost most to", text=(0, 1, 9),
    )  # fmt: skip
    for run in shown:
        spent = run.spent(told.window)
        worst = next((words_of(kind) for kind, _ in spent.badput()), "")
        table.add_row(
            Text(clean(run.name), style="bold"),
            run.state,
            f"{run.chips:,}",
            chip_hours(spent.elapsed),
            percent(spent.goodput),
            percent(spent.scheduling),
            percent(spent.runtime),
            _program(spent.program),
            f"{len(spent.losses):,}",
            Text(clean(worst), style="dim"),
        )
    if shown:
        yield table
    if rest := rows[len(shown) :]:
        hours = chip_hours(sum(run.spent(told.window).elapsed for run in rest))
        yield Text(f"… and {counted(len(rest), 'run')} more, {hours} chip-hours: --all shows them")


def _causes(spent: Spent, within: str) -> Table:
    table = _table(f"top causes{within}", "disruptions", "chip-hours", "of all")
    for cause, count, price in spent.causes()[:CAUSES_SHOWN]:
        share = price / spent.elapsed if spent.elapsed else None
        words = Text(clean(cause_in_words(cause)))
        table.add_row(words, f"{count:,}", chip_hours(price), percent(share))
    return table


def _badput(spent: Spent, within: str) -> Table:
    table = _table(f"badput{within}", "chip-hours", "of all")
    for kind, ns in spent.badput()[:CAUSES_SHOWN]:
        share = ns / spent.elapsed if spent.elapsed else None
        table.add_row(Text(clean(words_of(kind))), chip_hours(ns), percent(share))
    return table


def _table(*headings: str, text: tuple[int, ...] = (0,)) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for column, heading in enumerate(headings):
        table.add_column(heading, justify="left" if column in text else "right", no_wrap=True)
    return table


def _window_words(name: str) -> str:
    words = {"all": "since the beginning", **WINDOW_WORDS}
    return words.get(name, f"last {name.removesuffix('d')} days" if name.endswith("d") else name)


def _program(share: float | None) -> str:
    return NOT_KNOWN if share is None else percent(share)


def _hours(chip_ns: int) -> float:
    return chip_ns / NS_PER_CHIP_HOUR


def _iso(unix_ns: int | None) -> str | None:
    if unix_ns is None:
        return None
    return datetime.fromtimestamp(unix_ns / NS_PER_S, UTC).isoformat(timespec="milliseconds")
