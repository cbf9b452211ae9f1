"""The post: a thread that carries registers to and from the key-value store.

It alone touches the network. A store that answers late, or never, costs nobody else anything: what
is to be written waits in memory (only the newest value of each register), what was read waits to
be taken. It goes often while a save or a stop is under way, and seldom otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from holdfast.errors import HoldfastError
from holdfast.journal.clocks import now_ns
from holdfast.session.registers import Channel, ChannelError
from holdfast.session.say import say

ACTIVE_S = 0.003
IDLE_S = 0.1
LOST_S = 1.0  # between tries while the store cannot be reached
GONE_S = 5.0  # and once that has been told: PyTorch prints a page of its own about each try
LOST_LIMIT_NS = 10_000_000_000
PER_RANK_S = 50e-6  # one store serves all ranks: the more there are, the less often each asks


class Post:
    """One process's registers. `on_news` is called from the thread when something was read."""

    def __init__(self, channel: Channel, world_size: int, on_news: Callable[[], None]) -> None:
        self.name = channel.name
        self.hurried = False
        self.trouble = ""
        self.reached_at_ns = now_ns()
        self._is_said = False
        self._channel = channel
        self._on_news = on_news
        self._spacing_s = PER_RANK_S * world_size
        self._keys: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._outbox: dict[str, tuple[int, bytes]] = {}
        self._written: dict[str, bytes] = {}
        self._read: dict[str, bytes] = {}
        self._news: dict[str, bytes] = {}
        self._put = 0
        self._sent = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-post", daemon=True)
        self._thread.start()

    def listen(self, keys: Sequence[str]) -> None:
        """Read these registers from now on."""
        self._keys = tuple(keys)

    def put(self, key: str, value: bytes) -> int:
        """Have a register overwritten; the number is reached by `sent` when it has been."""
        with self._lock:
            self._put += 1
            self._outbox[key] = (self._put, value)
            number = self._put
        self._wake.set()
        return number

    @property
    def sent(self) -> int:
        """The number of the newest `put` that is in the store, with all before it."""
        return self._sent

    def take(self) -> dict[str, bytes]:
        """Registers that have changed since the last call."""
        with self._lock:
            news, self._news = self._news, {}
        return news

    def check(self) -> None:
        """For somebody who waits: raises HoldfastError when the store has not answered for long."""
        if self._is_lost():
            raise HoldfastError(f"{self._silence()}; see what that said")

    def close(self, limit_s: float) -> bool:
        """Write what waits, and end; False when the store does not let us in time."""
        self._closing.set()
        self._wake.set()
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._round()
            self._tell()
            if self.trouble:
                self._closing.wait(GONE_S if self._is_said else LOST_S)
            else:
                self._wake.wait((ACTIVE_S if self.hurried else IDLE_S) + self._spacing_s)
            self._wake.clear()
        self._round()

    def _round(self) -> None:
        try:
            self._write()
            self._fetch()
        except ChannelError as error:
            self.trouble = str(error) or "no answer"
        except Exception as error:
            self.trouble = repr(error)  # the thread must go on, whatever a framework raises
        else:
            self.trouble = ""
            self.reached_at_ns = now_ns()

    def _is_lost(self) -> bool:
        return bool(self.trouble) and now_ns() - self.reached_at_ns > LOST_LIMIT_NS

    def _silence(self) -> str:
        return (
            f"the key-value store of {self.name} does not answer ({self.trouble}): the process "
            "that serves it has ended, most likely (the launcher, or rank 0)"
        )

    def _tell(self) -> None:
        """Say once that the store does not answer, and once that it does again."""
        if self._is_lost() and not self._is_said:
            self._is_said = True
            say(f"Nothing can be saved at present: {self._silence()}")
        elif self._is_said and not self.trouble:
            self._is_said = False
            say(f"The key-value store of {self.name} answers again")

    def _write(self) -> None:
        with self._lock:
            outbox = dict(self._outbox)
            newest = self._put
        for key, (_, value) in outbox.items():
            if self._written.get(key) != value:
                self._channel.write(key, value)
                self._written[key] = value
        with self._lock:
            for key, entry in outbox.items():
                if self._outbox.get(key) == entry:
                    del self._outbox[key]
        self._sent = newest

    def _fetch(self) -> None:
        keys = self._keys
        if not keys:
            return
        fresh = {
            key: value
            for key, value in self._channel.read(keys).items()
            if self._read.get(key) != value
        }
        if fresh:
            self._read.update(fresh)
            with self._lock:
                self._news.update(fresh)
            self._on_news()
