"""What a source of notices is, and what it is lent.

A source is one module of this package and a row of `registry.SOURCES`, which names the module and
the function of `holdfast.notices.found` that says why this host has such a source. That one reads
files under `SourceSurroundings.root` and variables of the environment, and nothing else: no address
is tried to find out whether somebody is there. The module has one function

    def make(option: str, tools: Tools, around: Surroundings) -> Source: ...

which gets what the user wrote after the source's name and a colon, "" if nothing; for a source that
asks a server over HTTP that is its address. It raises ConfigurationError for an option that cannot
be meant, and opens nothing. A module is imported only when its source is wanted.

A `NoticeSource` has a `name` and `watches`, functions that each make an async generator. The rules:

- One watch asks about one thing: whatever can fail alone is watched alone, because the trouble of
  one watch stops no other.
- Yield a list after each answer that made sense, of the `core.notices.board.Notice`s that are new
  in it:
  mostly none. An answer ends the watch's trouble.
- Yield what has changed, not what is so: a notice when an event is announced, another one when its
  state or deadline changes, one in state WITHDRAWN when it is cancelled, over or gone. Compare what
  the vendor said, not notices: a deadline comes out a little different each time it is converted.
- Raise `Trouble(words)` when something does not work: the server does not answer, or with something
  that is none of its answers. Nothing else is to be done about it: the listener counts it, tells
  people once, waits with jitter, and begins the watch again on the same object. So what must
  survive (a token, an etag, what was told) is kept in `self`, nothing is tried again by the source
  itself, and it sleeps between polls alone, with `tools.sleep`.
- Take the time from `tools.clock`, and a moment of a calendar to it with `tools.on_our_clock`.
- What is about another machine is not yielded, as far as the source can know that.
- Whatever runs for long (a thread, a process, a connection) ends when a watch is closed: use
  `async with` and `finally`.

Modules beside the sources (`fetch`, `said`, `listener`, this one) are shared; a source never
imports another one. For each there is an emulator in `holdfast.testing`, and tests that run both.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from holdfast.core.notices.board import Notice, on_our_clock
from holdfast.core.value import value

READ_LIMIT_CHARS = 4096

News = AsyncGenerator[Sequence[Notice], None]  # what is new in each answer
Watch = Callable[[], News]


class Trouble(Exception):  # noqa: N818 - it is no error of ours, and is always survived
    """A source cannot tell anything for now; the words say why, for people."""


class Clocks(NamedTuple):
    """The run's clock and this host's calendar, read at one moment, in nanoseconds."""

    now_ns: int
    unix_ns: int


@value
class SourceSurroundings:
    """What a source may look at to find out where it is."""

    environment: Mapping[str, str] = field(default_factory=dict)
    root: Path = Path("/")

    def read(self, path: str) -> str:
        """A small text file's content without the white space around it; "" if there is none.

        `path` is absolute, and is taken from `root`.
        """
        try:
            with (self.root / path.lstrip("/")).open(encoding="utf-8", errors="replace") as file:
                return file.read(READ_LIMIT_CHARS).strip()
        except OSError:
            return ""

    def exists(self, pattern: str) -> bool:
        """Whether some file's absolute path, taken from `root`, matches ("/dev/accel*")."""
        return next(iter(self.root.glob(pattern.lstrip("/"))), None) is not None


@value
class Tools:
    """What the listener lends to a source. `sleep` and `clock` may be virtual.

    `since_unix_ns`: what was left for whoever listens is as new as that at least; None: as now.
    `trusted_uids`: of users whose files are believed; None: anybody's.
    """

    clock: Callable[[], Clocks]
    sleep: Callable[[float], Awaitable[object]]
    grace_ns: int = 30_000_000_000  # what `--grace` says: for a warning that says nothing else
    since_unix_ns: int | None = None
    trusted_uids: Collection[int] | None = None

    def now_ns(self) -> int:
        """The run's clock now: what a notice's `received_ns` is."""
        return self.clock().now_ns

    def on_our_clock(self, unix_ns: int, their_unix_ns: int | None = None) -> int:
        """A moment of a vendor's calendar, on the run's clock.

        `their_unix_ns`: the vendor's calendar now, if an answer's date has told it.
        """
        now_ns, our_unix_ns = self.clock()
        return on_our_clock(
            unix_ns, our_unix_ns=our_unix_ns, our_ns=now_ns, their_unix_ns=their_unix_ns
        )


class NoticeSource(Protocol):
    """Where warnings come from."""

    @property
    def name(self) -> str:
        """As the user writes it, for people and as `Notice.source`."""

    @property
    def watches(self) -> Sequence[Watch]:
        """What changes, from now on; each raises Trouble, and is then begun again."""


@runtime_checkable
class TakesSignals(Protocol):
    """A source that is told of signals, which only the main thread can take."""

    @property
    def numbers(self) -> Collection[int]:
        """Of which signals; they mean nothing else any more."""

    def arrived(self, number: int) -> None:
        """One of them has come. Called from any thread, also before it is watched."""


@runtime_checkable
class Settles(Protocol):
    """A source whose vendor may be told that an event need not wait out its time."""

    async def settled(self, notice: Notice) -> str:
        """The event of that notice may happen: nothing on this host is waited for any more.

        What came of telling that, for people. Called on a source of its own, which does not watch.
        Tells the vendor nothing where somebody else may be concerned. Raises Trouble, and may then
        be called again.
        """


class SourceModule(Protocol):
    """What each module of a source offers."""

    def make(self, option: str, tools: Tools, around: SourceSurroundings) -> NoticeSource:
        """The source; raises ConfigurationError for an option that is not valid."""
