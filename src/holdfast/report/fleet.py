"""A fleet's report: all runs of a store together, as JSON and on a terminal.

Goodput is scheduling × runtime; program, the third factor of A. Wongpanich et al., "Machine
Learning Fleet Efficiency", 2025 (arXiv:2502.06982), stands beside it. The denominator of scheduling
goodput is the chip-time that runs asked for, from each one's request on; with a capacity it is all
chips of the fleet, so that chips which nobody asked for count too. Program goodput is that of the
runs of which it is known what a step would take at best, by its FLOPs or by `--ideal-step`, without
those whose steps took less than they can; where there are none it is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table as Rich
from rich.text import Text

from holdfast.core.ledger.summary import RunSummary, Spent, Window, fleet
from holdfast.report.charts import Table
from holdfast.report.document import NS_PER_CHIP_HOUR
from holdfast.report.kinds import words_of
from holdfast.report.terminal import WINDOW_WORDS
from holdfast.report.whole import print_whole
from holdfast.report.words import cause_in_words, chip_hours, counted, iso, money, percent

FORMAT = 1
ROWS_SHOWN, CAUSES_SHOWN = 20, 8
NOT_KNOWN = "n/a"


@dataclass(frozen=True, slots=True)
class FleetReport:
    """What is told: the runs, the windows that are compared, and the one that is broken down.

    `capacity`: the fleet's chips; None: those that its runs asked for. `price_per_chip_hour`: in
    any currency; None: losses are told in chip-hours alone.
    """

    store: str
    now_ns: int
    runs: tuple[RunSummary, ...]
    windows: tuple[Window, ...]
    window: str
    capacity: int | None = None
    problems: tuple[str, ...] = ()
    price_per_chip_hour: float | None = None

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

    def cost(self, chip_ns: int) -> float | None:
        """What so much chip-time costs; None: no price was given."""
        price = self.price_per_chip_hour
        return None if price is None else chip_ns / NS_PER_CHIP_HOUR * price

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


def document(fleet: FleetReport) -> dict[str, Any]:
    """The JSON of docs/reference/fleet-json.md, in plain types."""
    spent = fleet.spent()
    return {
        "format": FORMAT,
        "store": fleet.store,
        "now": iso(fleet.now_ns),
        "window": fleet.window,
        "capacity_chips": fleet.capacity,
        "price_per_chip_hour": fleet.price_per_chip_hour,
        "states": fleet.states(),
        "fleet": {w.name: {"from": iso(w.from_ns), **_factors(fleet, w)} for w in fleet.windows},
        "runs": [_run(run, fleet.windows) for run in fleet.runs],
        "causes": [
            {"cause": cause, "disruptions": count, **_price(fleet, price)}
            for cause, count, price in spent.causes()
        ],
        "errors": [
            {
                "cause": one.cause,
                "error": one.error or None,
                "disruptions": one.disruptions,
                **_price(fleet, one.chip_ns),
            }
            for one in spent.errors()
        ],
        "badput": [{"kind": kind, **_price(fleet, ns)} for kind, ns in spent.badput()],
        "problems": list(fleet.problems),
    }


def _price(fleet: FleetReport, chip_ns: int) -> dict[str, float | None]:
    return {"chip_hours": _hours(chip_ns), "cost": fleet.cost(chip_ns)}


def _factors(fleet: FleetReport, window: Window) -> dict[str, Any]:
    spent = fleet.spent(window.name)
    scheduling = fleet.scheduling(window)
    goodput = spent.goodput
    if fleet.capacity is not None and scheduling is not None and spent.runtime is not None:
        goodput = scheduling * spent.runtime
    return {
        **_shares(spent),
        "goodput": goodput,
        "scheduling_goodput": scheduling,
        "runs_with_ideal": sum(1 for run in fleet.runs if _is_paced(run.spent(window.name))),
    }


def _is_paced(spent: Spent) -> bool:
    return spent.paced > 0 and not spent.is_beyond_ideal


def _shares(spent: Spent) -> dict[str, Any]:
    return {
        "chip_hours": _hours(spent.elapsed),
        "left_out_chip_hours": _hours(spent.left_out),
        "productive_chip_hours": _hours(spent.productive),
        "goodput": spent.goodput,
        "scheduling_goodput": spent.scheduling,
        "runtime_goodput": spent.runtime,
        "program_goodput": spent.program,
        "program_goodput_of_reached": spent.program_of_reached,
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
        "seen": iso(run.seen_unix_ns),
        "from": iso(run.start_ns),
        "to": iso(run.end_ns),
        "device": run.device or None,
        "peak_flops": run.peak_flops or None,
        "reached_flops": run.reached_flops or None,
        "windows": {w.name: _shares(run.spent(w.name)) for w in windows if w.name in run.within},
        "notes": list(run.notes),
    }


def show(fleet: FleetReport, console: Console, *, every_run: bool = False) -> None:
    """Print it. `every_run`: also those beyond the first few."""
    for part in _parts(fleet, every_run):
        if isinstance(part, Rich):
            print_whole(console, part)
        else:
            console.print(part, highlight=False)


def headline(fleet: FleetReport) -> str:
    """Where, how many runs, and how they are."""
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(fleet.states().items()))
    runs = counted(len(fleet.runs), "run")
    return f"{fleet.store} · {runs}{f': {states}' if states else ''}"


def notes(fleet: FleetReport) -> list[str]:
    """What the tables do not say."""
    found = []
    if left_out := fleet.spent().left_out:
        found.append(
            f"{chip_hours(left_out)} chip-hours of being stopped are left out "
            f"(--without-stopped){_within(fleet)}"
        )
    window = fleet.windows[0].name
    if beyond := [run.name for run in fleet.runs if run.spent(window).is_beyond_ideal]:
        found.append(
            f"program goodput leaves out {counted(len(beyond), 'run')}, {beyond[0]!r} first: its "
            "steps took less than they can, so what a step should take is wrong (holdfast report "
            "RUN says what is likelier)"
        )
    if not any(fleet.spent(w.name).paced for w in fleet.windows):
        found.append(
            f"program goodput is {NOT_KNOWN}: no run says what a step should take "
            "(run.flops, or holdfast run --flops-per-step N or --ideal-step S)"
        )
    if _reached_head(fleet):
        found.append(
            "program is the share of the data sheet's peak (of the measured one where there is no "
            "sheet); of reached, that of the peak which holdfast calibrate measured"
        )
    return [*found, *fleet.problems]


def _within(fleet: FleetReport) -> str:
    """The window that most tables are of; "": it has everything."""
    return "" if fleet.window == fleet.windows[0].name else f", {_window_words(fleet.window)}"


def _parts(fleet: FleetReport, every_run: bool) -> Iterator[RenderableType]:
    yield Text(headline(fleet), style="bold")
    for table in tables(fleet, ROWS_SHOWN if not every_run else len(fleet.runs)):
        yield Text()
        yield _printed(table)
        if table.rest:
            yield Text(f"… and {table.rest}: --all shows them")
    yield Text()
    for note in notes(fleet):
        yield Text.assemble(("note: ", "bold"), note)


@dataclass(frozen=True, slots=True)
class FleetTable(Table):
    """A table for a screen or a page; `texts`: columns of words; `rest`: the rows left out."""

    texts: tuple[int, ...] = (0,)
    rest: str = ""


def tables(fleet: FleetReport, most_runs: int) -> Iterator[FleetTable]:
    """All tables that have rows: the windows, the runs, the causes and badput."""
    within, spent = _within(fleet), fleet.spent()
    yield _windows(fleet)
    for table in (_runs(fleet, most_runs, within), _causes(fleet, spent, within),
                  _badput(fleet, spent, within)):  # fmt: skip
        if table.rows:
            yield table


def _windows(fleet: FleetReport) -> FleetTable:
    heads = ("", "goodput", "scheduling", "runtime", "program", *_reached_head(fleet),
             "chip-hours", "disruptions")  # fmt: skip
    rows = []
    for window in fleet.windows:
        factors, elapsed = _factors(fleet, window), fleet.spent(window.name).elapsed
        cells = (
            _window_words(window.name),
            percent(factors["goodput"]),
            percent(factors["scheduling_goodput"]),
            percent(factors["runtime_goodput"]),
            _program(factors["program_goodput"]),
            *_reached(fleet, factors["program_goodput_of_reached"]),
            chip_hours(elapsed),
            f"{factors['disruptions']:,}",
        )
        rows.append((*cells, *_money(fleet, elapsed)))
    return FleetTable((*heads, *_money_head(fleet)), tuple(rows))


def _runs(fleet: FleetReport, most: int, within: str) -> FleetTable:
    heads = (f"run{within}", "state", "chips", "chip-hours", "goodput", "sched.", "runtime",
             "program", *_reached_head(fleet), "disr.")  # fmt: skip
    found = fleet.by_chip_hours()
    rows = []
    for run in found[:most]:
        spent = run.spent(fleet.window)
        cells = (
            run.name,
            run.state,
            f"{run.chips:,}",
            chip_hours(spent.elapsed),
            percent(spent.goodput),
            percent(spent.scheduling),
            percent(spent.runtime),
            _program(spent.program),
            *_reached(fleet, spent.program_of_reached),
            f"{len(spent.losses):,}",
        )
        worst = next((words_of(kind) for kind, _ in spent.badput()), "")
        rows.append((*cells, *_money(fleet, spent.elapsed), worst))
    rest = ""
    if left := found[most:]:
        hours = chip_hours(sum(run.spent(fleet.window).elapsed for run in left))
        rest = f"{counted(len(left), 'run')} more, {hours} chip-hours"
    whole = (*heads, *_money_head(fleet), "lost most to")
    return FleetTable(whole, tuple(rows), (0, 1, len(whole) - 1), rest)


def _causes(fleet: FleetReport, spent: Spent, within: str) -> FleetTable:
    rows = []
    for one in spent.errors()[:CAUSES_SHOWN]:
        words = cause_in_words(one.cause)
        share = percent(one.chip_ns / spent.elapsed if spent.elapsed else None)
        why = f"{words}: {_near(one.error)}" if one.error else words
        cells = why, f"{one.disruptions:,}", chip_hours(one.chip_ns), share
        rows.append((*cells, *_money(fleet, one.chip_ns)))
    heads = (f"top causes{within}", "disruptions", "chip-hours", "of all", *_money_head(fleet))
    return FleetTable(heads, tuple(rows))


def _badput(fleet: FleetReport, spent: Spent, within: str) -> FleetTable:
    rows = []
    for kind, ns in spent.badput()[:CAUSES_SHOWN]:
        share = percent(ns / spent.elapsed if spent.elapsed else None)
        rows.append((words_of(kind), chip_hours(ns), share, *_money(fleet, ns)))
    return FleetTable((f"badput{within}", "chip-hours", "of all", *_money_head(fleet)), tuple(rows))


def _near(error: str) -> str:
    """`ValueError at lm/train.py:41`: the folders above say nothing more."""
    kind, at, where = error.rpartition(" at ")
    return f"{kind}{at}{'/'.join(where.split('/')[-2:])}"


def _money_head(fleet: FleetReport) -> tuple[str, ...]:
    return () if fleet.price_per_chip_hour is None else ("cost",)


def _money(fleet: FleetReport, chip_ns: int) -> tuple[str, ...]:
    cost = fleet.cost(chip_ns)
    return () if cost is None else (money(cost),)


def _printed(table: FleetTable) -> RenderableType:
    printed = Rich(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for column, heading in enumerate(table.heads):
        side: Literal["left", "right"] = "left" if column in table.texts else "right"
        printed.add_column(heading, justify=side, no_wrap=True)
    for row in table.rows:
        printed.add_row(*map(Text, row))
    return printed


def _window_words(name: str) -> str:
    words = {"all": "since the beginning", **WINDOW_WORDS}
    return words.get(name, f"last {name.removesuffix('d')} days" if name.endswith("d") else name)


def _program(share: float | None) -> str:
    return NOT_KNOWN if share is None else percent(share)


def _reached_head(fleet: FleetReport) -> tuple[str, ...]:
    """A column of its own, where any device was calibrated."""
    is_known = any(fleet.spent(w.name).calibrated for w in fleet.windows)
    return ("of reached",) if is_known else ()


def _reached(fleet: FleetReport, share: float | None) -> tuple[str, ...]:
    return (_program(share),) if _reached_head(fleet) else ()


def _hours(chip_ns: int) -> float:
    return chip_ns / NS_PER_CHIP_HOUR
