"""Process 1 of a host of the lab: it makes the host, starts what it is told to, and reaps.

`lab_init.py SOCKET INDEX HOSTS OWN`: SOCKET is a descriptor, OWN the host's own folder. It sends
the network device's other end and takes orders, one JSON object a packet. It needs nothing but the
standard library, and ends when the other end of the socket is closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import uuid
from pathlib import Path

from lab_cable import MTU, address, ethernet

TUNSETIFF, TAP_WITHOUT_HEADER = 0x400454CA, 0x0002 | 0x1000
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
SIOCSIFMTU, SIOCSIFHWADDR = 0x8922, 0x8924
UP = 1
ARPHRD_ETHER = 1
ORDER_BYTES = 1 << 20


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    index, hosts, own = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    make_folders(index, hosts, own)
    tap = make_network(index)
    socket.send_fds(control, [b"{}"], [tap])
    os.close(tap)  # it lives as long as the cable's end
    obey(control)


def make_folders(index: int, hosts: int, own: Path) -> None:
    """What the host does not share: its memory, its disk, its name, its boot."""
    socket.sethostname(f"h{index}")
    for folder in ("/dev/shm", "/run", str(own)):
        mount("-t", "tmpfs", "-o", "mode=1777", "lab", folder)
    names = ["127.0.0.1 localhost", *(f"{address(n)} h{n}" for n in range(hosts))]
    hide("/etc/hosts", "\n".join(names) + "\n")
    hide("/proc/sys/kernel/random/boot_id", f"{uuid.uuid4()}\n")
    if Path("/etc/machine-id").exists():
        hide("/etc/machine-id", f"{uuid.UUID(int=index + 1).hex}\n")


def hide(path: str, text: str) -> None:
    """Have this text in the file's place."""
    mine = Path("/run", path.replace("/", "_"))
    mine.write_text(text)
    mount("--bind", str(mine), path)


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def make_network(index: int) -> int:
    """The loopback, and a device with the host's address, whose other end is returned."""
    with contextlib.suppress(OSError):  # a kernel without IPv6
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"eth0", TAP_WITHOUT_HEADER))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:

        def tell(name: bytes, request: int, layout: str, *values: object) -> None:
            fcntl.ioctl(any_socket, request, struct.pack("16s" + layout, name, *values))

        def inet(text: str) -> tuple[int, bytes]:
            return socket.AF_INET, socket.inet_aton(text)

        tell(b"lo", SIOCSIFFLAGS, "H22x", UP)
        tell(b"eth0", SIOCSIFHWADDR, "H6s16x", ARPHRD_ETHER, ethernet(index))
        tell(b"eth0", SIOCSIFMTU, "i20x", MTU)
        tell(b"eth0", SIOCSIFADDR, "H2x4s16x", *inet(address(index)))
        tell(b"eth0", SIOCSIFNETMASK, "H2x4s16x", *inet("255.255.255.0"))
        tell(b"eth0", SIOCSIFFLAGS, "H22x", UP)
    return tap


def obey(control: socket.socket) -> None:
    """Take orders until nobody can give any."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    statuses: dict[int, int] = {}  # of each process started: where its end is told
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if control in ready:
            packet, descriptors, _, _ = socket.recv_fds(control, ORDER_BYTES, 2)
            if not packet:
                return
            order = json.loads(packet)
            if "argv" in order:
                output, status = descriptors
                pid = start(order, output)
                os.close(output)
                os.write(status, f"{pid}\n".encode())
                statuses[pid] = status
            else:
                with contextlib.suppress(ProcessLookupError):  # -1: all but this one
                    os.kill(order["pid"], order["signal"])
                control.send(b"{}")
        if woken in ready:
            os.read(woken, 4096)
        reap(statuses)


def start(order: dict, output: int) -> int:
    """Start a process in a session of its own."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.setsid()
        for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
            os.dup2(descriptor, number)
        os.chdir(order["cwd"])
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except BaseException as error:
        os.write(2, f"{order['argv'][0]}: {error}\n".encode())
    os._exit(127)


def reap(statuses: dict[int, int]) -> None:
    """Say how each ended; whom nobody waits for is reaped too."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, wait_status = ended
            if (status := statuses.pop(pid, None)) is not None:
                with contextlib.suppress(BrokenPipeError):
                    os.write(status, f"{os.waitstatus_to_exitcode(wait_status)}\n".encode())
                os.close(status)


if __name__ == "__main__":
    main()
