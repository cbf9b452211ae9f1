"""SIGTERM is seen at once, whatever the main thread does, and a child's is its own."""

from __future__ import annotations

import sys

import pytest
from processes import House

pytestmark = pytest.mark.real

LISTEN = """
import os, signal, sys, threading, time
from holdfast.session import signals

marks = []
signals.install_sigterm(lambda: marks.append(threading.current_thread().name), chain=False)
"""


def test_a_forked_childs_signal_is_its_own(house: House) -> None:
    """Also where the child has a handler of its own, which Python's C handler leads to."""
    script = house.script(
        LISTEN
        + """
is_ready, ready = os.pipe()
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    os.write(ready, b".")
    while True:
        signal.pause()
os.read(is_ready, 1)
os.kill(pid, signal.SIGTERM)
print("child left with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
while len(set(marks)) < 2:
    time.sleep(0.01)
print(sorted(set(marks)), marks.count("holdfast-signals"), flush=True)
"""
    )
    out = house.start(sys.executable, script).wait(0)
    assert "child left with 7" in out
    assert "['MainThread', 'holdfast-signals'] 1" in out  # the child's was not heard


@pytest.mark.contract("signal: beside an event loop")
def test_an_event_loop_that_was_there_is_still_woken(house: House) -> None:
    script = house.script(
        """
import asyncio, os, signal

async def main():
    came = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, came.set)
    from holdfast.session import signals
    signals.install_sigterm(lambda: None, chain=False)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(came.wait(), 30)
    print("woken", flush=True)

asyncio.run(main())
"""
    )
    assert "woken" in house.start(sys.executable, script).wait(0)


def test_the_pipe_is_far_from_the_scripts_own_files(house: House) -> None:
    """A script that closes everything and opens a file of its own finds no signal in it."""
    script = house.script(
        LISTEN
        + """
os.closerange(3, 4096)
file = open("mine", "wb", buffering=0)
print(file.fileno(), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
while not marks:
    time.sleep(0.01)
print(os.path.getsize("mine"), marks, flush=True)
"""
    )
    out = house.start(sys.executable, script).wait(0)
    assert "0 ['MainThread']" in out
