"""Parts of sets between two hosts' memories, by real copy processes over a real connection."""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from holdfast.agent import flush
from holdfast.agent.copying import Copying, CopyTrust
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.copies import CopyServer
from holdfast.errors import CorruptCheckpoint
from holdfast.link.exchange import Exchange
from holdfast.link.frames import LinkError
from holdfast.link.values import Peer
from holdfast.snapshot.part import PartName, await_part, held_copies
from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.ram_folder import buffer_name, sealed_buffers
from holdfast.snapshot.seal import seal_buffer
from holdfast.snapshot.staging import GLOBAL

Eventually = Callable[..., object]
STEP = 7
SECRET = b"s" * 40
ME = Peer(5, "0a" * 16)
ORDER = act.Replicate(0, 3, STEP, 0)


class CopyingHost:
    """One of three, with the part of its one rank in memory, and the processes that copy it."""

    def __init__(self, folder: Path, index: int, *, has_part: bool = True) -> None:
        folder.mkdir(mode=0o700)
        self.folder, self.selector = folder, selectors.DefaultSelector()
        self.told: list[ev.Event] = []
        if has_part:
            files = BufferFiles(folder, wanted=1, rank=index, world_size=2, local_world_size=1)
            assert files.prepare(1 << 20) == ""
            own = np.full(50_000, index, np.float32)
            tree = {"state": {"alike": np.arange(100_000.0), "own": own}}
            files.begin(0, tree, Named(0, STEP, 0, GLOBAL, ()), None)
            seal_buffer(folder / "buffer-0", 2, attempt=0, step=STEP, ranks=(index,))
        trust = CopyTrust("run", SECRET, index, "127.0.0.1")
        self.copying = Copying(self.selector, dict(os.environ), folder, trust)
        self.copying.serve()

    @property
    def server(self) -> CopyServer:
        return CopyServer("127.0.0.1", self.copying.port)

    def turn(self) -> None:
        self.selector.select(0.02)
        self.copying.turn()


@pytest.fixture
def hosts(tmp_path: Path, eventually: Eventually) -> Iterator[list[CopyingHost]]:
    made = [CopyingHost(tmp_path / str(index), index, has_part=index < 2) for index in range(3)]

    def listen() -> bool:
        for host in made:
            host.turn()
        return all(host.copying.port for host in made)

    eventually(listen, within_s=60.0)
    yield made
    for host in made:
        host.copying.close()
        host.selector.close()


def replicate(
    host: CopyingHost,
    of: CopyingHost,
    rank: int,
    eventually: Eventually,
    order: act.Replicate = ORDER,
) -> ev.Event:
    host.told = []
    host.copying.replicate(order, (rank,), of.server, host.told.append)

    def told() -> bool:
        host.turn()
        return bool(host.told)

    eventually(told, within_s=60.0)
    return host.told[0]


@pytest.mark.contract("copies: from a neighbour, and back to a spare")
def test_a_part_is_copied_and_a_spare_gets_it(
    hosts: list[CopyingHost], eventually: Eventually
) -> None:
    first, second, spare = hosts
    done = replicate(second, first, 0, eventually)
    assert isinstance(done, ev.Replicated), done
    assert (done.of_attempt, done.epoch, done.step) == (0, 3, STEP)
    (copy,) = held_copies(second.folder)
    assert copy.ranks == (0,)
    assert isinstance(replicate(second, first, 0, eventually), ev.Replicated)

    spare.copying.fetch(PartName(0, STEP, (0,)), 0, second.server)
    waits = spare.folder / "buffer-0" / "fetching"
    assert waits.exists()

    def fetched() -> bool:
        spare.turn()
        return not waits.exists()

    eventually(fetched, within_s=60.0)
    (found,), damage = sealed_buffers(spare.folder)
    assert (found.info.step, found.info.ranks, damage) == (STEP, (0,), {})
    name = buffer_name(0), "rank-00000.safetensors"
    assert spare.folder.joinpath(*name).read_bytes() == first.folder.joinpath(*name).read_bytes()

    with pytest.raises(LinkError):
        Exchange.dial("127.0.0.1", first.copying.port, "run", b"t" * 40, ME)
    with socket.create_connection(first.server, 10) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(64))
        assert stranger.recv(100) == b"", "a stranger hears nothing"


