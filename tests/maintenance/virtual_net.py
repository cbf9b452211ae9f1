"""asyncio in virtual time: a loop whose clock jumps when nothing is ready, and what it talks to.

`VirtualLoop` is asyncio's own loop over the clock of the virtual worlds (`tests/scenarios`), so
that sources of notices, which are asyncio, and runs, which are callbacks of that clock, live side
by side. Connections are pipes in memory to servers that were opened under a port; programs are
functions. Nothing waits, and nothing reaches the machine's network.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import selectors
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "scenarios"))
from holdfast.sim.clock import MS, SECOND, VirtualClock

sys.path.pop(0)

FAR_NS = 10**18
LINK_NS = MS // 10  # what a message takes to the other end


class _Selector(selectors.BaseSelector):
    """Nothing is ever ready for reading: where asyncio would wait, the clock goes on."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._map: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._map[fileobj] = selectors.SelectorKey(fileobj, -1, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._map

    def select(self, timeout: float | None = None) -> list[Any]:
        now_ns = self._clock.now_ns
        if timeout is None:
            if not self._clock.advance(FAR_NS):
                raise RuntimeError("nothing will ever happen any more")
        elif timeout > 0:
            self._clock.advance(now_ns + math.ceil(timeout * SECOND))
        return []


class Opened(NamedTuple):
    """What listens under a port: called with the client's end of each connection."""

    connected: Callable[[MemoryTransport], ServerEnd]


class VirtualLoop(asyncio.SelectorEventLoop):
    """One for all hosts of a campaign. `ports` and `programs`: what may be spoken to."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.ports: dict[int, Callable[[], ServerEnd]] = {}
        self.programs: dict[str, Callable[..., Awaitable[tuple[int, bytes, bytes]]]] = {}
        self.trouble: list[str] = []
        super().__init__(_Selector(clock))
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self.clock.now_ns / SECOND

    def _note(self, _: Any, context: dict[str, Any]) -> None:
        self.trouble.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> tuple[Any, Any]:
        await asyncio.sleep(LINK_NS / SECOND)
        if host != "127.0.0.1" or port not in self.ports:
            raise ConnectionRefusedError(111, "Connection refused")
        protocol = factory()
        near = MemoryTransport(self, protocol)
        server = self.ports[port]()
        near.peer = MemoryTransport(self, server)
        near.peer.peer = near
        server.connection_made(near.peer)
        protocol.connection_made(near)
        return near, protocol

    async def subprocess_exec(  # type: ignore[override]
        self, factory: Callable[[], Any], program: str, *words: str, env: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        if program not in self.programs:
            raise FileNotFoundError(2, "No such file or directory")
        protocol = factory()
        transport = ProgramTransport(self, protocol)
        protocol.connection_made(transport)
        transport.begin(self.programs[program](words, env or {}))
        return transport, protocol


class MemoryTransport(asyncio.Transport):
    """One end of a connection. What is written comes to the other end a little later, in order."""

    def __init__(self, loop: VirtualLoop, protocol: Any) -> None:
        super().__init__()
        self.peer: MemoryTransport | None = None
        self._loop, self._protocol = loop, protocol
        self._is_closing = self._is_lost = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_closing

    def pause_reading(self) -> None:
        """What comes is kept by the reader; the emulators send little."""

    def resume_reading(self) -> None:
        """See above."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is none."""

    def write(self, data: Any) -> None:
        peer, sent = self.peer, bytes(data)
        if peer is not None and not self._is_closing:
            self._loop.clock.later(LINK_NS, lambda: self._loop.call_soon(peer.arrived, sent))

    def arrived(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Both ends are lost; what was sent before still comes."""
        if self._is_closing:
            return
        self._is_closing = True
        self._loop.call_soon(self.lost, None)
        if (peer := self.peer) is not None:
            self._loop.clock.later(LINK_NS, lambda: self._loop.call_soon(peer.lost, None))

    def lost(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_closing = self._is_lost = True
            self._protocol.connection_lost(error)


class ServerEnd(asyncio.Protocol):
    """What a server does with a connection."""


class ProgramTransport(asyncio.SubprocessTransport):
    """A program that is a coroutine: its exit status, its output and its complaints."""

    def __init__(self, loop: VirtualLoop, protocol: Any) -> None:
        super().__init__()
        self._loop, self._protocol = loop, protocol
        self._pipes = {1: _OutPipe(), 2: _OutPipe()}
        self._code: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def begin(self, program: Awaitable[tuple[int, bytes, bytes]]) -> None:
        async def run() -> None:
            code, out, err = -9, b"", b""
            with contextlib.suppress(asyncio.CancelledError):
                code, out, err = await program
            for number, data in ((1, out), (2, err)):
                if data:
                    self._protocol.pipe_data_received(number, data)
                self._protocol.pipe_connection_lost(number, None)
            self._code = code
            self._protocol.process_exited()

        self._task = self._loop.create_task(run())

    def get_pid(self) -> int:
        return 1

    def get_returncode(self) -> int | None:
        return self._code

    def get_pipe_transport(self, fd: int) -> Any:
        return self._pipes.get(fd)

    async def _wait(self) -> int | None:
        if self._task is not None:
            await asyncio.wait([self._task])
        return self._code

    def kill(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def terminate(self) -> None:
        self.kill()

    def close(self) -> None:
        self.kill()

    def is_closing(self) -> bool:
        return self._code is not None


class _OutPipe(asyncio.ReadTransport):
    def pause_reading(self) -> None:
        """It has all been read."""

    def resume_reading(self) -> None:
        """It has all been read."""

    def close(self) -> None:
        """Nobody minds."""


def run_all(loop: VirtualLoop, works: Sequence[Awaitable[Any]]) -> None:
    """Run these on that loop until all are done; raises what any of them raises."""

    async def together() -> None:
        await asyncio.gather(*works)

    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(together())
    finally:
        asyncio.set_event_loop(None)
