"""The addresses by which other hosts may reach this one."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915  # netdevice(7): the IPv4 address of an interface
_NAME_BYTES = 15
_IFREQ_BYTES = 256
_ELSEWHERE = "192.0.2.1"  # nobody's (RFC 5737); nothing is sent there


def own_addresses() -> tuple[str, ...]:
    """One IPv4 address of each network interface; the loopback's last.

    First the one by which this host goes out: a bridge of containers has the same on each host.
    """
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):  # there is no way out
            probe.connect((_ELSEWHERE, 9))
            found.append(str(probe.getsockname()[0]))
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{_IFREQ_BYTES}s", name.encode()[:_NAME_BYTES])
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                found.append(socket.inet_ntoa(answer[20:24]))
    return tuple(sorted(dict.fromkeys(found), key=is_loopback))


def is_loopback(address: str) -> bool:
    """Whether only this host can reach it."""
    return address.startswith("127.") or address == "::1"
