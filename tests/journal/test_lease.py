"""One supervisor per run: however many ask at once, whoever was killed, whatever the clocks say."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import RunHeld, StoreUnavailable
from holdfast.journal import lease as leases
from holdfast.journal.holder import RunHolder, Sign, is_dying, look
from holdfast.journal.lease import (
    LastWords,
    LeaseState,
    WatchedHolder,
    acquire,
    over_meanwhile,
    view,
)
from holdfast.journal.store import RunFolder, RunStore

FORK = mp.get_context("fork")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunStore(tmp_path).create("r")


class Clock:
    """Virtual time: `sleep` moves it, and may do something at a given moment."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[tuple[float, Callable[[], object]]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for event in [event for event in self.events if event[0] <= self.now]:
            self.events.remove(event)
            event[1]()


def test_a_process_id_that_cannot_be_is_nobody() -> None:
    for pid in (0, 2**31, 2**62):
        assert look(replace(RunHolder.current(), pid=pid)) is Sign.DEAD


def elsewhere(folder: RunFolder, epoch: int = 1) -> Path:
    """A claim made by a process of another host; returns its heartbeat."""
    stranger = replace(RunHolder.current(), host="far", boot_id="another-boot", pid=1)
    (folder.lease_dir / f"{epoch:06d}.json").write_text(json.dumps(stranger.to_json()))
    return folder.lease_dir / f"{epoch:06d}.alive"


# Who holds it


def test_held_released_and_taken_again(folder: RunFolder) -> None:
    assert view(folder).state is LeaseState.FREE
    first = acquire(folder)
    assert first.epoch == 1
    first.renew()
    first.check()
    assert view(folder).state is LeaseState.HELD
    with pytest.raises(RunHeld, match=rf"'r' is held by pid {os.getpid()} on host .* UTC; stop"):
        acquire(folder, sleep=Clock().sleep)
    first.release()
    first.release()
    assert view(folder).state is LeaseState.RELEASED
    second = acquire(folder)
    assert second.epoch == 2
    assert view(folder).holder == second.holder
    with pytest.raises(RunHeld, match=r"was taken over by pid .* \(lease 1\)"):
        first.renew()


