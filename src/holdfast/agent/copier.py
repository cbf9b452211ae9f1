"""The copy process of a host: brings parts of sets here, and has other hosts get theirs from here.

Runs as a program of its own (`python -P -m holdfast.agent.copier PARENT NICE`), one of several
hosts' alone, and is asked in JSON lines like `agent.flusher`. `serve` is never over: `listening`
says on which port. `pull` is over with `done` or `failed`.

Both ends of each connection prove the run's secret, which comes with the command. Whoever has done
so may read what is sealed in the run's memory folder on this host, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from holdfast.agent.flusher import GIVING_WAY_SHARE, Command, commands, report, take_place
from holdfast.core.hosts.copy_share import CopySeen, copy_share
from holdfast.core.save.corruption import MOST, ReplicaDifference
from holdfast.errors import CorruptCheckpoint, HoldfastError, StoreUnavailable
from holdfast.journal.flow import Flow
from holdfast.link.certificate import make_certificate
from holdfast.link.exchange import BLOCK_BYTES, Exchange
from holdfast.link.frames import LinkError
from holdfast.link.reception import Reception
from holdfast.link.values import Peer
from holdfast.snapshot.part import (
    OwnTensors,
    PartName,
    PartReader,
    PulledPart,
    find_part,
    names_of,
    own_tensors,
    pull,
    read_receipts,
)
from holdfast.snapshot.receipt import Receipt, number, objects

NAME = b"hf-copy"
BACKLOG = 64
ALIKE = 3  # sets in a row in which an array is the same on both hosts: then it is replicated
PIECE_BYTES = 4 * BLOCK_BYTES  # between two pauses
FADES = 0.7  # of what is remembered of how the cores were, with each block
NOT_WANTED = "it is not wanted any more"
_flows: dict[int, Flow] = {}  # of what is being brought
_connections: dict[int, socket.socket] = {}  # over which it comes
_were_alike: dict[str, int] = {}  # by array, in how many sets in a row


class RemotePart:
    """A `snapshot.part.PartSource` over a connection."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def receipts(self, part: PartName) -> list[Receipt]:
        """Of the part's ranks."""
        self._exchange.say(
            {"get": "part", "attempt": part.attempt, "step": part.step, "ranks": list(part.ranks)}
        )
        said = self._answer()
        try:
            return [Receipt.from_json(one) for one in objects(said, "receipts")]
        except ValueError as error:
            raise CorruptCheckpoint(f"another host sent no receipt: {error}") from error

    def read(self, rank: int, begin: int, end: int) -> Iterator[memoryview]:
        """Bytes of that part."""
        self._exchange.say({"get": "bytes", "rank": rank, "begin": begin, "end": end})
        self._answer()
        while begin < end:
            block = self._exchange.receive()
            if not 0 < len(block) <= end - begin:
                raise LinkError(f"a block of {len(block)} bytes, and {end - begin} were to come")
            begin += len(block)
            yield block

    def _answer(self) -> Command:
        said = self._exchange.hear()
        if isinstance(why := said.get("error"), str):
            raise StoreUnavailable(f"the other host cannot give it: {why:.300}")
        return said


class CopyPace:
    """Of one copy, in its own thread: what it may use is decided anew after each block."""

    def __init__(self, flow: Flow, within_ns: int) -> None:
        self._flow = flow
        self._until_ns = time.monotonic_ns() + within_ns
        self._began_ns = time.process_time_ns()
        self._before = _ran_and_waited_ns()
        self._lately = (0.0, 0.0)

    def look(self, done: int, of: int) -> None:
        """So many bytes are here."""
        now = _ran_and_waited_ns()
        ran_ns, waited_ns = (
            FADES * lately + after - before
            for lately, before, after in zip(self._lately, self._before, now, strict=True)
        )
        self._before, self._lately = now, (ran_ns, waited_ns)
        left_ns = self._until_ns - time.monotonic_ns()
        used_ns = time.process_time_ns() - self._began_ns
        seen = CopySeen(used_ns, done, of, left_ns, round(ran_ns), round(waited_ns))
        self._flow.share, _ = copy_share(seen)


def _ran_and_waited_ns() -> tuple[int, int]:
    """How long this thread has run, and has waited for a core; where the kernel does not say: 0."""
    try:
        ran_ns, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0, 0
    return int(ran_ns), int(waited_ns)


