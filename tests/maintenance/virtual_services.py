"""The package's emulators on the virtual network: the same verbs and answers, no thread, no socket.

What the services say, and how their answers fail, is the emulators' own; here is what carries it:
connections of `virtual_net`, the protocol by h11, the vendor's calendar, and a program instead of
`scontrol`. Of Cloud TPU, whose library brings its own network, the client alone is another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from collections.abc import Callable, Sequence
from email.utils import formatdate
from pathlib import Path
from typing import Any

import h11

sys.path.insert(0, str(Path(__file__).parent))
from virtual_net import MemoryTransport, ServerEnd, VirtualLoop

sys.path.pop(0)

from holdfast.notices import tpu as tpu_source
from holdfast.testing import slurm
from holdfast.testing.aws import AwsEmulator
from holdfast.testing.azure import AzureEmulator
from holdfast.testing.emulator import Emulator, HttpRequest, Later, Pause, Reply
from holdfast.testing.gce import GceEmulator
from holdfast.testing.kubernetes import KubernetesEmulator
from holdfast.testing.scripted import ScriptedEmulator
from holdfast.testing.slurm import SlurmEmulator

PORTS = itertools.count(10_000)


class Virtual(ScriptedEmulator):
    """What is common: whoever waits for a change is woken by the next verb."""

    loop: VirtualLoop
    _news: asyncio.Event

    def do(self, verb: str, *words: str) -> None:
        super().do(verb, *words)
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def until(self, pause: Pause) -> None:
        """What `ScriptedEmulator.wait_for` does in a thread."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, pause.limit_s)):
                while not pause.is_so():
                    await self._news.wait()


class Served(Virtual, Emulator):
    """An emulator that speaks HTTP. `truths`: when an answer was sent whole, and of which path."""

    def _listen(self, tls: object) -> None:
        del tls
        self._news = asyncio.Event()
        self.ends: list[_End] = []
        self.truths: list[tuple[int, str]] = []
        self.port = next(PORTS)
        self.url = f"http://127.0.0.1:{self.port}"

    def open(self, loop: VirtualLoop, calendar: Callable[[], float]) -> None:
        """Be there from now on, with that calendar."""
        self.loop, self.calendar, self.elapsed = loop, calendar, loop.time
        loop.ports[self.port] = lambda: _End(self)

    def close(self) -> None:
        self.is_closed = True
        self.loop.ports.pop(self.port, None)
        self.verb_drop()

    def verb_drop(self) -> None:
        for end in list(self.ends):
            end.break_off()


class _End(ServerEnd):
    """The server's end of a connection, which is also what a fault handles (`emulator.Handler`)."""

    def __init__(self, emulator: Served) -> None:
        self._emulator = emulator
        self._http = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = b""
        self._task: asyncio.Task[None] | None = None
        self._out: list[bytes] = []

    @property
    def url(self) -> str:
        return self._emulator.url

    def connection_made(self, transport: MemoryTransport) -> None:  # type: ignore[override]
        self._transport = transport
        self._emulator.ends.append(self)

    def connection_lost(self, _: Exception | None) -> None:
        if self in self._emulator.ends:
            self._emulator.ends.remove(self)
        if self._task is not None:
            self._task.cancel()

    def break_off(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._http.receive_data(data)
        while (event := self._http.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Request):
                self._head = event
            elif isinstance(event, h11.Data):
                self._body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self._task = self._emulator.loop.create_task(self._serve())
                return
            else:
                return

    async def _serve(self) -> None:
        emulator, request = self._emulator, self._request()
        emulator.requests.append(request)
        fault, what = emulator.next_fault(request)
        if emulator.delay_s:
            await asyncio.sleep(emulator.delay_s)
        if fault is not None:
            fault(self, what)
            return
        reply = emulator.answer(request)
        if isinstance(reply, Later):
            await emulator.until(reply.pause)
            reply = reply.make()
        self._send_head(reply)
        if reply.stream is not None:
            for chunk in reply.stream:
                if isinstance(chunk, Pause):
                    emulator.truths.append((emulator.loop.clock.now_ns, request.path))
                    await emulator.until(chunk)
                    continue
                self._send(h11.Data(data=chunk))
        self._finish(reply)
        if reply.status in (200, 404) and reply.stream is None:
            emulator.truths.append((emulator.loop.clock.now_ns, request.path))

    def _request(self) -> HttpRequest:
        from urllib.parse import parse_qsl, unquote, urlsplit

        assert self._head is not None
        parts = urlsplit(self._head.target.decode())
        headers = {name.decode(): value.decode() for name, value in self._head.headers}
        return HttpRequest(
            self._head.method.decode(),
            unquote(parts.path),
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers,
            self._body,
        )

    def _send(self, event: Any) -> None:
        self._transport.write(self._http.send(event) or b"")

    def _send_head(self, reply: Reply) -> None:
        date = formatdate(self._emulator.calendar(), usegmt=True)
        headers = [("Date", date), *reply.headers.items()]
        if reply.stream is None:
            body = reply.body.encode() if isinstance(reply.body, str) else reply.body
            headers.append(("Content-Length", str(len(body))))
        else:
            headers.append(("Transfer-Encoding", "chunked"))
        self._send(h11.Response(status_code=reply.status, headers=headers))

    def _finish(self, reply: Reply) -> None:
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        if reply.stream is None and body:
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())

    # --- how answers fail -------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        self._send_head(reply)
        self._finish(reply)

    def raw(self, *blocks: bytes) -> None:
        for block in blocks[:80]:  # more than any limit on what is read
            self._transport.write(block)
        self._transport.abort()

    def hang(self) -> None:
        """Send nothing, and keep the connection."""


