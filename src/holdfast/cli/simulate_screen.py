"""Simulated runs on a terminal: one screen, the same without colour and in plain ASCII."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, RenderableType
from rich.progress import Progress
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from holdfast.cli.plan_screen import fitted_table, page_for, print_pieces
from holdfast.report.bars import bar
from holdfast.report.kinds import style_of
from holdfast.report.terminal import Page
from holdfast.report.words import counted, percent
from holdfast.sim.durations import in_words
from holdfast.sim.fitted import Fitted
from holdfast.sim.replicate import Found, Spread

Told = Callable[[int, int], None]


def progress_of(console: Console) -> Callable[[str], Told]:
    """A maker of what is told (done, of how many): a bar, where there is a terminal."""

    def of(name: str) -> Told:
        if not console.is_terminal:
            return lambda _done, _all: None
        progress = Progress(console=console, transient=True)
        task = progress.add_task(name or "simulating", total=None)

        def show(done: int, count: int) -> None:
            if done == 0:
                progress.start()
            progress.update(task, completed=done, total=count)
            if done == count:
                progress.stop()

        return show

    return of


def show(
    found: Sequence[Found],
    console: Console,
    notes: Sequence[str] = (),
    fitted: Sequence[Fitted] = (),
) -> None:
    """Print it."""
    page = page_for(console)
    pieces = [*_pieces(found, page, notes)]
    if fitted:
        pieces += [Text(), fitted_table(fitted)]
    print_pieces(pieces, page, console)


def _pieces(found: Sequence[Found], page: Page, notes: Sequence[str]) -> Iterator[RenderableType]:
    dot, first = page.glyph(" · ", " | "), found[0]
    fleet = first.scenario.fleet
    facts = [
        counted(fleet.hosts, "host"),
        counted(fleet.chips, "chip"),
        in_words(first.scenario.duration_s),
        counted(len(first.outcomes), "run"),
    ]
    words = Text.assemble(("simulated", "bold"), dot, dot.join(facts))
    yield Rule(words, align="left", characters=page.glyph("─", "-"), style="dim")
    yield Text()
    for note in notes:
        yield Text(note, "dim")
    yield _outcomes(found, page)
    for one in found:
        if one.stops.mean:
            yield Text()
            yield Text(_given_up(one), style_of("lost").colour)
    yield Text()
    yield _where_it_went(found, page)
    yield Text()
    events = sum(outcome.events for one in found for outcome in one.outcomes)
    wall_s = sum(one.wall_s for one in found)
    yield Text(f"{events:,} events in {in_words(wall_s)}", "dim")


def _outcomes(found: Sequence[Found], page: Page) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("" if len(found) == 1 else "policy")
    for head in ("goodput", "nine runs of ten", "scheduling", "runtime", "disruptions"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in found:
        table.add_row(
            one.name,
            Text(percent(one.goodput.mean), f"bold {style_of('step').colour}"),
            _between(one.goodput, page, len(one.outcomes)),
            percent(one.scheduling_goodput.mean),
            percent(one.runtime_goodput.mean),
            f"{one.disruptions.mean:,.0f}",
        )
    return table


def _between(spread: Spread, page: Page, runs: int) -> str:
    if runs == 1:  # which says nothing of others
        return page.glyph("—", "-")
    return f"{percent(spread.low)[:-2]} {page.glyph('–', '-')} {percent(spread.high)}"


def _given_up(one: Found) -> str:
    name = f"{one.name}: " if one.name else ""
    return (
        f"{name}{one.stops.mean:.1f} times a run its supervisor gave up and left it to a person, "
        f"who is taken to have started it again at once: {one.why_stopped}"
    )


def _where_it_went(found: Sequence[Found], page: Page) -> Table:
    """The rest of the time by kind, of the first policy drawn as well."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("where the rest went")
    for one in found:
        table.add_column(one.name or "share", justify="right")
    kinds = {kind: share for one in found for kind, share in one.badput.items()}
    worst = max(kinds.values(), default=0.0) or 1.0
    for kind in sorted(kinds, key=lambda kind: -kinds[kind]):
        shares = [one.badput.get(kind, 0.0) for one in found]
        drawn = bar(0, shares[0] / worst, 24, ascii_only=page.ascii_only)
        bars = [Text(drawn, style_of(kind).colour)] if len(found) == 1 else []
        table.add_row(kind, *(percent(share) for share in shares), *bars)
    return table
