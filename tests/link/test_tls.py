"""TLS around the link: one certificate is taken, and a stranger costs and learns little."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from two_ends import AGENTS_NONCE, CONTROLLERS_NONCE, ME, TERMS, as_json

from holdfast.link import certificate as certificate_module
from holdfast.link.certificate import Certificate, make_certificate
from holdfast.link.connection import UNPROVED_BYTES, LinkConnection
from holdfast.link.conversation import Conversation
from holdfast.link.frames import LinkError
from holdfast.link.handshake import channel_of
from holdfast.link.tls import TlsChannel

SAID = [b"a" * 40, b"b", b"c" * 70_000, b"d"]


def _made(patch: pytest.MonkeyPatch, *, tool: bool = False) -> Certificate:
    """By the library, without a process; `tool`: by the platform's openssl."""
    kind = "_by_library" if tool else "_by_tool"
    patch.setattr(certificate_module, kind, lambda *_: False)
    made = make_certificate()
    assert made is not None
    return made


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Certificate:
    return _made(monkeypatch)


def _taken(channel: TlsChannel) -> bytes:
    data, channel.outgoing = channel.outgoing, b""
    return data


def _joined(certificate: Certificate, digest: str = "") -> tuple[TlsChannel, TlsChannel]:
    one, other = (
        TlsChannel.dialling(digest or certificate.digest),
        TlsChannel.listening(certificate.context),
    )
    while (up := _taken(one)) or (down := _taken(other)):
        if up:
            assert other.receive(up) == b""
        else:
            assert one.receive(down) == b""
    assert one.is_open
    assert other.is_open
    return one, other


def test_what_one_end_says_the_other_hears(mine: Certificate) -> None:
    one, other = _joined(mine)
    for here, there in ((one, other), (other, one)):
        for said in SAID:
            here.send(said)
            sealed = _taken(here)
            assert len(said) < 8 or said not in sealed
            heard = [there.receive(sealed[at : at + 1000]) for at in range(0, len(sealed), 1000)]
            assert b"".join(heard) == said


def test_what_is_said_before_the_other_answers_comes_first(mine: Certificate) -> None:
    one, other = TlsChannel.dialling(mine.digest), TlsChannel.listening(mine.context)
    one.send(b"hello")
    other.receive(_taken(one))
    one.receive(_taken(other))
    assert other.receive(_taken(one)) == b"hello"


