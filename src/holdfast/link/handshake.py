"""Who is there: both ends prove that they know the run's secret, before anything is parsed.

    agent → controller    "HFLINK01", the agent's nonce (32)
    controller → agent    the controller's nonce (32)
    agent → controller    index (4), incarnation (16), the agent's proof (32)
    controller → agent    the controller's proof (32)

All lengths are fixed. A proof is HMAC-SHA256 with the secret over who proves, the run's name, the
host's index and incarnation, the controller's term, both nonces, and the channel below (of TLS, the
digest of the controller's certificate). So a proof holds for one connection, one direction, one run
and one term. The agent proves itself first: a stranger who dials gets 32 random bytes, and then the
connection ends. Each direction has a key of its own for what follows, made in the same way.

Pure: bytes in, bytes out. The nonce is given, and must never be used twice.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from holdfast.link.frames import LinkError
from holdfast.link.values import INCARNATION_BYTES, Peer

MAGIC = b"HFLINK01"
NONCE_BYTES = 32
PROOF_BYTES = 32
_INDEX_BYTES = 4
_HELLO_BYTES = len(MAGIC) + NONCE_BYTES
_PROVED_BYTES = _INDEX_BYTES + INCARNATION_BYTES + PROOF_BYTES


@dataclass(frozen=True)
class Terms:
    """What both ends must know alike, apart from the secret itself."""

    run: str
    term: int
    secret: bytes = field(repr=False)
    channel: bytes = b""


def channel_of(digest: str) -> bytes:
    """`Terms.channel` where the controller shows the certificate of that digest; "": none."""
    return b"TLS " + digest.encode() if digest else b""


@dataclass(frozen=True)
class SessionKeys:
    """One for each direction of one connection."""

    up: bytes = field(repr=False)  # from the agent to the controller
    down: bytes = field(repr=False)


class AgentHandshake:
    """The dialling end's part. `start` is sent at once, then `receive` is fed what comes."""

    def __init__(self, terms: Terms, me: Peer, nonce: bytes) -> None:
        self.peer = me
        self.keys: SessionKeys | None = None
        self.rest = b""  # what came behind the handshake
        self.start = MAGIC + nonce
        self._terms = terms
        self._nonce = nonce
        self._proofs: _Proofs | None = None
        self._came = b""

    def receive(self, data: bytes) -> bytes:
        """What to send now; raises LinkError."""
        self._came += data
        if self._proofs is None:
            if len(self._came) < NONCE_BYTES:
                return b""
            if len(self._came) > NONCE_BYTES:
                raise LinkError("it spoke before its turn")
            self._proofs = _Proofs(self._terms, self.peer, self._nonce, self._came)
            self._came = b""
            return _name(self.peer) + self._proofs.of("agent")
        if len(self._came) < PROOF_BYTES:
            return b""
        proof, self.rest = self._came[:PROOF_BYTES], self._came[PROOF_BYTES:]
        if not hmac.compare_digest(proof, self._proofs.of("controller")):
            raise LinkError("it could not prove that it is the controller")
        self.keys = self._proofs.keys()
        return b""


class ControllerHandshake:
    """The listening end's part; it says nothing before it is spoken to."""

    start = b""

    def __init__(self, terms: Terms, nonce: bytes) -> None:
        self.peer: Peer | None = None
        self.keys: SessionKeys | None = None
        self.rest = b""
        self._terms = terms
        self._nonce = nonce
        self._theirs = b""
        self._came = b""

    def receive(self, data: bytes) -> bytes:
        """What to send now; raises LinkError."""
        self._came += data
        if not self._theirs:
            if not MAGIC.startswith(self._came[: len(MAGIC)]):
                raise LinkError("it speaks another protocol")
            if not self._is_whole(_HELLO_BYTES):
                return b""
            self._theirs = self._came[len(MAGIC) :]
            self._came = b""
            return self._nonce
        if not self._is_whole(_PROVED_BYTES):
            return b""
        name, proof = self._came[:-PROOF_BYTES], self._came[-PROOF_BYTES:]
        peer = Peer(int.from_bytes(name[:_INDEX_BYTES], "big"), name[_INDEX_BYTES:].hex())
        proofs = _Proofs(self._terms, peer, self._theirs, self._nonce)
        if not hmac.compare_digest(proof, proofs.of("agent")):
            raise LinkError("it could not prove that it is an agent of this run and term")
        self.peer, self.keys = peer, proofs.keys()
        return proofs.of("controller")

    def _is_whole(self, size: int) -> bool:
        if len(self._came) > size:
            raise LinkError("it spoke before its turn")
        return len(self._came) == size


class _Proofs:
    """What can be derived from the secret for one connection."""

    def __init__(self, terms: Terms, agent: Peer, agents: bytes, controllers: bytes) -> None:
        run = terms.run.encode()
        self._secret = terms.secret
        self._about = b"".join(
            [
                len(run).to_bytes(4, "big"), run, _name(agent), terms.term.to_bytes(8, "big"),
                agents, controllers, terms.channel,
            ]
        )  # fmt: skip

    def of(self, label: str) -> bytes:
        about = MAGIC + label.encode() + b"\0" + self._about
        return hmac.digest(self._secret, about, "sha256")

    def keys(self) -> SessionKeys:
        return SessionKeys(self.of("frames of the agent"), self.of("frames of the controller"))


def _name(peer: Peer) -> bytes:
    return peer.index.to_bytes(_INDEX_BYTES, "big") + peer.raw_incarnation()
