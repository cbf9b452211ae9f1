"""`python -m holdfast.agent.preflight`: whether this host is fit to train. A process of its own.

It reads one line of JSON (`PreflightJob`) and writes one: `failure` ("" if the host is fit),
`words`, what was tried, and `of_store`, whether it is the run store that has failed. Whoever has
started it ends it when it takes too long: a disk that is gone, or a kernel that is ill, answers
nothing for ever. It opens no accelerator.

A host that only answers its neighbours says nothing, and stays until its input ends.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.link.reception import Reception

TOKEN_BYTES = 32
PAIR_BYTES = 4 << 20  # each way
PAIR_LIMIT_S = 5.0  # for a neighbour to answer; and then between any two pieces
LEAST_BYTES_PER_S = 2e6  # less is a network that is broken, or a host that hardly runs
SLOW_START_TRIPS = 20  # both ways, until TCP has found out what a network carries
SHM = "/dev/shm"  # noqa: S108 - where frameworks put what their processes share
FILE_BYTES = 1 << 20
STORE = "the run store"
STORE_LIMIT_S = 15.0  # a store that is away is waited for; by then the controller knows that it is
STORE_LOOK_S = 0.2
LEAST_MEMORY_BYTES = 128 << 20
EARLIEST_UNIX_S = 1_735_689_600  # 2025: a clock before that was never set
SIDE = 256


@dataclass(frozen=True, slots=True)
class PreflightJob:
    """What is to be tried. `token`: in hex, by which the hosts know each other.

    `at`: the address and port where this host answers its neighbours. `dials`: index, address and
    port of those with whom it exchanges bytes. `store`: the run's folder, "" in an object store.
    """

    checks: bool
    token: str
    at: tuple[str, int]
    dials: tuple[tuple[int, str, int], ...] = ()
    scratch: str = ""
    store: str = ""
    script: str = ""

    def to_json(self) -> bytes:
        """As the process reads it."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_json(cls, line: str) -> PreflightJob:
        """The inverse."""
        fields = json.loads(line)
        dials = tuple((int(n), str(address), int(port)) for n, address, port in fields.pop("dials"))
        address, port = fields.pop("at")
        return cls(**fields, dials=dials, at=(address, port))


class UnfitError(Exception):
    """The host is not fit, in words."""


# --- the host by itself ---------------------------------------------------------------------------


def look_at_itself(job: PreflightJob) -> str:
    """Says what was looked at. Raises UnfitError for the first thing that is wrong."""
    if time.time() < EARLIEST_UNIX_S:
        raise UnfitError(f"its clock says {time.strftime('%Y-%m-%d', time.gmtime())}")
    _check_memory()
    _check_folder(SHM, Path(SHM))
    _check_folder("its scratch folder", Path(job.scratch))
    if job.store:
        _await_store(Path(job.store))
    if job.script:
        try:
            Path(job.script).read_bytes()
        except OSError as error:
            raise UnfitError(f"the script cannot be read: {error.strerror}") from None
    return "memory and disks"


def _await_store(folder: Path) -> None:
    until_s = time.monotonic() + STORE_LIMIT_S
    while True:
        try:
            return _check_folder(STORE, folder)
        except UnfitError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(STORE_LOOK_S)


