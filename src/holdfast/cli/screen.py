"""What `holdfast run` shows: a live status block on a terminal, plain lines elsewhere.

Ranks' output goes to standard output, of several ranks prefixed with the rank; the supervisor's own
sentences and the status block go to standard error, so that a pipe gets the training's output
alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, cast

from holdfast.agent.output import LOG_LIMIT_BYTES
from holdfast.agent.supervisor import Screen, Supervisor
from holdfast.cli.door import console
from holdfast.cli.gauge import Gauge
from holdfast.cli.printer import Printer, RawText
from holdfast.core.durations import in_words
from holdfast.core.visible import coloured, sentence
from holdfast.journal.clocks import now_ns

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.panel import Panel

REDRAW_S = 0.25
PLAIN_STATUS_S = 60.0
LEVELS = ("error", "warning", "info")
MARKS = {"info": "", "warning": "! ", "error": "!! "}
STDOUT, STDERR = 1, 2
QUEUE_LIMIT = 10_000


class QueuedScreen(Screen):
    """What both screens share: a thread that writes, and lines left out when it cannot keep up."""

    def __init__(self, run: str, log_level: str, *, ranks: int) -> None:
        self._run = run
        self._level = LEVELS.index(log_level)
        self._prefix = "[{}] " if ranks > 1 else ""
        self._printer = Printer()
        self._left_out = 0

    def say(self, level: str, words: str) -> None:
        """One sentence of the supervisor's, if it is important enough."""
        if LEVELS.index(level) <= self._level:
            self._printer.put(partial(self._print_sentence, level, words))

    def line(self, rank: int, text: str) -> None:
        """One line of a rank's output, if the terminal keeps up."""
        limit = QUEUE_LIMIT // 2 if self._left_out else QUEUE_LIMIT
        if self._printer.waiting >= limit:
            self._left_out += 1
            return
        self._own_up()
        self._printer.put(partial(self._print_line, rank, text))

    def close(self) -> None:
        """Write what is left, if the terminal takes it."""
        self._own_up()
        self._printer.close()

    def _own_up(self) -> None:
        count, self._left_out = self._left_out, 0
        if count:
            kept = f"the first {LOG_LIMIT_BYTES >> 20} MiB of each rank's output"
            self.say("warning", f"{count} lines were left out here; holdfast logs has {kept}")

    def _print_sentence(self, level: str, words: str) -> None:
        raise NotImplementedError

    def _print_line(self, rank: int, text: str) -> None:
        raise NotImplementedError


class PlainScreen(QueuedScreen):
    """One line per event; a line of status once a minute."""

    def __init__(self, run: str, log_level: str, *, ranks: int, status: bool) -> None:
        super().__init__(run, log_level, ranks=ranks)
        self._out, self._err = RawText(STDOUT), RawText(STDERR)
        self._status = status
        self._next_status_s = time.monotonic() + PLAIN_STATUS_S

    def show(self, supervisor: Supervisor) -> None:
        """Once a minute while something runs, so that a log shows that somebody is there."""
        now_s = time.monotonic()
        if self._status and supervisor.machine.attempt >= 0 and now_s >= self._next_status_s:
            self._next_status_s = now_s + PLAIN_STATUS_S
            self.say("info", status_line(supervisor))

    def _print_sentence(self, level: str, words: str) -> None:
        """To standard error, with a prefix that grep can find."""
        self._err.write(f"holdfast: {MARKS[level]}{sentence(words)}\n")

    def _print_line(self, rank: int, text: str) -> None:
        """To standard output."""
        self._out.write(f"{self._prefix.format(rank)}{coloured(text)}\n")


