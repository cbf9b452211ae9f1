"""The server: its socket, its loop, and its end."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.serve.access import LOGIN
from holdfast.serve.crowd import Crowd
from holdfast.serve.polite import polite

if TYPE_CHECKING:
    from starlette.types import ASGIApp

BACKLOG = 128
GRACE_S = 2


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free.

    Raises ConfigurationError for an address that is not this host's, StoreUnavailable for a port
    that is taken.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(
            f"--host {host}: {_why(error)}; name an address of this host"
        ) from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise StoreUnavailable(
                f"port {port} of {host} cannot be had ({_why(error)}); give another --port"
            ) from None
        raise ConfigurationError(
            f"--host {host}: {_why(error)}; name an address of this host"
        ) from None
    return sock


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_of(sock: socket.socket) -> str:
    """Where it is."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def link_of(sock: socket.socket, word: str) -> str:
    """The address that lets in who has that word."""
    return f"{url_of(sock)}{LOGIN[1:]}?token={word}"


def serve(
    make: Callable[[], tuple[ASGIApp, asyncio.Event]],
    sock: socket.socket,
    proxies: Collection[str] = (),
) -> None:
    """Serve until a signal asks for the end; `make` is called in the loop.

    The event that `make` gives is set first: streams end by themselves then. `proxies`: addresses
    from which many people come.
    """
    import uvicorn

    class PageServer(uvicorn.Server):
        closing: asyncio.Event | None = None

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if self.closing is not None:
                self.closing.set()
            await super().shutdown(sockets)

    async def run() -> None:
        app, closing = make()
        config = uvicorn.Config(
            app,
            http=polite(Crowd(proxies)),
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=16 << 10,
        )
        server = PageServer(config)
        server.closing = closing
        await server.serve([sock])

    asyncio.run(run())


def _why(error: OSError) -> str:
    return error.strerror or os.strerror(error.errno or 0)
