"""Processes that hold a device, which is a plain file here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HEAD = """
import mmap, os, signal, sys
device = open(sys.argv[1], "r+b")
log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def write(words):
    os.write(log, f"{words}\\n".encode())
def on(what):
    signal.signal(signal.SIGTERM, lambda *_: (write("SIGTERM"), what()))
"""
TAIL = """
write("up")
while True:
    signal.pause()
"""
SAVER = "def save():\n    write('saved')\n    sys.exit()\non(save)"
STUBBORN = "on(lambda: None)"
# Its workers have the device from it, and tell of a SIGTERM that they get.
WITH_WORKERS = """
read, held = os.pipe()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda *_: write("worker: SIGTERM"))
    os.close(held)
    while True:
        try:
            os.read(read, 1)
            os._exit(0)  # the trainer has ended
        except InterruptedError:
            pass
os.close(read)
def save():
    write("saved")
    os.close(held)
    os.wait()
    sys.exit()
on(save)
"""
MAPPED = """
mapping = mmap.mmap(device.fileno(), 4096)
os.close(os.dup2(os.open(os.devnull, 0), device.fileno()))
for number in os.listdir("/proc/self/fd"):
    if int(number) > 2 and int(number) != log:
        try:
            os.close(int(number))
        except OSError:
            pass
"""


class Job:
    """A process that is up; what it has written is its log."""

    def __init__(self, device: Path, what: str, log: Path, within: Sequence[str] = ()):
        self._log = log
        self.process = subprocess.Popen(
            [*within, sys.executable, "-I", "-S", "-c", HEAD + what + TAIL, device, log]
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> list[str]:
        return self._log.read_text().split("\n")[:-1] if self._log.exists() else []

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def jobs(device: Path, eventually) -> Iterator:
    """`start(what)`: a job that holds the device; all end with the block."""
    started: list[Job] = []

    def start(what: str, wait: bool = True, within: Sequence[str] = ()) -> Job:
        job = Job(device, what, device.parent / f"log-{len(started)}", within)
        started.append(job)
        if wait:
            eventually(lambda: "up" in job.log)
        return job

    try:
        yield start
    finally:
        for job in started:
            job.close()