class VirtualAws(Served, AwsEmulator):
    """EC2's metadata service."""


class VirtualAzure(Served, AzureEmulator):
    """Azure's."""


class VirtualGce(Served, GceEmulator):
    """Google's."""


class VirtualKubernetes(Served, KubernetesEmulator):
    """The API server."""


class VirtualSlurm(Virtual, SlurmEmulator):
    """`scontrol` as a function; its text is the emulator's."""

    def open(self, loop: VirtualLoop, calendar: Callable[[], float]) -> None:
        """Be there from now on, with that calendar."""
        self.loop, self.calendar = loop, calendar
        self._news = asyncio.Event()
        self.truths: list[tuple[int, str]] = []
        loop.programs[str(self.path)] = self._run
        self.do("end", "unlimited")

    def do(self, verb: str, *words: str) -> None:
        if hasattr(self, "_news"):
            super().do(verb, *words)
        else:  # by its own constructor
            ScriptedEmulator.do(self, verb, *words)

    def close(self) -> None:
        self.is_closed = True
        self.loop.programs.pop(str(self.path), None)

    async def _run(self, words: Sequence[str], env: Any) -> tuple[int, bytes, bytes]:
        await asyncio.sleep(0.01)
        fault = self.path.with_name("fault")
        if fault.exists():
            text = fault.read_text().strip()
            if text == slurm.FAULTS["hang"]:
                await asyncio.sleep(3600)
            if text == slurm.FAULTS["giant"]:
                return 0, bytes(5 << 20), b""
            return (0, b"<!DOCTYPE html>\n", b"") if "html" in text else (1, b"", b"no controller")
        assert env.get("TZ") == "UTC"
        kinds = {"job": "job", "node": "node", "reservation": "reservation"}
        what = words[2] if words[0] == "--oneliner" else words[1]
        self.truths.append((self.loop.clock.now_ns, what))
        if what in kinds:
            return 0, self.path.with_name(what).read_bytes(), b""
        return 0, "\n".join(words[2].split(",")).encode(), b""


def virtual_tpu() -> type[Virtual]:
    """The emulator of Cloud TPU, whose library is imported for it alone."""
    from google.api_core.exceptions import from_grpc_status
    from google.cloud import tpu_v2alpha1

    from holdfast.testing.tpu import TpuEmulator
    from holdfast.testing.tpu_wire import ApiError

    class VirtualTpu(Virtual, TpuEmulator):
        def _listen(self) -> None:
            self._news = asyncio.Event()
            self.truths: list[tuple[int, str]] = []
            self.port = next(PORTS)
            self.endpoint = f"127.0.0.1:{self.port}"

        def open(self, loop: VirtualLoop, calendar: Callable[[], float]) -> None:
            self.loop, self.calendar, self.elapsed = loop, calendar, loop.time
            CLIENTS[self.endpoint] = self
            self.do("node", TPU_NODE)

        def close(self) -> None:
            self.is_closed = True
            CLIENTS.pop(self.endpoint, None)

        async def get_node(self, name: str, **_: Any) -> Any:
            await asyncio.sleep(0.01)
            try:
                node = self.call("GetNode", tpu_v2alpha1.GetNodeRequest(name=name))
            except ApiError as error:
                raise from_grpc_status(error.code, str(error)) from None
            self.truths.append((self.loop.clock.now_ns, "node"))
            return tpu_v2alpha1.Node(node)

    return VirtualTpu


TPU_NODE = "projects/p/locations/z/nodes/lm"
CLIENTS: dict[str, Any] = {}


class _Client:
    """As much of the library's client as the source uses."""

    def __init__(self, emulator: Any) -> None:
        self.get_node = emulator.get_node
        self.transport = self

    async def close(self) -> None:
        """Nothing is open."""


async def _client(source: Any) -> Any:
    return _Client(CLIENTS[source._endpoint])


def use_virtual_tpu() -> Callable[[], None]:
    """Have the source `tpu` speak to virtual emulators; what it answers undoes that."""
    before = tpu_source.Tpu._client
    tpu_source.Tpu._client = _client  # type: ignore[method-assign]

    def undo() -> None:
        tpu_source.Tpu._client = before  # type: ignore[method-assign]

    return undo