def bring(command: Command) -> PulledPart:
    """Bring a part here; raises HoldfastError."""
    part = PartName(command["attempt"], command["step"], tuple(command["ranks"]))
    ram_dir, secret = Path(command["ram"]), bytes.fromhex(command["secret"])
    own = own_tensors(ram_dir, part.attempt, part.step) if command["compare"] else OwnTensors()
    flow = _flows[command["id"]]
    pace = CopyPace(flow, command["within_ns"]) if command["gives_way"] else None
    came = 0

    def rest(nbytes: int, of: int) -> None:
        """Small tensors are brought one after the other without a rest."""
        nonlocal came
        before, came = came, came + nbytes
        if came // PIECE_BYTES > before // PIECE_BYTES:
            if pace is not None:
                pace.look(came, of)
            if not flow.goes_on():
                raise StoreUnavailable(NOT_WANTED)

    me = Peer(command["index"], uuid.uuid4().hex)
    address, port = command["address"], command["port"]

    def opened(connection: socket.socket) -> None:
        _connections[command["id"]] = connection
        if flow.is_stopped:  # while this dialled
            raise StoreUnavailable(NOT_WANTED)

    try:
        exchange = Exchange.dial(address, port, command["run"], secret, me, opened)
    except OSError as error:
        raise StoreUnavailable(
            f"a neighbour cannot be reached at {address}, port {port} "
            f"({error.strerror or error}): let hosts reach each other, or set --host-address there"
        ) from error
    except LinkError as error:
        raise StoreUnavailable(f"{address} port {port}: {error}") from error
    try:
        with contextlib.closing(exchange):
            return pull(RemotePart(exchange), part, ram_dir / command["into"], own, rest)
    except (LinkError, OSError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise StoreUnavailable(f"{address} port {port}: {words}") from error


def bring_in_turn(command: Command) -> None:
    """Bring a part, and say what came of it."""
    number_, started_s = command["id"], time.monotonic()
    try:
        done = bring(command)
    except HoldfastError as error:
        why = NOT_WANTED if _flows[number_].is_stopped else str(error)
        report("failed", number_, why=why, is_gone=isinstance(error, CorruptCheckpoint))
    except Exception as error:  # whatever it is, somebody waits for an answer
        report("failed", number_, why=f"internal error in the copy process: {error!r}")
    else:
        took_ns = round((time.monotonic() - started_s) * 1e9)
        suspect = new_differences(done) if command["compare"] else []
        differing = [
            [one.array, [[replica.rank, replica.digest] for replica in one.replicas]]
            for one in suspect
        ]
        told = {"bytes": done.nbytes, "differing": differing}
        report("done", number_, took_ns=took_ns, **told)
    finally:
        _flows.pop(number_, None)
        _connections.pop(number_, None)


def stop(number: int) -> None:
    """It is not wanted any more: its host may be gone, and then nothing more would come."""
    if (flow := _flows.get(number)) is not None:
        flow.stop()
    if (connection := _connections.get(number)) is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def new_differences(done: PulledPart) -> list[ReplicaDifference]:
    """Arrays that were the same on both hosts in the last few sets, and are not in this one."""
    found = [one for one in done.differing if _were_alike.pop(one.array, 0) >= ALIKE]
    for name in done.alike:
        _were_alike[name] = _were_alike.get(name, 0) + 1
    return found[:MOST]


class PartServer:
    """Gives parts to hosts that ask, each in a thread."""

    def __init__(self, command: Command) -> None:
        self._ram_dir = Path(command["ram"])
        self._run, self._secret = command["run"], bytes.fromhex(command["secret"])
        self._certificate = make_certificate()  # None: it answers in the clear
        listening = socket.create_server((command["at"], 0), backlog=BACKLOG)
        self.port = int(listening.getsockname()[1])
        self._reception = Reception(listening, self._talk)

    def serve(self) -> None:
        """For ever."""
        self._reception.serve()

    def _talk(self, connection: socket.socket) -> None:
        exchange = Exchange.answer(connection, self._run, self._secret, self._certificate)
        with (
            self._reception.proved(connection),
            contextlib.closing(_Asked(self._ram_dir, exchange)) as asked,
        ):
            while True:
                asked.answer(exchange.hear())


class _Asked:
    """One host's questions: first which part, then for bytes of it."""

    def __init__(self, ram_dir: Path, exchange: Exchange) -> None:
        self._ram_dir = ram_dir
        self._exchange = exchange
        self._reader: PartReader | None = None

    def close(self) -> None:
        """It asks no more."""
        if self._reader is not None:
            self._reader.close()

    def answer(self, question: Command) -> None:
        """One question."""
        try:
            if question.get("get") == "part":
                part = names_of(question)
                folder = find_part(self._ram_dir, part)
                receipts = [one.to_json() for one in read_receipts(folder, part.ranks)]
                self.close()
                self._reader = PartReader(self._ram_dir, folder)
                self._exchange.say({"receipts": receipts})
                return
            rank, begin, end = (number(question, name) for name in ("rank", "begin", "end"))
            if self._reader is None:
                raise ValueError("bytes of which part?")
            blocks = range(begin, end, BLOCK_BYTES)
            # The first is read before it is said that they come.
            data = self._reader.read(rank, begin, min(begin + BLOCK_BYTES, end))
        except (HoldfastError, ValueError) as error:
            self._exchange.say({"error": str(error)})
            return
        self._exchange.say({})
        for start in blocks:
            if start > begin:
                try:
                    data = self._reader.read(rank, start, min(start + BLOCK_BYTES, end))
                except HoldfastError as error:
                    raise LinkError(str(error)) from error  # it has been said that they come
            self._exchange.send(data)


def carry_out(command: Command) -> None:
    """Do what was asked for, in a thread of its own."""
    if command["do"] == "pull":
        bring_in_turn(command)
        return
    try:
        server = PartServer(command)
    except OSError as error:
        why = f"no port can be had for copies: {error.strerror or error}"
        report("failed", command["id"], why=why)
        return
    report("listening", command["id"], port=server.port)
    server.serve()


def main(parent: int, nice: int) -> None:
    """Serve until there is nobody to serve."""
    take_place(parent, nice, NAME)
    for command in commands():
        if command["do"] == "stop":
            stop(command["id"])
            continue
        if command["do"] == "pull":
            _flows[command["id"]] = Flow(share=GIVING_WAY_SHARE if command["gives_way"] else 1)
        threading.Thread(target=carry_out, args=(command,), daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
