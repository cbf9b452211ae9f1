"""uvicorn's connections, with the manners of `crowd`: whole heads in time, room for others."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.serve.crowd import HEAD_S, Crowd


def polite(crowd: Crowd[Any], head_s: float = HEAD_S) -> type[asyncio.Protocol]:
    """The class of connections that share this crowd."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Polite(H11Protocol):
        _limit: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            leaves = crowd.come(self, self.client[0] if self.client else "")
            if leaves is not None:
                leaves.transport.abort()
            self._begin_limit()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            crowd.idle(self)
            self._begin_limit()
            self._look()  # the next request may have come already

        def connection_lost(self, exc: Exception | None) -> None:
            crowd.go(self)
            self._end_limit()
            super().connection_lost(exc)

        def _look(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                crowd.busy(self)
                self._end_limit()

        def _begin_limit(self) -> None:
            self._end_limit()
            self._limit = self.loop.call_later(head_s, self.transport.abort)

        def _end_limit(self) -> None:
            if self._limit is not None:
                self._limit.cancel()
                self._limit = None

    return Polite