def in_child(act: Callable[[], object]) -> int:
    """Run `act` in a forked child; the wait status. The child never returns."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except BaseException:  # the child must not run the rest of the tests
            os._exit(70)
    return os.waitpid(pid, 0)[1]


@pytest.mark.contract("lease: of a killed holder")
def test_a_killed_holder_is_replaced_at_once(folder: RunFolder) -> None:
    def hold_and_die() -> None:
        acquire(folder).renew()
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(hold_and_die) == signal.SIGKILL
    assert view(folder).state is LeaseState.DEAD
    assert acquire(folder, sleep=pytest.fail).epoch == 2


@pytest.mark.real
def test_a_zombie_holds_nothing(folder: RunFolder) -> None:
    pid = os.fork()
    if pid == 0:
        acquire(folder)
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # dead, not reaped
    try:
        assert view(folder).state is LeaseState.DEAD
        assert acquire(folder, sleep=pytest.fail).epoch == 2
    finally:
        os.waitpid(pid, 0)


@pytest.mark.real
def test_a_stopped_holder_still_holds(folder: RunFolder) -> None:
    pid = os.fork()
    if pid == 0:
        acquire(folder)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    try:
        with pytest.raises(RunHeld, match=f"pid {pid} "):
            acquire(folder)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.real
def test_a_holder_that_goes_between_two_looks_is_gone(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., object]
) -> None:
    pid = os.fork()
    if pid == 0:
        acquire(folder)
        signal.pause()
        os._exit(0)
    eventually(lambda: view(folder).state is LeaseState.HELD)

    def goes(holder: RunHolder) -> bool:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return is_dying(holder)

    monkeypatch.setattr(leases, "is_dying", goes)
    assert acquire(folder).epoch == 2


def test_a_reused_pid_is_not_the_holder(folder: RunFolder) -> None:
    me = RunHolder.current()
    acquire(folder, replace(me, start_ticks=me.start_ticks - 1))
    assert view(folder).state is LeaseState.DEAD
    assert acquire(folder, me).epoch == 2


def test_how_it_ended_the_run_is_told(folder: RunFolder) -> None:
    lease = acquire(folder)
    lease.release(LastWords(75, "asked to stop", leaves_memory=False))
    lease.release()
    assert view(folder).last_words == LastWords(75, "asked to stop", leaves_memory=False)
    acquire(folder).release()
    assert view(folder).last_words is None


@pytest.mark.parametrize("said", ["", "[]", "{}", '{"exit_code": "x"}', '{"exit_code": 999}'])
def test_last_words_that_are_none(folder: RunFolder, said: str) -> None:
    acquire(folder)
    (folder.lease_dir / "000001.released").write_text(said)
    assert view(folder).state is LeaseState.RELEASED
    assert view(folder).last_words is None


@pytest.mark.real
def test_a_fork_of_the_holder_can_neither_release_nor_renew(folder: RunFolder) -> None:
    lease = acquire(folder)
    assert in_child(lambda: (lease.release(), lease.renew())) == 0
    assert view(folder).state is LeaseState.HELD
    assert not (folder.lease_dir / "000001.alive").exists()


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        ({}, Sign.ALIVE),
        ({"boot_id": "x"}, Sign.UNKNOWN),  # another host, or before a reboot
        ({"pid_namespace": 1}, Sign.UNKNOWN),  # another container of this host
        ({"start_ticks": 0}, Sign.UNKNOWN),
        ({"start_ticks": 1}, Sign.DEAD),
        ({"pid": 2**22 + 1}, Sign.DEAD),
        ({"host": "renamed"}, Sign.ALIVE),
    ],
)
def test_what_can_be_known_of_a_process(change: dict[str, object], sign: Sign) -> None:
    assert look(replace(RunHolder.current(), **change)) is sign


# From another host


def test_a_silent_host_is_replaced_after_it_was_watched(folder: RunFolder) -> None:
    elsewhere(folder).write_text("41")
    clock, said = Clock(), []
    lease = acquire(folder, clock=clock, sleep=clock.sleep, on_wait=said.append)
    assert lease.epoch == 2
    assert leases.SILENT_AFTER_S <= clock.now < leases.SILENT_AFTER_S + 1
    assert said[0].startswith("run 'r' was held by pid 1 on host far")


@pytest.mark.parametrize("still_s", [0.2, 28.0, 29.9, 30.0, 99.0])
def test_what_this_host_has_watched_already_counts(folder: RunFolder, still_s: float) -> None:
    elsewhere(folder).write_text("41")
    clock, watched = Clock(), WatchedHolder(1, still_s, beat=b"41")
    acquire(folder, clock=clock, sleep=clock.sleep, watched=WatchedHolder.parse(str(watched)))
    assert clock.now == pytest.approx(max(0.0, leases.SILENT_AFTER_S - still_s))


@pytest.mark.parametrize("still_s", [28.0, 99.0])
def test_a_heart_that_has_beaten_since_it_was_watched_shows_life(
    folder: RunFolder, still_s: float
) -> None:
    elsewhere(folder).write_text("42")
    clock, watched = Clock(), WatchedHolder(1, still_s, beat=b"41")
    with pytest.raises(RunHeld):
        acquire(folder, clock=clock, sleep=clock.sleep, watched=watched)
    assert clock.now < 1


def test_what_was_watched_of_an_earlier_holder_counts_for_nothing(folder: RunFolder) -> None:
    elsewhere(folder, 2).write_text("41")
    clock = Clock()
    acquire(folder, clock=clock, sleep=clock.sleep, watched=WatchedHolder(1, 15.0, beat=b"41"))
    assert clock.now >= leases.SILENT_AFTER_S


def test_the_end_of_a_run_stands_if_its_holder_was_taken_for_silent(folder: RunFolder) -> None:
    over = LastWords(0, "done")
    acquire(folder).release(over)
    begun_again = acquire(folder)
    assert over_meanwhile(begun_again, over_before=1) is None
    begun_again.release(LastWords(75, "stopped"))
    late = acquire(folder)
    assert over_meanwhile(late, over_before=1) == LastWords(75, "stopped")
    assert over_meanwhile(late, over_before=2) is None
    late.release()
    assert over_meanwhile(acquire(folder), over_before=0) is None


def test_the_end_stands_if_another_took_the_lease_and_died_before_it_looked(
    folder: RunFolder,
) -> None:
    clock, over = Clock(), LastWords(75, "stopped")
    acquire(folder).release(over)
    beat = elsewhere(folder, 2)
    third = acquire(folder, clock=clock, sleep=clock.sleep)
    assert over_meanwhile(third, over_before=0) == over
    assert over_meanwhile(third, over_before=1) is None
    beat.write_text("41")  # it has looked, and has gone on with the run
    assert over_meanwhile(third, over_before=0) is None


def test_what_an_agent_tells_its_controller_is_read_back() -> None:
    for watched in (WatchedHolder(7, 12.5, 3, b"41\n"), WatchedHolder(7, 12.5)):
        assert WatchedHolder.parse(str(watched)) == watched
    for rubbish in ("", "7", "7:1", "x:1:2:", "7:1:2", "7:1:2:3", "7:1:2:x:", "7:nothing:1:"):
        with pytest.raises(ValueError):
            WatchedHolder.parse(rubbish)


def test_a_host_that_shows_life_keeps_the_run_whatever_its_clock_says(folder: RunFolder) -> None:
    heartbeat = elsewhere(folder)
    heartbeat.write_text("41")
    os.utime(heartbeat, (0, 0))  # its clock, or the server's, is decades off
    clock = Clock()
    clock.events.append((12.0, lambda: heartbeat.write_text("42")))
    with pytest.raises(RunHeld, match="pid 1 on host far"):
        acquire(folder, clock=clock, sleep=clock.sleep)
    assert clock.now < 14


def test_a_fresh_time_stamp_alone_is_no_life(folder: RunFolder) -> None:
    heartbeat = elsewhere(folder)
    heartbeat.write_text("41")
    clock = Clock()
    clock.events.append((5.0, heartbeat.touch))
    assert acquire(folder, clock=clock, sleep=clock.sleep).epoch == 2


def test_a_host_that_gives_up_while_watched_is_replaced_at_once(folder: RunFolder) -> None:
    elsewhere(folder)
    clock = Clock()
    clock.events.append((2.0, (folder.lease_dir / "000001.released").touch))
    assert acquire(folder, clock=clock, sleep=clock.sleep).epoch == 2
    assert clock.now < 4


def test_somebody_faster_while_we_watched(folder: RunFolder) -> None:
    elsewhere(folder)
    clock = Clock()
    clock.events.append((29.0, lambda: elsewhere(folder, 2).write_text("1")))
    clock.events.append((35.0, lambda: elsewhere(folder, 2).write_text("2")))
    with pytest.raises(RunHeld):
        acquire(folder, clock=clock, sleep=clock.sleep)


def test_a_damaged_claim_is_judged_by_its_heartbeat(folder: RunFolder) -> None:
    (folder.lease_dir / "000003.json").write_bytes(b"\0\0\0")
    clock, said = Clock(), []
    lease = acquire(folder, clock=clock, sleep=clock.sleep, on_wait=said.append)
    assert lease.epoch == 4
    assert "an unknown process" in said[0]


def test_a_stale_listing_cannot_give_an_epoch_twice(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire(folder).release()
    acquire(folder).release()
    acquire(folder)
    monkeypatch.setattr(leases, "_newest_epoch", lambda _folder: 1)  # as a cached NFS folder says
    with pytest.raises(RunHeld):
        acquire(folder, sleep=Clock().sleep)


def test_a_vanished_store_is_not_a_lost_lease(folder: RunFolder, tmp_path: Path) -> None:
    lease = acquire(folder)
    folder.path.rename(tmp_path / "away")
    for call in (lease.check, lease.renew, lease.release):
        with pytest.raises(StoreUnavailable, match="is not there") as caught:
            call()
        assert not isinstance(caught.value, RunHeld)
    (tmp_path / "away").rename(folder.path)
    lease.renew()


# Races

PLAYERS, ROUNDS = 8, 50
LIMIT_S = 60.0  # where one player has died, the others end, too


@pytest.mark.contract("lease: of many who ask at once")
def test_of_simultaneous_acquirers_exactly_one_wins(folder: RunFolder) -> None:
    """50 rounds of 8 processes that start at a barrier; winners release, or die holding."""
    gate, results = FORK.Barrier(PLAYERS + 1, timeout=LIMIT_S), FORK.Queue()

    def play() -> None:
        for round_ in range(ROUNDS):
            gate.wait()
            try:
                lease = acquire(folder)
            except RunHeld:
                lease = None
            results.put((round_, os.getpid(), lease.epoch if lease else None))
            gate.wait()
            if lease:
                lease.release()
            gate.wait()

    players = [FORK.Process(target=play) for _ in range(PLAYERS)]
    for player in players:
        player.start()
    for round_ in range(ROUNDS):
        gate.wait()
        answers = [results.get(timeout=LIMIT_S) for _ in players]
        gate.wait()
        assert {answer[0] for answer in answers} == {round_}
        assert [epoch for _, _, epoch in answers if epoch is not None] == [round_ + 1]
        gate.wait()
    for player in players:
        player.join()
    assert view(folder).epoch == ROUNDS


@pytest.mark.real
def test_the_heirs_of_killed_holders_race_too(folder: RunFolder) -> None:
    """As above, but every winner dies by SIGKILL: all losers judge the same corpse at once."""
    for round_ in range(12):
        # A queue of this round's own: a player may be killed while it holds the queue's lock.
        gate, alive = FORK.Barrier(4, timeout=LIMIT_S), FORK.Queue()

        def play(gate=gate, alive=alive) -> None:
            gate.wait()
            try:
                lease = acquire(folder)
            except RunHeld:
                alive.put(None)
                return
            alive.put(lease.epoch)
            signal.pause()

        players = [FORK.Process(target=play) for _ in range(4)]
        for player in players:
            player.start()
        epochs = [alive.get(timeout=LIMIT_S) for _ in players]
        assert [epoch for epoch in epochs if epoch] == [round_ + 1]
        for player in players:
            player.kill()
            player.join()


@pytest.mark.real
def test_nobody_is_inside_together(folder: RunFolder, tmp_path: Path) -> None:
    """Without rounds: who holds the lease is alone, at every moment, whatever the interleaving."""
    arena, violations = tmp_path / "inside", FORK.SimpleQueue()

    def play() -> None:
        wins = 0
        while wins < 6:
            try:
                lease = acquire(folder)
            except RunHeld:
                continue
            try:
                os.close(os.open(arena, os.O_CREAT | os.O_EXCL))
                lease.check()
                arena.unlink()
            except (FileExistsError, RunHeld) as error:
                violations.put(repr(error))
            wins += 1
            lease.release()

    players = [FORK.Process(target=play) for _ in range(4)]
    for player in players:
        player.start()
    for player in players:
        player.join()
        assert player.exitcode == 0
    assert violations.empty()
    assert view(folder).epoch == 24


@pytest.mark.real
def test_a_holder_that_is_being_killed_is_outlived(folder: RunFolder) -> None:
    """Who starts a run right after `kill -9`; giving back much memory takes a process a while."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        acquire(folder)
        held = bytearray(b"x") * (256 << 20)
        os.write(write_fd, b"." if held else b"")
        signal.pause()
    os.read(read_fd, 1)
    with pytest.raises(RunHeld):
        acquire(folder)
    assert not is_dying(view(folder).holder)
    os.kill(pid, signal.SIGKILL)
    assert acquire(folder).epoch == 2
    os.waitpid(pid, 0)
    os.close(read_fd)
    os.close(write_fd)
