"""What tests with several hosts rely on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import Host, Lab, LabProcess

pytestmark = pytest.mark.real

LINK_END = Path(__file__).with_name("link_end.py")

# It answers each datagram with the same one.
ECHO = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
    here.bind(("0.0.0.0", 9))
    print("echo", flush=True)
    while True:
        data, whose = here.recvfrom(64)
        print("heard", flush=True)
        here.sendto(data, whose)
"""

# It asks once a tenth of a second and says each change of whether it is answered.
ASK = """
import socket, sys, time
before = None
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
    here.settimeout(0.5)
    here.connect((sys.argv[1], 9))
    for n in range(10**9):
        try:
            here.send(b"%d" % n)
            while here.recv(64) != b"%d" % n:  # one that was late
                pass
            now = "answered"
        except OSError:
            now = "alone"
        if now != before:
            print(now, flush=True)
        before = now
        time.sleep(0.1)
"""


def python(host: Host, text: str, *words: object) -> LabProcess:
    return host.start([sys.executable, "-c", text, *words])


def asked_and_echo(one: Host, other: Host) -> tuple[LabProcess, LabProcess]:
    """The first asks the second, and is answered."""
    echo = python(other, ECHO)
    echo.saw("echo")
    ask = python(one, ASK, other.address)
    ask.saw("answered")
    return ask, echo


@pytest.mark.contract("lab: power off ends all processes and all memory")
def test_power_off_ends_all_processes_and_all_memory(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(2)
    left, right = lab.hosts
    fill = "echo x > /dev/shm/left; echo x > $TMPDIR/left; echo there"
    mother = left.start(["sh", "-c", f"setsid sleep 99999 & {fill}; wait"])
    other = right.start(["sh", "-c", "ls /dev/shm $TMPDIR; echo there; exec sleep 99999"])
    mother.saw("there")
    other.saw("there")
    assert "left" not in other.text, "the hosts share their memory"
    left.power_off()
    assert mother.wait(-signal.SIGKILL) == "there"
    left.power_on()
    after = left.start(["sh", "-c", "ls /dev/shm $TMPDIR; cat /proc/[0-9]*/comm"]).wait(0)
    assert "left" not in after
    assert "sleep" not in after
    other.send(signal.SIGTERM)
    other.wait(-signal.SIGTERM)


def test_hosts_differ_and_their_lives_too(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(2)

    def identity(host: Host) -> list[str]:
        look = "uname -n; cat /proc/sys/kernel/random/boot_id"
        return host.start(["sh", "-c", look]).wait(0).split()

    first, second = map(identity, lab.hosts)
    assert first[0] == "h0"
    assert second[0] == "h1"
    assert first[1] != second[1]
    lab.hosts[0].power_off()
    lab.hosts[0].power_on()
    again = identity(lab.hosts[0])
    assert again[0] == "h0"
    assert again[1] != first[1]


def test_a_cut_stops_what_is_sent_and_a_mend_lets_it_pass(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(2)
    ask, _ = asked_and_echo(*lab.hosts)
    lab.cut(0)
    ask.saw("alone")
    lab.mend(0)
    ask.saw("answered", count=2)


def test_who_is_cut_one_way_hears_and_is_not_heard(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(2)
    ask, echo = asked_and_echo(*lab.hosts)
    lab.cut_one_way(1)  # the one that answers: it hears, and its answers are lost
    ask.saw("alone")
    heard = len(echo.lines)
    echo.saw("heard", count=heard + 2)
    lab.mend(1)
    ask.saw("answered", count=2)


def test_a_delay_makes_each_frame_late(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(2)
    ask, _ = asked_and_echo(*lab.hosts)
    lab.delay(400)  # there and back: longer than it waits
    ask.saw("alone")
    lab.delay(0)
    ask.saw("answered", count=2)


def test_a_frozen_host_goes_on_when_it_is_thawed(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(2)
    ask, _ = asked_and_echo(*lab.hosts)
    lab.hosts[1].freeze()
    ask.saw("alone")
    lab.hosts[1].thaw()
    ask.saw("answered", count=2)
    lab.hosts[1].freeze()  # a frozen host can be powered off
    lab.hosts[1].power_off()


def test_no_host_reaches_what_is_outside(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(1)
    reach = "import socket; socket.create_connection(('198.51.100.1', 80), 60)"
    assert "Network is unreachable" in python(lab.hosts[0], reach).wait(1)


def test_a_link_that_was_cut_is_dialled_again(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(4)
    controller, *others = lab.hosts
    server = controller.start([sys.executable, LINK_END, "serve", controller.address])
    port = server.saw(r"^port (\d+)")[1]
    dialers = [
        host.start([sys.executable, LINK_END, "dial", controller.address, port, host.index])
        for host in others
    ]
    for host, dialer in zip(others, dialers, strict=True):
        dialer.saw("^0 up 1")
        server.saw(f"^{host.index} up")
    lab.cut(1)
    server.saw("^1 silent")
    server.saw("^1 down")
    dialers[0].saw("^0 down")
    lab.mend(1)
    dialers[0].saw("^0 up 2")
    server.saw("^1 up", count=2)
    for dialer in dialers[1:]:
        assert "down" not in dialer.text, "one that was not cut lost its link"
