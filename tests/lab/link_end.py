"""One end of the link, on a host of the lab: `serve ADDRESS` or `dial ADDRESS PORT INDEX`.

It prints each change of a link: the peer's index, and how the link stands.
"""

from __future__ import annotations

import secrets
import select
import sys

from holdfast.link.dialer import LinkDialer
from holdfast.link.server import LinkServer
from holdfast.link.values import Claim, LinkChange, Peer, Trust

TRUST = Trust(b"the secret of the hosts of the lab, which is no secret")
HOSTS = 4


def show(index: int, change: LinkChange) -> None:
    print(index, change.state.value, change.connection, change.words, flush=True)


def serve(address: str) -> None:
    server = LinkServer("lab", 1, TRUST, addresses=(address,), hosts=HOSTS)
    print("port", server.port, flush=True)
    while select.select([server], [], []):
        for peer, change in server.take().changes.items():
            show(peer.index, change)


def dial(address: str, port: str, index: str) -> None:
    me = Peer(int(index), secrets.token_hex(16))
    dialer = LinkDialer("lab", me, TRUST, hosts=HOSTS)
    dialer.aim(Claim((address,), int(port), 1))
    while select.select([dialer], [], []):
        if (change := dialer.take().change) is not None:
            show(0, change)


if __name__ == "__main__":
    {"serve": serve, "dial": dial}[sys.argv[1]](*sys.argv[2:])
