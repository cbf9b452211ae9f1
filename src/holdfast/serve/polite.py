"""uvicorn's connections, with the manners of `crowd`: little time for strangers, room for others.

Whether somebody is one is known to the application, which says so (`GRANTED`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.serve.crowd import GRANTED, HEAD_S, Crowd


def polite(crowd: Crowd[Any], head_s: float = HEAD_S) -> type[asyncio.Protocol]:
    """The class of connections that share this crowd."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Polite(H11Protocol):
        _limit: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.app_state = {**self.app_state, GRANTED: self._granted}
            leaves = crowd.come(self, self.client[0] if self.client else "")
            if leaves is not None:
                leaves.transport.abort()
            self._begin_limit()

        def on_response_complete(self) -> None:
            crowd.idle(self)
            self._begin_limit()
            super().on_response_complete()  # the next request may have come already

        def connection_lost(self, exc: Exception | None) -> None:
            crowd.go(self)
            self._end_limit()
            super().connection_lost(exc)

        def _granted(self) -> None:
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