def _check_memory() -> None:
    """That there is some, and that what is written there is read again."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free_bytes = int(line.split()[1]) << 10
                if free_bytes < LEAST_MEMORY_BYTES:
                    raise UnfitError(f"it has {free_bytes >> 20} MiB of memory left")
    pattern = bytes(range(256)) * (FILE_BYTES // 256)
    if bytes(bytearray(pattern)) != pattern:
        raise UnfitError("its memory does not keep what is written there")


def _check_folder(what: str, folder: Path) -> None:
    """A file without a name is written there, and read again."""
    data = os.urandom(FILE_BYTES)
    try:
        with _nameless(folder) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            found = file.read()
    except OSError as error:
        raise UnfitError(f"{what} cannot be written: {error.strerror}") from None
    if found != data:
        raise UnfitError(f"{what} does not keep what is written there")


def _nameless(folder: Path) -> Any:
    import tempfile

    return tempfile.TemporaryFile(dir=folder)


# --- arithmetic -----------------------------------------------------------------------------------


def multiply() -> str:
    """A product of matrices whose result is known; says by what it was made.

    Of rank one and of small whole numbers: (u wᵀ)(v zᵀ) = (w·v) u zᵀ, exact in floating point.
    """
    u, w, v, z = ([float((n * step) % 7 - 3) for n in range(SIDE)] for step in (2, 3, 5, 4))
    inner = sum(a * b for a, b in zip(w, v, strict=True))
    try:
        import numpy as np
    except ImportError:
        rows = [[a * b for b in w] for a in u[:32]]
        columns = [[a * b for a in v] for b in z[:32]]
        found = [[sum(map(float.__mul__, r, c)) for c in columns] for r in rows]
        is_right = found == [[inner * a * b for b in z[:32]] for a in u[:32]]
        how = "Python"
    else:
        product = np.outer(u, w) @ np.outer(v, z)
        is_right = bool((product == inner * np.outer(u, z)).all())
        how = "numpy"
    if not is_right:
        raise UnfitError(f"its processor multiplies matrices wrongly (with {how})")
    return f"matmul with {how}"


# --- pairs ----------------------------------------------------------------------------------------


def listen(at: tuple[str, int]) -> socket.socket | None:
    """Where neighbours are answered; None where that cannot be."""
    try:
        return socket.create_server(at, family=_family(at[0]))
    except OSError:
        return None


def answer_all(server: socket.socket, token: bytes) -> None:
    """Answer whoever knows the token, for as long as this process lives."""
    reception = Reception(server, lambda one: _answer(one, token, reception.proved))
    reception.serve()


def _answer(
    connection: socket.socket,
    token: bytes,
    proved: Callable[[socket.socket], AbstractContextManager[Any]] = contextlib.nullcontext,
) -> None:
    with contextlib.suppress(OSError, EOFError):
        connection.settimeout(PAIR_LIMIT_S)
        if not hmac.compare_digest(_receive(connection, TOKEN_BYTES), token):
            return
        with proved(connection):
            connection.sendall(token)
            connection.sendall(_receive(connection, PAIR_BYTES))
            connection.recv(1)  # the other one ends the connection


def exchange(index: int, address: str, port: int, token: bytes) -> str:
    """Bytes to a neighbour and back; says how fast. Raises UnfitError."""
    to = f"host {index} ({address})"
    try:
        connection = _connect(address, port)
        if connection is None:
            return f"host {index} not tried: nothing listens there"
        with connection:
            connection.settimeout(PAIR_LIMIT_S)
            begun_s = time.monotonic()
            connection.sendall(token)
            if _receive(connection, TOKEN_BYTES) != token:
                raise UnfitError(f"{to} does not know the run's secret")
            round_trip_s = time.monotonic() - begun_s
            data = os.urandom(PAIR_BYTES)
            begun_s = time.monotonic()
            sending = threading.Thread(target=_send, args=(connection, data), daemon=True)
            sending.start()
            found = _receive(connection, PAIR_BYTES)
            took_s = time.monotonic() - begun_s
    except TimeoutError:
        raise UnfitError(f"{to} does not answer it within {PAIR_LIMIT_S:g} s") from None
    except EOFError:
        raise UnfitError(f"{to} breaks the connection off") from None
    except OSError as error:
        raise UnfitError(f"it cannot reach {to}: {error.strerror}") from None
    if found != data:
        raise UnfitError(f"what it sends to {to} does not come back as it was")
    speed = 2 * PAIR_BYTES / max(took_s, 1e-6)
    at_work_s = took_s - SLOW_START_TRIPS * round_trip_s
    if LEAST_BYTES_PER_S * at_work_s > 2 * PAIR_BYTES:
        raise UnfitError(f"its network to {to} carries {speed / 1e6:.1f} MB/s")
    return f"host {index} at {speed / 1e6:.0f} MB/s"


def _connect(address: str, port: int) -> socket.socket | None:
    """None: the host is there, and nothing of ours listens on it."""
    give_up_s = time.monotonic() + PAIR_LIMIT_S
    while True:
        left_s = give_up_s - time.monotonic()
        try:
            return socket.create_connection((address, port), max(0.1, left_s))
        except ConnectionRefusedError:  # its process is about to start
            if left_s < 0:
                return None
            time.sleep(0.02)


def _send(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # whoever receives finds that out
        connection.sendall(data)


def _receive(connection: socket.socket, nbytes: int) -> bytes:
    """So many bytes. Raises EOFError, and TimeoutError for a pause that is too long."""
    found = bytearray(nbytes)
    view, have = memoryview(found), 0
    while have < nbytes:
        got = connection.recv_into(view[have:])
        if not got:
            raise EOFError
        have += got
    return bytes(found)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


# --- all of it ------------------------------------------------------------------------------------


def try_out(job: PreflightJob) -> tuple[str, str]:
    """Why this host is not fit ("": it is), and what was tried."""
    token = bytes.fromhex(job.token)
    to_do: list[Callable[[], str]] = [partial(look_at_itself, job), multiply]
    to_do += [partial(exchange, *one, token) for one in job.dials]
    tried, failures = [""] * len(to_do), [""] * len(to_do)

    def guarded(number: int) -> None:
        failures[number] = "its preflight crashed"  # unless one of these is so
        try:
            tried[number] = to_do[number]()
            failures[number] = ""
        except UnfitError as error:
            failures[number] = str(error)

    # Beside each other: they wait for disks, for the network and for imports.
    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(len(to_do))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next(filter(None, failures), ""), ", ".join(filter(None, tried))


def main() -> None:
    """One preflight, or answers until the input ends."""
    job = PreflightJob.from_json(sys.stdin.readline())
    server = listen(job.at)
    if server is not None:
        token = bytes.fromhex(job.token)
        threading.Thread(target=answer_all, args=(server, token), daemon=True).start()
    if job.checks:
        failure, words = try_out(job)
        of_store = failure.startswith(STORE)
        told = {"failure": failure, "words": words, "of_store": of_store}
        print(json.dumps(told), flush=True)
    # Others may still want an answer: until whoever has started this lets go of it, or has ended.
    while select.select([sys.stdin], [], [])[0] and os.read(0, 1024):
        pass


if __name__ == "__main__":
    main()
