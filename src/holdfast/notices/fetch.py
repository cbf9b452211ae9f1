"""One HTTP exchange at a time, with a limit for everything: for servers that are close by.

Redirects are never followed, proxies never asked, connections never kept: a metadata server is on
this host's own link, or it is not there. Everything that is not an answer of HTTP, in time and of
bounded size, is `Trouble`. The protocol itself is h11's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

import h11

from holdfast.core.durations import SECOND_NS
from holdfast.errors import ConfigurationError
from holdfast.notices.protocol import Trouble

BODY_LIMIT_BYTES = 1 << 20
HEAD_LIMIT_BYTES = 64 << 10
READ_BYTES = 64 << 10
CONNECT_LIMIT_S = 5.0
ANSWER_LIMIT_S = 10.0
NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask: an address from the vendor's documents, or what the user named instead."""

    host: str
    port: int
    prefix: str = ""
    tls: ssl.SSLContext | None = None

    @classmethod
    def at(cls, url: str, *, tls: ssl.SSLContext | None = None) -> Server:
        """From a URL, http or https; raises ConfigurationError for anything else."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise ConfigurationError(
                f"{url!r} is no address of a server: write http://HOST:PORT or https://HOST:PORT"
            )
        is_tls = parts.scheme == "https"
        if is_tls and tls is None:
            tls = ssl.create_default_context()
        default = 443 if is_tls else 80
        return cls(host, port or default, parts.path.rstrip("/"), tls if is_tls else None)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a server has said. Header names are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        """The body as text, without the white space around it."""
        return self.body.decode("utf-8", "replace").strip()

    def json(self) -> Any:
        """The body as JSON; raises Trouble for anything else, HTML among it."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise Trouble(f"it answers with {_shown(self.body)} instead of JSON") from None

    @property
    def date_unix_ns(self) -> int | None:
        """The server's calendar when it answered, in whole seconds; None: not told."""
        try:
            moment = parsedate_to_datetime(self.headers.get("date", ""))
            return int(moment.timestamp()) * SECOND_NS
        except (ValueError, TypeError, OverflowError):
            return None


async def fetch(
    server: Server,
    target: str,
    *,
    method: str = "GET",
    query: Mapping[str, str] = NO_HEADERS,
    headers: Mapping[str, str] = NO_HEADERS,
    body: bytes = b"",
    limit_s: float = ANSWER_LIMIT_S,
    limit_bytes: int = BODY_LIMIT_BYTES,
) -> HttpAnswer:
    """Ask, and read the whole answer; raises Trouble when there is none within the limits.

    `target` is a path, put behind the server's own prefix. Every status is an answer, but for
    redirects: nobody who may be trusted sends any, so they are Trouble.
    """
    try:
        async with asyncio.timeout(limit_s):
            async with stream(
                server, target, method=method, query=query, headers=headers, body=body
            ) as (answer, chunks):
                read = bytearray()
                async for chunk in chunks:
                    read += chunk
                    if len(read) > limit_bytes:
                        raise Trouble(f"its answer is larger than {limit_bytes} bytes")
    except TimeoutError:
        raise Trouble(f"{server} has not answered within {limit_s:g} s") from None
    return HttpAnswer(answer.status, answer.headers, bytes(read))


@contextlib.asynccontextmanager
async def stream(
    server: Server,
    target: str,
    *,
    method: str = "GET",
    query: Mapping[str, str] = NO_HEADERS,
    headers: Mapping[str, str] = NO_HEADERS,
    body: bytes = b"",
) -> AsyncIterator[tuple[HttpAnswer, AsyncIterator[bytes]]]:
    """Ask, and give the answer's head and its body in pieces, as they come; no limit is set on it.

    The head is limited in size, and so is the time to connect; the rest is the caller's, who wraps
    it in `asyncio.timeout`.
    """
    reader, writer = await _connect(server)
    try:
        wire = _Wire(reader, writer)
        path = server.prefix + target + (f"?{urlencode(query)}" if query else "")
        await wire.ask(server, method, path, headers, body)
        head = await wire.head()
        if 300 <= head.status < 400:
            raise Trouble(f"{server} redirects elsewhere ({head.status}), which is not followed")
        yield head, wire.body()
    except h11.ProtocolError:
        raise Trouble(f"{server} breaks off in mid-answer, or talks no HTTP") from None
    except OSError as error:
        raise Trouble(f"the connection to {server} is lost: {error.strerror}") from None
    finally:
        writer.transport.abort()  # at once, and with TLS too: nothing more is wanted


async def lines(chunks: AsyncIterator[bytes], limit_bytes: int) -> AsyncIterator[bytes]:
    """The lines of a body that comes in pieces; raises Trouble for one above the limit."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > limit_bytes:
            raise Trouble(f"a line of its answer is larger than {limit_bytes} bytes")
    if rest:
        yield rest


async def _connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(CONNECT_LIMIT_S):
            return await asyncio.open_connection(server.host, server.port, ssl=server.tls)
    except TimeoutError:
        raise Trouble(f"no connection to {server} within {CONNECT_LIMIT_S:g} s") from None
    except (OSError, ValueError) as error:
        raise Trouble(f"no connection to {server}: {error}") from None


class _Wire:
    """One connection, for one exchange."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT_BYTES)

    async def ask(
        self, server: Server, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> None:
        fields = [("Host", str(server)), ("Connection", "close"), *headers.items()]
        if body or method in ("PUT", "POST"):
            fields.append(("Content-Length", str(len(body))))
        request = h11.Request(method=method, target=path, headers=fields)
        events = [request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
        self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
        await self._writer.drain()

    async def head(self) -> HttpAnswer:
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                pairs = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in event.headers]
                return HttpAnswer(event.status_code, dict(pairs))
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("no answer")

    async def body(self) -> AsyncIterator[bytes]:
        while not isinstance(event := await self._next(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                yield bytes(event.data)

    async def _next(self) -> h11.Event:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(READ_BYTES))
        if isinstance(event, h11.Event) and not isinstance(event, h11.ConnectionClosed):
            return event
        raise h11.RemoteProtocolError("it has closed the connection")


def _shown(body: bytes) -> str:
    """The first words of something strange."""
    text = " ".join(body[:80].decode("utf-8", "replace").split())
    return "HTML" if text[:1] == "<" else repr(text[:40]) if text else "nothing"