def test_another_certificate_is_refused(
    mine: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = _made(monkeypatch)
    assert other.digest != mine.digest
    with pytest.raises(LinkError, match="not the one that is in the store"):
        _joined(other, mine.digest)


def test_older_versions_of_tls_are_refused(mine: Certificate) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    old, other = TlsChannel(context, listens=False), TlsChannel.listening(mine.context)
    with pytest.raises(LinkError, match="does not speak TLS as agreed"):
        other.receive(_taken(old))


@pytest.mark.parametrize("said", [b"HFLINK01" + bytes(32), b"GET / HTTP/1.1\r\n\r\n", bytes(600)])
def test_who_speaks_in_the_clear_gets_no_word(mine: Certificate, said: bytes) -> None:
    other = TlsChannel.listening(mine.context)
    with pytest.raises(LinkError, match="does not speak TLS as agreed"):
        other.receive(said)
    assert _taken(other) == b""


@pytest.mark.parametrize("hears_agent", [True, False])
def test_each_changed_byte_ends_it_and_is_never_heard(mine: Certificate, hears_agent: bool) -> None:
    """Of what goes to and fro when it begins, and of what is said then."""
    one, other = _joined(mine)
    here, there = (one, other) if hears_agent else (other, one)
    here.send(b"x" * 60)
    for at in range(len(_taken(here))):
        one, other = _joined(mine)
        here, there = (one, other) if hears_agent else (other, one)
        here.send(b"x" * 60)
        changed = bytearray(_taken(here))
        changed[at] ^= 1
        try:
            assert there.receive(bytes(changed)) == b""  # a longer record is waited for
            assert there.receive(bytes(8)) == b""
        except LinkError:
            continue


@pytest.mark.parametrize("flight", [0, 1, 2])
def test_a_changed_byte_of_the_beginning_keeps_both_ends_silent(
    mine: Certificate, flight: int
) -> None:
    """What the agent offers, what the controller shows, and that both have heard the same."""
    for at in range(0, 1200, 5):
        one, other = TlsChannel.dialling(mine.digest), TlsChannel.listening(mine.context)
        one.send(b"secret")
        heard, said = b"", b""
        try:
            for number in range(3):
                here, there = (one, other) if number % 2 == 0 else (other, one)
                said = _taken(here)
                if number == flight:
                    place = at % len(said)
                    place += place == 2  # of a record's version, which nobody reads (RFC 8446, 5.1)
                    said = said[:place] + bytes([said[place] ^ 1]) + said[place + 1 :]
                heard = there.receive(said)
        except LinkError:
            heard = b""
        assert heard == b""


def test_records_said_again_left_out_or_sent_back_are_never_heard(mine: Certificate) -> None:
    attacks: list[Callable[[list[bytes], bytes], list[bytes]]] = [
        lambda up, _: [up[0], up[0]],
        lambda up, _: [up[1]],
        lambda up, down: [up[0], down],
    ]
    for attack in attacks:
        one, other = _joined(mine)
        up = []
        for number in range(2):
            one.send(b"%d" % number)
            up.append(_taken(one))
        other.send(b"down")
        down = _taken(other)
        heard: list[bytes] = []
        with pytest.raises(LinkError):
            heard.extend(map(other.receive, attack(up, down)))
        assert heard in ([], [b"0"])


class _End:
    """Who hears of one connection."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def opened(self, connection: LinkConnection) -> None:
        self.told.append("opened")

    def proved(self, connection: LinkConnection) -> None:
        self.told.append("proved")

    def heard(self, connection: LinkConnection, message: object) -> None:
        self.told.append(message)

    def revived(self, connection: LinkConnection) -> None:
        self.told.append("revived")

    def lost(self, connection: LinkConnection, why: str) -> None:
        self.told.append(why)


class _Wire(asyncio.Transport):
    """Writes into a list."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_extra_info(self, name: str, default: object = None) -> object:
        if name == "peername":
            return ("10.0.0.9", 1)
        return _NoSocket()

    def abort(self) -> None:
        self.is_aborted = True

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")


class _NoSocket:
    def setsockopt(self, *_: object) -> None: ...


def _connected(
    certificate: Certificate | None, digest: str
) -> list[tuple[LinkConnection, _Wire, _End]]:
    shown = channel_of(certificate.digest if certificate else "")
    theirs = dataclasses.replace(TERMS, channel=channel_of(digest))
    ours = dataclasses.replace(TERMS, channel=shown)
    one = Conversation.of_agent(theirs, ME, AGENTS_NONCE)
    other = Conversation.of_controller(ours, CONTROLLERS_NONCE)
    found = []
    for conversation, channel in (
        (one, TlsChannel.dialling(digest) if digest else None),
        (other, TlsChannel.listening(certificate.context) if certificate else None),
    ):
        end, wire = _End(), _Wire()
        connection = LinkConnection(end, conversation, channel)
        connection.connection_made(wire)
        found.append((connection, wire, end))
    return found


def _carry(ends: list[tuple[LinkConnection, _Wire, _End]]) -> None:
    while any(wire.written for _, wire, _ in ends):
        for (_, wire, _), (there, _, _) in (ends, ends[::-1]):
            data, wire.written = wire.written, b""
            if data:
                there.data_received(data)


def test_a_conversation_within_it(mine: Certificate) -> None:
    ends = _connected(mine, mine.digest)
    _carry(ends)
    (one, _, told), (other, _, heard) = ends
    assert told.told == heard.told == ["opened", "proved"]
    one.offer(as_json({"report": 1}))
    assert b"report" not in ends[0][1].written
    other.offer(as_json({"order": 1}))
    _carry(ends)
    assert heard.told[-1] == {"report": 1}
    assert told.told[-1] == {"order": 1}


def test_one_end_in_the_clear_is_refused(mine: Certificate) -> None:
    """The store's word was changed, so that agents would say what others could hear."""
    ends = _connected(mine, "")
    _carry(ends)
    assert ends[1][1].is_aborted
    assert not ends[0][0].conversation.is_proved
    ends = _connected(None, mine.digest)
    _carry(ends)
    assert ends[1][1].is_aborted


def test_who_opens_tls_for_others_in_the_middle_is_refused_by_the_proofs(
    mine: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no secret, and has put its own certificate into the store."""
    middle = _made(monkeypatch)
    to_agent, to_controller = _connected(middle, middle.digest), _connected(mine, mine.digest)
    agent, controller = to_agent[0], to_controller[1]
    inner, outer = TlsChannel.listening(middle.context), TlsChannel.dialling(mine.digest)
    for _ in range(6):
        for (connection, wire, _), channel, other in (
            (agent, inner, outer),
            (controller, outer, inner),
        ):
            data, wire.written = wire.written, b""
            other.send(channel.receive(data))
            connection.data_received(_taken(channel))
    assert controller[1].is_aborted
    assert not agent[0].conversation.is_proved


@pytest.mark.parametrize("size", [1, 100, 16_000])
def test_who_says_much_before_it_proves_anything_is_closed(mine: Certificate, size: int) -> None:
    """A greeting of TLS that never ends."""
    other, wire, _ = _connected(mine, mine.digest)[1]
    record = b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff" + bytes(16_380)
    flood, sent = record * 8, 0
    while not wire.is_aborted:
        other.data_received(flood[sent : sent + size])
        sent += size
    assert sent <= UNPROVED_BYTES + size
    assert wire.written == b""


def test_an_end_that_has_just_gone_can_be_left() -> None:
    connection = _connected(None, "")[1][0]

    async def leave() -> None:
        connection.end("the controller ends", at_once=False)

    asyncio.run(leave())


def test_no_key_is_left_on_the_disk_even_by_a_process_that_ends_meanwhile(
    mine: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "PRIVATE" not in repr(mine)
    places: list[str] = []

    def ends(place: Path) -> bool:
        places.append(str(place.readlink()))
        raise SystemExit

    monkeypatch.setattr(certificate_module, "_by_library", ends)
    with pytest.raises(SystemExit):
        make_certificate()
    assert places == ["/memfd:link (deleted)"]


def test_without_a_tool_there_is_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("_by_library", "_by_tool"):
        monkeypatch.setattr(certificate_module, kind, lambda *_: False)
    assert make_certificate() is None


@pytest.mark.contract("link: a certificate by the platform's openssl")
def test_by_the_platforms_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (_made(monkeypatch, tool=True) for _ in range(2))
    assert one.digest != other.digest
    _joined(one)
