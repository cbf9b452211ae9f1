"""An agent's end of the link; the package's first words say how it is used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import time
from typing import Any

from holdfast.link.connection import LinkConnection
from holdfast.link.conversation import Conversation
from holdfast.link.handshake import NONCE_BYTES, Terms, channel_of
from holdfast.link.server import bounded_json
from holdfast.link.strangers import HANDSHAKE_S
from holdfast.link.thread import CLOSE_S, Bell, LoopThread
from holdfast.link.values import (
    Claim,
    DialerNews,
    LinkChange,
    LinkState,
    Peer,
    Trust,
    beat_s,
    give_up_after_s,
    is_measured,
    silent_after_s,
)

CONNECT_S = 2.0  # for one address
FIRST_WAIT_S = 0.2  # at most, before all addresses are tried again; then twice as long each time
LONGEST_WAIT_S = 5.0
OWNER_S = 1.0  # an owner that has not looked for so long does not live, as far as others know
_HINT = " (another secret, run name or term ends so)"


class LinkDialer:
    """It dials from the first `aim` on; `close` ends it."""

    def __init__(self, run: str, me: Peer, trust: Trust, hosts: int = 1) -> None:
        trust.check()
        self._run, self._me, self._secret = run, me, trust.secret or b""
        self._beat_s = beat_s(hosts)
        self._first_wait_s = max(FIRST_WAIT_S, self._beat_s * 0.4)
        self._silent_after_s = silent_after_s(hosts)
        self._give_up_after_s = give_up_after_s(hosts)
        self._bell = Bell()
        self._claim: Claim | None = None
        self._term = 0  # the highest that was answered
        self._dialled_term = 0
        self._current: LinkConnection | None = None  # also before it is proved
        self._last: LinkConnection | None = None  # the newest that was proved
        self._connections = 0
        self._put: bytes | None = None
        self._message: dict[str, Any] | None = None
        self._change: LinkChange | None = None
        self._told: LinkChange | None = None
        self._owner_s = time.monotonic()  # when the owner looked last
        self._jitter = random.Random()  # noqa: S311 (no secret)
        self._thread = LoopThread("holdfast-link-dialer", lambda _: None)
        self._thread.run(self._begin())

    # What the owner calls.

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._bell.fileno()

    def aim(self, claim: Claim) -> None:
        """Dial that from now on; a link to a controller of a lower term ends."""
        self._thread.call(lambda: self._take_aim(claim))

    def put(self, message: dict[str, Any]) -> None:
        """It replaces what was not sent yet; ValueError for what is too large."""
        data = bounded_json(message)
        with self._bell.lock:
            self._put = data
        if self._current is not None:
            self._thread.call(self._offer)

    def take(self) -> DialerNews:
        """What is new since the last call."""
        self._owner_s = time.monotonic()
        with self._bell.lock:
            self._bell.hush()
            news = DialerNews(self._message, self._change, self._term)
            self._message = self._change = None
        return news

    @property
    def own_address(self) -> str:
        """By which this host was found on its newest link; "": there was none."""
        return "" if self._last is None else self._last.own_address

    def round_trip_s(self) -> float | None:
        """The newest that was measured; None: there is none yet."""
        last = self._last
        measured = -1.0 if last is None else last.conversation.round_trip_s
        return measured if is_measured(measured) else None

    def close(self) -> None:
        """What was put is sent first, within a second, if there is a link."""
        if self._bell.fileno() < 0:
            return
        self._thread.close(self._leave())
        self._bell.close()

    # What happens in the loop's thread.

    async def _begin(self) -> None:
        self._aimed = asyncio.Event()
        self._over = asyncio.Event()  # the current connection is
        loop = asyncio.get_running_loop()
        self._dialling = loop.create_task(self._dial())
        loop.call_later(self._beat_s, self._beat)

    def _take_aim(self, claim: Claim) -> None:
        newest = max(self._term, self._claim.term if self._claim else 0)
        if claim.term < newest:
            self._say(LinkState.REFUSED, f"term {claim.term} is over: {newest} is the newest")
            return
        is_newer = self._claim is not None and claim.term > self._claim.term
        if claim == self._claim:
            return
        self._claim = claim
        self._aimed.set()
        if is_newer and self._current is not None:
            self._current.end(f"the controller of term {claim.term} is the newest")

    async def _dial(self) -> None:
        wait_s = self._first_wait_s
        while True:
            if (claim := self._claim) is None:
                await self._aimed.wait()
                continue
            self._aimed.clear()
            for address in claim.addresses:
                if await self._try(address, claim):
                    wait_s = self._first_wait_s
                if self._claim is not claim:
                    break
            else:
                await self._pause(self._jitter.uniform(0, wait_s))
                wait_s = min(LONGEST_WAIT_S, 2 * wait_s)

    async def _pause(self, wait_s: float) -> None:
        """A new claim ends it."""
        try:
            await asyncio.wait_for(self._aimed.wait(), wait_s)
        except TimeoutError:
            return

    async def _try(self, address: str, claim: Claim) -> bool:
        """Dial one address, and stay as long as the connection does; whether it was proved."""
        self._over.clear()
        self._dialled_term = claim.term
        terms = Terms(self._run, claim.term, self._secret, channel_of(claim.certificate))
        conversation = Conversation.of_agent(terms, self._me, secrets.token_bytes(NONCE_BYTES))
        channel = None
        if claim.certificate:
            from holdfast.link.tls import TlsChannel

            channel = TlsChannel.dialling(claim.certificate)
        connection = LinkConnection(self, conversation, channel)
        loop = asyncio.get_running_loop()
        where = f"{address}, port {claim.port}"
        try:
            await asyncio.wait_for(
                loop.create_connection(lambda: connection, address, claim.port),
                CONNECT_S,
            )
        except TimeoutError:
            self._say_unreached(address, claim, f"{where}: no answer within {CONNECT_S:.0f} s")
            return False
        except OSError as error:
            words = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            self._say_unreached(address, claim, f"{where}: {words}")
            return False
        limit = loop.call_later(HANDSHAKE_S, self._end_unproved, connection)
        await self._over.wait()
        limit.cancel()
        return connection.number > 0

    def _say_unreached(self, address: str, claim: Claim, words: str) -> None:
        """Of several addresses the first counts: the last is its host's loopback, which is ours."""
        if address == claim.addresses[0]:
            self._say(LinkState.DOWN, words)

    def _end_unproved(self, connection: LinkConnection) -> None:
        if not connection.number:
            connection.end(f"it proved nothing within {HANDSHAKE_S:.0f} s")

    def opened(self, connection: LinkConnection) -> None:
        """It is the one that counts, though nothing is proved."""
        self._current = connection

    def proved(self, connection: LinkConnection) -> None:
        """From now on its term is the lowest that is answered."""
        self._connections += 1
        connection.number = self._connections
        with self._bell.lock:
            if self._dialled_term > self._term:  # what an older controller said is void
                self._term, self._message = self._dialled_term, None
            self._last = connection
            put = self._put
        self._say(LinkState.UP, "", connection)
        connection.beat()
        if put is not None:
            connection.offer(put)

    def heard(self, connection: LinkConnection, message: dict[str, Any]) -> None:
        """A register: it takes the place of what was not taken yet."""
        if connection is self._current:
            with self._bell.lock:
                self._message = message
                self._bell.ring()

    def revived(self, connection: LinkConnection) -> None:
        """It speaks again."""
        self._say(LinkState.UP, "", connection)

    def lost(self, connection: LinkConnection, why: str) -> None:
        """It was refused, or it is down."""
        if connection is not self._current:
            return
        self._current = None
        if connection.number:
            self._say(LinkState.DOWN, why, connection)
        elif connection.has_heard:
            self._say(LinkState.REFUSED, f"{connection.address}: {why}{_HINT}")
        else:  # nobody answered: that controller has just died
            self._say(LinkState.DOWN, f"{connection.address}: {why}")
        self._over.set()

    def _offer(self) -> None:
        with self._bell.lock:
            put = self._put
        if self._current is not None and put is not None:
            self._current.offer(put)

    def _beat(self) -> None:
        connection = self._current
        if connection is not None and connection.number:
            silence_s = self._thread.read_s - connection.heard_s  # this end may be late to read
            if silence_s > self._give_up_after_s:
                connection.end(f"nothing came for {silence_s:.1f} s")
            else:
                if silence_s > self._silent_after_s and not connection.is_silent:
                    connection.is_silent = True
                    words = f"nothing has come for {silence_s:.1f} s"
                    self._say(LinkState.SILENT, words, connection)
                if time.monotonic() - self._owner_s < OWNER_S:
                    connection.beat()
        asyncio.get_running_loop().call_later(self._beat_s, self._beat)

    def _say(self, state: LinkState, words: str, of: LinkConnection | None = None) -> None:
        silence_s = 0.0 if of is None else max(0.0, time.monotonic() - of.heard_s)
        number = self._connections if of is None else of.number
        if state is LinkState.UP:
            silence_s = 0.0
        change = LinkChange(state, words, silence_s, number)
        if change == self._told:  # the same address refuses again and again
            return
        with self._bell.lock:
            self._told = self._change = change
            self._bell.ring()

    async def _leave(self) -> None:
        self._dialling.cancel()
        if (connection := self._current) is None:
            return
        connection.end("the agent ends", at_once=not connection.number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), CLOSE_S)
        connection.end("the agent ends")