class LiveScreen(QueuedScreen):
    """A block at the bottom of the terminal, redrawn in place; output scrolls above it."""

    def __init__(self, run: str, log_level: str, *, ranks: int) -> None:
        from rich.live import Live

        super().__init__(run, log_level, ranks=ranks)
        self._bars: dict[int, str] = {}
        self._console = console(file=cast("IO[str]", RawText(STDERR)))
        self._next_redraw_s = 0.0
        self._is_drawing = False
        self._gauge: Gauge | None = None
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,  # whoever prints beside us must not wait for the terminal
            redirect_stderr=False,
        )
        self._printer.put(self._live.start)

    def show(self, supervisor: Supervisor) -> None:
        """Redraw if it is time, and if the last one is through."""
        if self._gauge is None:
            self._gauge = Gauge(supervisor.folder.path)
        now_s = time.monotonic()
        if now_s >= self._next_redraw_s and not self._is_drawing:
            self._next_redraw_s = now_s + REDRAW_S
            self._is_drawing = True
            self._printer.put(partial(self._draw, self._block(supervisor)))

    def unfinished(self, rank: int, text: str) -> None:
        """It stands in the block until it has its end."""
        self._bars[rank] = text

    def close(self) -> None:
        """Take the block away."""
        if self._gauge is not None:
            self._gauge.close()
        self._printer.put(self._live.stop)
        super().close()

    def _draw(self, block: RenderableType) -> None:
        try:
            self._live.update(block, refresh=True)
        finally:
            self._is_drawing = False

    def _print_sentence(self, level: str, words: str) -> None:
        """Above the block."""
        from rich.text import Text

        style = {"info": "cyan", "warning": "yellow", "error": "bold red"}[level]
        self._console.print(Text("holdfast ", style=f"bold {style}") + Text(words, style=style))

    def _print_line(self, rank: int, text: str) -> None:
        """Above the block."""
        from rich.text import Text

        prefix = Text(self._prefix.format(rank), style="dim")
        self._console.print(prefix + Text.from_ansi(coloured(text)))

    def _block(self, supervisor: Supervisor) -> Panel:
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="ellipsis", no_wrap=True)
        rows = status_rows(supervisor)
        if self._gauge is not None and self._gauge.text:
            rows.insert(1, ("goodput", self._gauge.text))
        for key, value in rows:
            table.add_row(key, value)
        for rank, text in sorted(self._bars.items()):
            if text:
                bar = Text.from_ansi(coloured(text))
                table.add_row(f"rank {rank}" if self._prefix else "output", bar)
        title = Text.assemble((self._run, "bold"), f"  {supervisor.machine.state}")
        return Panel(table, title=title, title_align="left", border_style="cyan")


def status_rows(supervisor: Supervisor) -> list[tuple[str, str]]:
    """What the status block says, as pairs of a word and its value."""
    saving = supervisor.machine.saving
    step = saving.slowest_step
    step_s = saving.step_time_ns / 1e9
    rate = f"   {1 / step_s:.2f} steps/s" if step_s else ""
    rows = [("step", f"{step}{rate}")]
    saved = f"step {saving.committed_step}" if saving.committed_step else "none yet"
    newest = max(saving.committed_step, saving.tier.newest.step if saving.tier.newest else 0)
    if newest > saving.committed_step:
        saved = f"step {newest} in memory, {saved.removeprefix('step ')} on disk"
    at_risk = max(0, saving.fastest_step - newest)
    cost = f", blocked {saving.blocked_ns / 1e6:.0f} ms" if saving.blocked_ns else ""
    rows.append(("checkpoint", f"{saved}{cost}; {at_risk} steps since"))
    words = supervisor.machine.saving_words
    if words or saving.reason:
        rows.append(("saving", (words or saving.reason).removeprefix("saving ")))
    if supervisor.hosts.hosts_words:
        rows.append(("hosts", supervisor.hosts.hosts_words))
    if supervisor.hosts.standby_words:
        rows.append(("standby", supervisor.hosts.standby_words))
    rows += [("notice", words) for words in _notices(supervisor)]
    stop = supervisor.machine.stop
    if stop is not None:
        rows.append(("stopping", stop.source))
    failures = supervisor.machine.failures
    if failures:
        last = failures[-1]
        count = supervisor.machine.failures_seen
        rows.append(("incidents", f"{count}, the last: {last.how}"))
    return rows


def _notices(supervisor: Supervisor) -> Iterator[str]:
    """What is announced, with its countdown, and what cannot be asked for it."""
    machine, at_ns = supervisor.machine, now_ns()
    acts_ns = machine.notices.acts_at_ns
    for one in machine.notices.announcements:
        words = one.words
        if one.deadline_ns is not None:
            left_ns = one.deadline_ns - at_ns
            words += f", in {in_words(left_ns)}" if left_ns > 0 else ", overdue"
        yield words
    if acts_ns is not None:
        yield f"saving for that in {in_words(acts_ns - at_ns)}"
    if supervisor.listener is not None:
        for source in supervisor.listener.standings:
            if source.trouble:
                yield f"{source.name} cannot be asked: {source.trouble}"


def status_line(supervisor: Supervisor) -> str:
    """The same in one line."""
    rows = status_rows(supervisor)
    return f"attempt {supervisor.machine.attempt}; " + "; ".join(f"{k} {v}" for k, v in rows)
