"""What `holdfast run` shows: a live status block on a terminal, plain lines elsewhere.

Ranks' output goes to standard output, prefixed with the rank; the supervisor's own sentences and
the status block go to standard error, so that a pipe gets the training's output alone.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from holdfast.agent.supervisor import Screen, Supervisor

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.panel import Panel

REDRAW_S = 0.25
PLAIN_STATUS_S = 60.0
LEVELS = ("error", "warning", "info")
MARKS = {"info": "", "warning": "! ", "error": "!! "}


class PlainScreen(Screen):
    """One line per event; a line of status once a minute."""

    def __init__(self, run: str, log_level: str = "info", *, status: bool = True) -> None:
        self._run = run
        self._level = LEVELS.index(log_level)
        self._status = status
        self._lock = threading.Lock()
        self._next_status_s = time.monotonic() + PLAIN_STATUS_S

    def say(self, level: str, words: str) -> None:
        """To standard error, with a prefix that grep can find."""
        if LEVELS.index(level) <= self._level:
            self._write(sys.stderr, f"holdfast: {MARKS[level]}{words}\n")

    def line(self, rank: int, text: str) -> None:
        """To standard output."""
        self._write(sys.stdout, f"[{rank}] {text}\n")

    def show(self, supervisor: Supervisor) -> None:
        """Once a minute, so that a log shows that somebody is there."""
        now_s = time.monotonic()
        if self._status and now_s >= self._next_status_s:
            self._next_status_s = now_s + PLAIN_STATUS_S
            self.say("info", status_line(supervisor))

    def close(self) -> None:
        """Nothing to put back."""

    def _write(self, stream: object, text: str) -> None:
        # A closed or broken terminal must not end the supervisor.
        try:
            with self._lock:
                stream.write(text)  # type: ignore[attr-defined]
                stream.flush()  # type: ignore[attr-defined]
        except (OSError, ValueError):
            return


class LiveScreen(Screen):
    """A block at the bottom of the terminal, redrawn in place; output scrolls above it."""

    def __init__(self, run: str, console: Console, log_level: str = "info") -> None:
        from rich.live import Live

        self._run = run
        self._level = LEVELS.index(log_level)
        self._console = console
        self._next_redraw_s = 0.0
        self._live: Live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def say(self, level: str, words: str) -> None:
        """Above the block."""
        if LEVELS.index(level) > self._level:
            return
        from rich.text import Text

        style = {"info": "cyan", "warning": "yellow", "error": "bold red"}[level]
        self._console.print(Text("holdfast ", style=f"bold {style}") + Text(words, style=style))

    def line(self, rank: int, text: str) -> None:
        """Above the block."""
        from rich.text import Text

        self._console.print(Text(f"[{rank}] ", style="dim") + Text.from_ansi(text))

    def show(self, supervisor: Supervisor) -> None:
        """Redraw if it is time."""
        now_s = time.monotonic()
        if now_s >= self._next_redraw_s:
            self._next_redraw_s = now_s + REDRAW_S
            self._live.update(self._block(supervisor), refresh=True)

    def close(self) -> None:
        """Take the block away."""
        self._live.stop()

    def _block(self, supervisor: Supervisor) -> Panel:
        from rich.panel import Panel
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="ellipsis", no_wrap=True)
        for key, value in status_rows(supervisor):
            table.add_row(key, value)
        title = f"[bold]{self._run}[/]  {supervisor.machine.state}"
        return Panel(table, title=title, title_align="left", border_style="cyan")


def status_rows(supervisor: Supervisor) -> list[tuple[str, str]]:
    """What the status block says, as pairs of a word and its value."""
    saving = supervisor.machine.saving
    step = saving.slowest_step
    step_s = saving.step_time_ns / 1e9
    rate = f"   {1 / step_s:.2f} steps/s" if step_s else ""
    rows = [("step", f"{step}{rate}")]
    saved = f"step {saving.committed_step}" if saving.committed_step else "none yet"
    at_risk = max(0, saving.fastest_step - saving.committed_step)
    cost = f", blocked {saving.cost.blocked_ns / 1e6:.0f} ms" if saving.cost.blocked_ns else ""
    rows.append(("checkpoint", f"{saved}{cost}; {at_risk} steps since"))
    if saving.reason:
        rows.append(("next save", saving.reason))
    stop = supervisor.machine.stop
    if stop is not None:
        rows.append(("stopping", stop.source))
    failures = supervisor.machine.failures
    if failures:
        last = failures[-1]
        rows.append(("incidents", f"{len(failures)}, the last: {last.signature}"))
    return rows


def status_line(supervisor: Supervisor) -> str:
    """The same in one line."""
    rows = status_rows(supervisor)
    return f"attempt {supervisor.machine.attempt}; " + "; ".join(f"{k} {v}" for k, v in rows)
