"""TLS around a conversation: what an end says is sealed, what comes is opened. No socket.

    agent      TlsChannel.dialling(digest)      takes the certificate of that digest, and no other
    controller TlsChannel.listening(context)

Only TLS 1.3. Names, dates and authorities mean nothing: an agent knows the digest of the
controller's certificate from the store, and both ends put it into their proofs (`handshake.Terms`).
asyncio's own TLS is not used: it would hold a quarter of a mebibyte for everybody who connects,
before any of it is ours to bound, and it cannot close one direction.
"""

from __future__ import annotations

import functools
import hashlib
import ssl

from holdfast.link.frames import LinkError

READ_BYTES = 1 << 16


class TlsChannel:
    """One end. `outgoing` is what is to be written; whoever writes it empties it."""

    def __init__(self, context: ssl.SSLContext, *, listens: bool, digest: str = "") -> None:
        self.outgoing = b""
        self.is_open = False
        self._digest = digest
        self._waits = b""  # until it is open
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_side=listens)
        if not listens:
            self._shake_hands()

    @classmethod
    def dialling(cls, digest: str) -> TlsChannel:
        """An agent's. `digest`: the controller's (`certificate.Certificate`)."""
        return cls(dialling_context(), listens=False, digest=digest)

    @classmethod
    def listening(cls, context: ssl.SSLContext) -> TlsChannel:
        """The controller's."""
        return cls(context, listens=True)

    def receive(self, data: bytes) -> bytes:
        """What the other end has said; raises LinkError, and then the connection is over."""
        self._came.write(data)
        if not self.is_open:
            self._shake_hands()
            if not self.is_open:
                return b""
        said = bytearray()
        try:
            while piece := self._tls.read(READ_BYTES):
                said += piece
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise LinkError(_words(error)) from None
        self.outgoing += self._goes.read()
        return bytes(said)

    def send(self, data: bytes) -> None:
        """Seal that, or keep it until the other end has answered."""
        if not self.is_open:
            self._waits += data
            return
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
        self.outgoing += self._goes.read()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.outgoing += self._goes.read()
            return
        except ssl.SSLError as error:
            raise LinkError(_words(error)) from None
        if self._digest:
            shown = self._tls.getpeercert(binary_form=True) or b""
            if hashlib.sha256(shown).hexdigest() != self._digest:
                raise LinkError("its certificate is not the one that is in the store")
        self.is_open = True
        waits, self._waits = self._waits, b""
        self.send(waits)


@functools.cache
def dialling_context() -> ssl.SSLContext:
    """For whoever knows the certificate that it is shown, or has it proved."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the digest says whose it is
    return context


def listening_context() -> ssl.SSLContext:
    """For whoever has a certificate to load into it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nobody resumes a session
    return context


def _words(error: ssl.SSLError) -> str:
    reason = (error.reason or "it is over").lower().replace("_", " ")
    return f"it does not speak TLS as agreed: {reason}"