@pytest.mark.real
def test_nobody_waits_for_a_fetch_that_is_not_wanted_any_more(
    hosts: list[CopyingHost],
) -> None:
    first, spare = hosts[0], hosts[2]
    spare.copying.fetch(PartName(0, STEP, (0,)), 1, first.server)
    waits = spare.folder / "buffer-1" / "fetching"
    assert waits.exists()
    spare.copying.stop_fetch()
    assert not waits.exists()
    waits.touch()  # as an agent leaves it that is killed meanwhile
    trust = CopyTrust("run", SECRET, 2, "127.0.0.1")
    again = Copying(spare.selector, dict(os.environ), spare.folder, trust)
    again.close()
    assert not waits.exists()


@pytest.mark.real
def test_who_waits_for_a_part_is_told_why_it_does_not_come(
    hosts: list[CopyingHost], eventually: Eventually
) -> None:
    _, second, spare = hosts
    folder, part = spare.folder / buffer_name(0), PartName(0, STEP, (0,))
    spare.copying.fetch(part, 0, None)
    with pytest.raises(CorruptCheckpoint, match="no host has said where it has it"):
        await_part(folder)
    spare.copying.fetch(part, 0, second.server)

    def is_over() -> bool:
        spare.turn()
        return not (folder / "fetching").exists()

    eventually(is_over, within_s=60.0)
    with pytest.raises(CorruptCheckpoint, match="is not in memory there"):
        await_part(folder)


@pytest.mark.real
def test_what_cannot_be_had_is_said(hosts: list[CopyingHost], eventually: Eventually) -> None:
    first, second, spare = hosts
    failed = replicate(second, spare, 0, eventually)
    assert isinstance(failed, ev.NotReplicated)
    assert "is not in memory there" in failed.why
    os.kill(first.copying.pids[0], signal.SIGKILL)
    failed = replicate(second, first, 0, eventually)
    assert isinstance(failed, ev.NotReplicated)
    assert "cannot be reached at 127.0.0.1, port " in failed.why


@pytest.mark.real
def test_a_host_that_had_another_part_copies_what_it_is_to_have_now(
    hosts: list[CopyingHost], eventually: Eventually
) -> None:
    """The spare has had either neighbour: both of its copies are of the set that is to be kept."""
    first, second, spare = hosts
    again = replace(ORDER, kept=(0, STEP))
    for host, rank in ((first, 0), (second, 1)):
        assert isinstance(replicate(spare, host, rank, eventually, again), ev.Replicated)
    assert {one.ranks for one in held_copies(spare.folder)} == {(0,), (1,)}
    missing = replicate(spare, second, 1, eventually, replace(again, step=STEP + 1))
    assert isinstance(missing, ev.NotReplicated)
    assert [one.ranks for one in held_copies(spare.folder)] == [(1,)]


@pytest.mark.real
def test_a_copy_from_a_host_that_is_gone_makes_room_for_the_next(
    hosts: list[CopyingHost], eventually: Eventually
) -> None:
    """It has lost its power: its neighbour's connection stands, and nothing comes."""
    first, second, _ = hosts
    told: list[ev.Event] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = CopyServer("127.0.0.1", silent.getsockname()[1])
        second.copying.replicate(act.Replicate(0, 3, STEP, 0), (1,), place, told.append)
        connection, _ = silent.accept()
        with connection:
            before = replicate(second, first, 0, eventually)
            assert isinstance(before, ev.NotReplicated)
            assert before.why == "the copy before it is under way still"

            def is_over() -> bool:
                second.turn()
                return bool(told)

            eventually(is_over, within_s=60.0)
            (failed,) = told
            assert isinstance(failed, ev.NotReplicated)
            assert failed.why == "it is not wanted any more"  # and not: timed out
            assert isinstance(replicate(second, first, 0, eventually), ev.Replicated)


def serves_by_another(host: CopyingHost, before: list[int]) -> bool:
    host.turn()
    assert not host.copying.why_not
    return bool(host.copying.port) and host.copying.pids != before


@pytest.mark.real
def test_a_copy_process_that_dies_serves_again(
    hosts: list[CopyingHost], eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often in weeks: only deaths one soon after the other count."""
    monkeypatch.setattr(flush, "STEADY_S", 0.0)
    first, second, _ = hosts
    for _ in range(flush.TRIES + 1):
        before = first.copying.pids
        os.kill(before[0], signal.SIGKILL)
        eventually(partial(serves_by_another, first, before), within_s=60.0)
    assert isinstance(replicate(second, first, 0, eventually), ev.Replicated)
