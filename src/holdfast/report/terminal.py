"""The report on a terminal: the headline, the table, and a story for each disruption.

It reads the same without colour, on a screen of 80 columns, and in plain ASCII: every bar has its
name and its number beside it, and the level of a piece of the time line is its shading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from holdfast.core.ledger.account import Account, Disruption
from holdfast.core.ledger.kinds import COMPILE, STEP, Level, level_of
from holdfast.core.ledger.program import Basis
from holdfast.core.visible import clean
from holdfast.report import host_findings
from holdfast.report.bars import bar, split
from holdfast.report.findings import DisruptionEvidence, Findings
from holdfast.report.kinds import WAITS, place_of, style_of, words_of
from holdfast.report.profile_picture import line_of
from holdfast.report.words import (
    MISSING,
    SHARED_DOWNTIME,
    cause_in_words,
    chip_hours,
    counted,
    digits_for,
    duration,
    first_start_in_words,
    percent,
    seconds,
)

MAX_WIDTH = 110
STORIES_SHOWN = 8
PRELOADS_SHOWN = 4
HOSTS_SHOWN = 16
LEAST_SHOWN = 0.01  # of a disruption's time: shorter phases have no line of their own
LINES_OF_OUTPUT = 3
LINES_OF_TRACEBACK = 12
LEFT_IN_ORDER = (
    "stopped",
    "preempted",
    "rolled_back",
)  # what was printed last then explains nothing
WINDOW_WORDS = {"1h": "last hour", "1d": "last day", "7d": "last 7 days"}
_SHADES = {Level.PRODUCTIVE: "█", Level.SCHEDULING: "░", Level.RUNTIME: "▒"}
_ASCII_SHADES = {Level.PRODUCTIVE: "#", Level.SCHEDULING: ".", Level.RUNTIME: "-"}
_NUMBER_WIDTHS = (13, 11, 10)  # a disruption's lost steps, downtime and price
_NUMBERS_WIDTH = sum(_NUMBER_WIDTHS) + len(_NUMBER_WIDTHS) + 1
_LEVEL_WORDS = {
    Level.PRODUCTIVE: "productive",
    Level.SCHEDULING: "scheduling badput",
    Level.RUNTIME: "runtime badput",
}


@dataclass(frozen=True, slots=True)
class Page:
    """How much room there is, and whether more than ASCII can be printed.

    `room`: where lines are folded and cut; more than the width where nobody looks at a terminal.
    """

    width: int
    ascii_only: bool
    room: int

    @property
    def cut(self) -> Literal["ellipsis", "crop"]:
        """How a text that is too long ends."""
        return "crop" if self.ascii_only else "ellipsis"

    def plain(self, text: str) -> str:
        """The same, if all of it can be printed, else in ASCII."""
        if not self.ascii_only:
            return text
        for pretty, plain in (("–", "-"), ("±", "+-"), ("…", "..."), ("µ", "u")):
            text = text.replace(pretty, plain)
        return text

    def glyph(self, pretty: str, plain: str) -> str:
        """The first if it can be printed, else the second."""
        return plain if self.ascii_only else pretty


def show(
    findings: Findings, console: Console, *, every_story: bool = False, folded: bool = True
) -> None:
    """Print the report. `every_story`: also the disruptions before the last few.

    `folded`: long lines are folded and cut where the page ends.
    """
    for part in parts(findings, console, every_story=every_story, folded=folded):
        console.print(part, highlight=False)


def parts(
    findings: Findings, console: Console, *, every_story: bool = False, folded: bool = True
) -> Iterator[RenderableType]:
    """What `show` prints, piece by piece, laid out for that console."""
    width = min(console.width, MAX_WIDTH)
    page = Page(width, console.options.ascii_only, width if folded else console.width)
    pieces = _pieces(findings, page, every_story)
    for piece in pieces:
        is_line = isinstance(piece, Text | Padding)  # a table or a rule would fill all the room
        yield Constrain(piece, page.room if is_line else page.width)


def _pieces(findings: Findings, page: Page, every_story: bool) -> Iterator[RenderableType]:
    account = findings.account
    yield from _title(findings, page)
    yield Text()
    yield _headline(findings, page)
    if findings.productivity_words:
        yield Text(findings.productivity_words, "dim")
    yield from _rolling(findings, page)
    yield Text()
    yield _strip(account, page)
    yield Text()
    yield _table(findings, page)
    yield Text()
    if findings.saves is not None:
        yield Text(findings.saves.words, "dim")
    yield from _first_start(findings, page)
    yield from _disruptions(findings, page, every_story)
    yield from _hosts(findings, page)
    if findings.profile is not None:
        yield Text(clean(line_of(findings.profile)))
    if findings.is_live:  # one that has left counts down to nothing
        for warning in findings.announced:
            yield Text(clean(warning.sentence), "bold")
    if findings.saving_words is not None:
        yield Text(findings.saving_words)
    for requeue in findings.requeues:
        yield Text(clean(requeue.words(findings.origin_ns)))
    for one in findings.rollbacks:
        yield Text(clean(one.words), style_of("lost").colour)
    for note in findings.notes:
        yield Text.assemble(("note: ", "bold"), clean(note))


def _title(findings: Findings, page: Page) -> Iterator[RenderableType]:
    account = findings.account
    dot = page.glyph(" · ", " | ")
    facts = [findings.state] if findings.state else []
    if findings.attempts is not None:
        facts.append(counted(findings.attempts, "attempt"))
    facts.append(counted(account.chips, "chip"))
    facts.append(duration(account.elapsed_ns))
    if account.left_out:
        facts.append(f"without {duration(account.wall_ns(account.left_out))} of being stopped")
    name = Text(clean(account.name), style="bold")
    rule = Rule(
        Text.assemble(name, dot, dot.join(facts)),
        align="left",
        characters=page.glyph("─", "-"),
        style="dim",
    )
    yield rule
    if findings.command:
        words = clean(" ".join(findings.command))
        yield Text(words, "dim", no_wrap=True, overflow=page.cut)
        if (others := len(findings.commands) - 1) > 0:
            before = counted(others, "other command")
            yield Text(f"the latest; {before} before it, see the page or --json", "dim")
    if findings.why:
        yield Text(clean(findings.why))


def _program_words(basis: Basis, account: Account) -> str:
    if basis.declared.ideal_step_ns:
        return "ideal step\nof each kept"
    if not basis.flops:
        return "Not measured:\ntell run.flops"
    return clean(basis.words(account))


def _headline(findings: Findings, page: Page) -> Table:
    """Goodput and its three factors, each with what it is a share of."""
    account = findings.account
    elapsed = duration(account.wall_ns(account.elapsed))
    kept = duration(account.wall_ns(account.productive))
    ready = duration(account.wall_ns(account.available))
    times, none = page.glyph("×", "x"), page.glyph(MISSING, "-")
    columns = [
        ("goodput", account.goodput, f"{kept} kept\nof {elapsed} paid", "="),
        ("scheduling", account.scheduling_goodput, f"{ready} ready\nof {elapsed} paid", times),
        ("runtime", account.runtime_goodput, f"{kept} kept\nof {ready} ready", times),
        ("program", findings.program, _program_words(findings.basis, account), ""),
    ]
    grid = Table.grid(padding=(0, 1))
    for name, *_ in columns:
        grid.add_column(no_wrap=name != "program")
        grid.add_column()
    rows: list[list[Text]] = [[], [], []]
    for name, share, denominator, sign in columns:
        is_some = name == "goodput" and account.productive > 0
        strong = f"bold {style_of(STEP).colour}" if is_some else "bold"
        number = none if share is None else percent(share)
        rows[0] += [Text(name, "dim"), Text()]
        rows[1] += [Text(number, strong), Text(sign, "dim")]
        rows[2] += [Text(denominator, "dim"), Text()]
    for row in rows:
        grid.add_row(*row)
    return grid


def _rolling(findings: Findings, page: Page) -> Iterator[Text]:
    """Goodput of the last hour, day and week, of a run that is longer."""
    elapsed_ns = findings.account.elapsed_ns
    factors = [
        f"{WINDOW_WORDS[name]} {percent(part.goodput)}"
        for name, part in findings.rolling.items()
        if part.elapsed_ns < elapsed_ns
    ]
    if factors:
        yield Text(f"goodput: {page.glyph(' · ', ' | ').join(factors)}", "dim")


def _strip(account: Account, page: Page) -> Text:
    """All the time in one line, each kind in proportion."""
    kinds = [kind for level in Level for kind in _kinds_of(account, level)]
    shades = _ASCII_SHADES if page.ascii_only else _SHADES
    line = Text()
    for piece, cells in split([account.kinds[kind] for kind in kinds], page.width):
        kind = kinds[piece]
        line.append(shades[level_of(kind)] * cells, style_of(kind).colour)
    return line


def _table(findings: Findings, page: Page) -> Table:
    """Level, kind, seconds and share; the bars compare the kinds of badput with one another."""
    account = findings.account
    bar_width = min(max(page.width - 68, 8), 24)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, expand=True)
    table.add_column("where it went", no_wrap=True, min_width=17)
    table.add_column("", no_wrap=True, overflow=page.cut, ratio=1, style="dim")
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", width=bar_width, no_wrap=True)
    total = sum(account.kinds.values())
    digits = digits_for(account.wall_ns(total))
    mark = _ASCII_SHADES if page.ascii_only else dict.fromkeys(Level, "■")
    groups = {level: _kinds_of(account, level) for level in Level}
    worst = max(
        (account.kinds[kind] for level in Level for kind in groups[level] if kind != STEP),
        default=1,
    )
    for level, kinds in groups.items():
        if not kinds and level is not Level.PRODUCTIVE:
            continue
        chip_ns = sum(account.kinds[kind] for kind in kinds)
        table.add_row(
            Text(_LEVEL_WORDS[level], "bold"),
            _steps_in_words(account) if level is Level.PRODUCTIVE else "",
            Text(seconds(account.wall_ns(chip_ns), digits), "bold"),
            Text(percent(chip_ns / total if total else None), "bold"),
        )
        for kind in kinds if level is not Level.PRODUCTIVE else []:
            chip_ns = account.kinds[kind]
            colour = style_of(kind).colour
            table.add_row(
                Text.assemble((f"  {mark[level]} ", colour), kind.partition(":")[0]),
                clean(_words_of(kind, findings)),
                seconds(account.wall_ns(chip_ns), digits),
                percent(chip_ns / total),
                Text(bar(0, chip_ns / worst, bar_width, ascii_only=page.ascii_only), colour),
            )
    return table


def _words_of(kind: str, findings: Findings) -> str:
    if kind == COMPILE and findings.compilations is not None:
        return findings.compilations.words
    return words_of(kind)


def _kinds_of(account: Account, level: Level) -> list[str]:
    kinds = sorted(account.kinds, key=place_of)
    return [k for k in kinds if level_of(k) is level and account.kinds[k] > 0]


def _steps_in_words(account: Account) -> str:
    return f"{counted(account.steps_kept, 'step')} kept, {account.lost_steps:,} lost"


def _first_start(findings: Findings, page: Page) -> Iterator[RenderableType]:
    """Where the time went until the first step of all was done."""
    phases = findings.account.first_start_ns
    if not phases:
        return
    words = first_start_in_words(sum(phases.values()), is_over=STEP in phases)
    title = Text.assemble(("first start", "bold"), f": {words}")
    yield Rule(title, align="left", characters=page.glyph("─", "-"), style="dim")
    yield from _waterfall(phases, page)
    for preload in findings.preloads[-PRELOADS_SHOWN:]:
        yield Text(clean(preload.words(findings.account.start_ns)))
    yield Text()


def _disruptions(findings: Findings, page: Page, every_story: bool) -> Iterator[RenderableType]:
    account = findings.account
    disruptions = account.disruptions
    if not disruptions:
        yield Text("no disruptions", "dim")
        return
    shown = disruptions if every_story else disruptions[-STORIES_SHOWN:]
    yield Rule(
        Text(counted(len(disruptions), "disruption"), "bold"),
        align="left",
        characters=page.glyph("─", "-"),
        style="dim",
    )
    if account.has_shared_downtime:
        yield Text(SHARED_DOWNTIME, "dim")
    yield _row("", "lost", "down", "chip-hours", style="dim")
    if len(shown) < len(disruptions):
        yield _earlier(list(account.summands())[: -len(shown)])
    for disruption in shown:
        yield from _story(findings, disruption, page)
        yield Text()


def _row(cause: str | Text, lost: str, down: str, price: str, style: str = "") -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(ratio=1)
    for width in _NUMBER_WIDTHS:
        table.add_column(width=width, justify="right", no_wrap=True)
    table.add_row(cause, lost, down, price, style=style)
    return table


def _earlier(disruptions: Sequence[Disruption]) -> Table:
    """One line for those whose stories are not shown, as they add up."""
    lost = sum(d.lost_steps for d in disruptions)
    down = sum(d.down_ns for d in disruptions)
    price = sum(d.price_chip_ns for d in disruptions)
    words = f"{counted(len(disruptions), 'earlier disruption')} (all of them: --all)"
    return _row(words, counted(lost, "step"), duration(down), chip_hours(price), style="dim")


def _hosts(findings: Findings, page: Page) -> Iterator[RenderableType]:
    """A line for each of several hosts, of many those that are not as the others."""
    hosts = findings.hosts
    if not hosts:
        return
    yield Text()
    yield Text(host_findings.summary(hosts), "bold")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    headings, *rows = host_findings.table(hosts, HOSTS_SHOWN)
    for heading in headings:
        table.add_column(heading, no_wrap=heading == "host", overflow="fold")
    for words in rows:
        table.add_row(*(page.plain(cell) for cell in words))
    yield table
    if (left := len(hosts) - HOSTS_SHOWN) > 0:
        yield Text(f"{counted(left, 'other host')}: see the page or --json", "dim")


def _story(findings: Findings, disruption: Disruption, page: Page) -> Iterator[RenderableType]:
    evidence = findings.evidence_for(disruption)
    at = duration(disruption.at_ns - findings.origin_ns)
    cause = evidence.words or cause_in_words(disruption.cause)
    none = page.glyph(MISSING, "-")
    down = "not yet" if disruption.downtime_ns is None else duration(disruption.downtime_ns)
    head = Text.assemble((f"attempt {disruption.attempt}", "bold"), (f" after {at}", "dim"))
    cause_text = Text(clean(cause), style_of("lost").colour)
    line = Text.assemble(head, (": ", "dim"), cause_text)
    fits = line.cell_len <= page.width - _NUMBERS_WIDTH
    yield _row(
        line if fits else head,
        counted(disruption.lost_steps, "step") if disruption.lost_steps else none,
        down,
        chip_hours(disruption.price_chip_ns),
    )
    if not fits:
        yield Padding(cause_text, (0, 0, 0, 2), expand=False)
    yield from _waterfall(disruption.waterfall_ns, page)
    resumed = findings.resumed_after(disruption)
    if resumed is not None:
        yield Text(f"  {resumed.words}", "dim")
    if evidence.restart is not None:
        yield Padding(Text(clean(evidence.restart.words), "dim"), (0, 0, 0, 2), expand=False)
    if disruption.cause not in LEFT_IN_ORDER:
        yield from _last_words(evidence, page)


def _waterfall(time_ns: Mapping[str, int], page: Page) -> Iterator[Text]:
    """The phases of a start below one another, each where the one before it ended.

    Those too short to be seen share one line.
    """
    phases = [(kind, time_ns[kind]) for kind in sorted(time_ns, key=place_of) if time_ns[kind] > 0]
    total = sum(ns for _, ns in phases)
    short = [phase for phase in phases if phase[1] < total * LEAST_SHOWN]
    width = page.width - 30
    at = 0
    for kind, ns in phases:
        begin, at = at, at + ns
        if len(short) > 1 and (kind, ns) in short:
            continue
        drawn = bar(begin / total, at / total, width, ascii_only=page.ascii_only)
        yield Text.assemble(
            (f"  {clean(_phase_name(kind)):<14.14}", "dim"),
            f"{duration(ns):>11}  ",
            (drawn, style_of(kind).colour),
        )
    if len(short) > 1:
        words = ", ".join(f"{clean(_phase_name(kind))} {duration(ns)}" for kind, ns in short)
        yield Text.assemble((f"  and {words}", "dim"))


def _phase_name(kind: str) -> str:
    """The step within a disruption is the one that ended it."""
    rest = kind.partition(":")[2]
    if rest in WAITS and not kind.startswith("custom:"):
        return WAITS[rest]
    return "first step" if kind == STEP else kind.removeprefix("custom:")


def _last_words(evidence: DisruptionEvidence, page: Page) -> Iterator[Text]:
    lines = list(evidence.last_lines[-LINES_OF_OUTPUT:])
    if evidence.traceback:
        lines = evidence.traceback.rstrip().splitlines()[-LINES_OF_TRACEBACK:]
    rule = page.glyph("│", "|")
    for line in lines:
        text = Text.assemble((f"  {rule} ", "dim"), clean(line))
        text.truncate(page.room, overflow=page.cut)
        yield text
