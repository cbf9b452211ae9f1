"""Who holds a device, and that a signal reaches that very process or nobody."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from holding import MAPPED, SAVER, STUBBORN, WITH_WORKERS, jobs

sys.path.pop(0)

from holdfast.agent.daemon.holders import Scan
from holdfast.agent.daemon.pidfds import Pidfds
from holdfast.core.daemon.events import ProcessId


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "accel0"
    path.write_bytes(bytes(4096))
    return path


@pytest.fixture
def start(device: Path, eventually) -> Iterator[Callable]:
    with jobs(device, eventually) as begin:
        yield begin


@pytest.mark.contract("host daemon: who holds a device")
def test_descriptors_mappings_and_workers(device, start):
    (device.parent / "accelerate.txt").touch()
    other = f"device.close()\nother = open({str(device.parent / 'accelerate.txt')!r})"
    plain, mapped, with_workers, _ = map(start, (SAVER, MAPPED, WITH_WORKERS, other))
    scan = Scan([f"{device.parent}/accel[0-9]"])
    with device.open():  # this process is never found, nor what it descends from
        sight = scan.look()
    found = {one.process.pid: one for one in sight.holders}
    (worker,) = [one for one in sight.holders if one.works_for is not None]
    assert worker.works_for == found[with_workers.pid].process
    assert found.keys() == {plain.pid, mapped.pid, with_workers.pid, worker.process.pid}
    assert {one.devices for one in sight.holders} == {(str(device),)}
    assert {one.uid for one in sight.holders} == {os.getuid()}
    quick = {one.process.pid for one in scan.look(is_thorough=False).holders}
    assert quick == found.keys() - {mapped.pid}
    device.unlink()  # a container's devices may be gone from here
    assert {one.process.pid for one in scan.look().holders} == found.keys()


@pytest.mark.real
@pytest.mark.skipif(os.getuid() != 0, reason="only root may make devices")
@pytest.mark.parametrize("how", ["open", "mapped"])
def test_a_device_in_a_chroot_is_known_by_its_number(tmp_path, start, how):
    """/dev/zero's number: a real device, which everybody may open and map."""
    ours, jail = tmp_path / "accel7", tmp_path / "jail"
    (jail / "dev").mkdir(parents=True)
    for path in (ours, jail / "dev" / "other"):
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    inside = f"""
os.chroot({str(jail)!r})
device.close()
device = open("/dev/other", "r+b")
if {how!r} == "mapped":
    mapping = mmap.mmap(device.fileno(), 4096)
    device.close()
"""
    job = start(inside)
    sight = Scan([f"{tmp_path}/accel[7]"]).look(is_thorough=how == "mapped")
    (one,) = [one for one in sight.holders if one.process.pid == job.pid]
    assert one.devices == (str(ours),)
    ours.unlink()  # of a number that this host has not nothing is known
    sight = Scan([f"{tmp_path}/accel[7]"]).look()
    assert job.pid not in [one.process.pid for one in sight.holders]


THREAD_LIVES = """
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
write("up")
ctypes.CDLL(None).syscall(60, 0)  # exit(2): of this thread alone
"""


@pytest.mark.real
@pytest.mark.parametrize("is_thorough", [False, True])
def test_a_process_whose_main_thread_has_ended_holds_its_device(
    device, start, eventually, is_thorough
):
    job = start(THREAD_LIVES)
    eventually(lambda: ") Z " in Path(f"/proc/{job.pid}/stat").read_text())
    scan, pidfds = Scan([str(device)]), Pidfds()
    (one,) = scan.look(is_thorough=is_thorough).holders
    assert (one.process.pid, one.devices) == (job.pid, (str(device),))
    assert pidfds.take(one.process, partial(scan.is_holder, one.process))
    job.process.kill()
    eventually(pidfds.ended)
    assert scan.look().holders == ()
    pidfds.drop(one.process)


@pytest.mark.real
@pytest.mark.skipif(os.getuid() != 0, reason="only root may make a PID namespace")
def test_a_process_of_another_pid_namespace_is_signalled_by_its_pid_here(device, start, eventually):
    within = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if subprocess.run([*within, "true"], capture_output=True).returncode:
        pytest.skip("no PID namespaces here")
    job = start(SAVER, within=within)
    scan, pidfds = Scan([str(device)]), Pidfds()
    (one,) = scan.look().holders
    assert one.process.pid != job.pid  # that is unshare's
    assert pidfds.take(one.process, partial(scan.is_holder, one.process))
    assert pidfds.terminate(one.process) == ""
    eventually(pidfds.ended)
    pidfds.drop(one.process)
    assert job.log == ["up", "SIGTERM", "saved"]


@pytest.mark.real
def test_programs_that_are_spared_by_name(device, start):
    job = start(SAVER)
    name = Path(f"/proc/{job.pid}/comm").read_text().strip()
    sight = Scan([str(device)], spared=[name + "x" * (15 - len(name)), name]).look()
    assert sight.holders == ()
    assert [one.process.pid for one in sight.spared] == [job.pid]


def test_processes_that_end_while_they_are_looked_at_and_strange_names(tmp_path):
    proc = tmp_path / "proc"
    gone, closing, whole = proc / "11", proc / "12", proc / "13"
    for folder in (gone, closing / "fd", whole / "fd", proc / "self"):
        folder.mkdir(parents=True)
    (whole / "fd" / "3").symlink_to("/dev/accel0 (deleted)")
    (whole / "maps").write_bytes(b"7f-8f rw-s 0 00:05 9  /dev/accel1\n7f-8f r--p 0 0:0 0\n")
    fields = " ".join(map(str, range(4, 22)))
    (whole / "stat").write_text(f"13 (a ) b (c) S 1 {fields} 777 0")
    (closing / "stat").write_text(f"12 (z) Z 1 {fields} 777 0")
    sight = Scan(proc=proc).look()
    (one,) = sight.holders
    assert (one.command, one.devices) == ("a ) b (c", ("/dev/accel0", "/dev/accel1"))
    assert (sight.processes, sight.unreadable) == (3, 0)


def test_ranks_whose_run_listens_to_notices_are_left_to_it(tmp_path):
    proc = tmp_path / "proc"

    def process(pid, parent, command, listens=None):
        (proc / str(pid) / "fd").mkdir(parents=True)
        fields = " ".join(map(str, range(5, 22)))
        (proc / str(pid) / "stat").write_text(f"{pid} ({command}) S {parent} {fields} {pid} 0")
        if listens is not None:
            (proc / str(pid) / "fd" / "3").symlink_to("/dev/accel0")
            (proc / str(pid) / "maps").touch()
            (proc / str(pid) / "environ").write_bytes(b"A=b\0" + listens + b"\0C=d\0")

    process(10, 1, "holdfast")
    process(11, 10, "hf-guard")
    process(12, 11, "hf-reaper")
    process(13, 12, "bash")
    process(14, 13, "python", b"HOLDFAST_LISTENS=1")
    process(15, 12, "python", b"HOLDFAST_LISTENS=0")  # this run hears nothing
    process(16, 1, "python", b"HOLDFAST_LISTENS=1")  # its supervisor is gone
    bosses = {one.process.pid: one.works_for for one in Scan(proc=proc).look().holders}
    assert bosses == {14: ProcessId(10, 10), 15: None, 16: None}


# As nobody (root sees all), beside a child of its own and, where root began it, one of root's.
LOOK = """
import ctypes, json, os, sys
from holdfast.agent.daemon.holders import Scan
device = open(sys.argv[1])
read, held = os.pipe()
def child():
    pid = os.fork()
    if pid == 0:
        os.close(held)
        os.read(read, 1)
        os._exit(0)
    return pid
theirs = child()
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE, which a change of user takes away
ours = child()
sight = Scan(sys.argv[1:]).look()
found = [one.process.pid for one in sight.holders]
print(json.dumps([ours in found, theirs in found, sight.unreadable]))
"""


@pytest.mark.real
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_what_may_not_be_looked_at_is_counted_and_the_rest_is_found(device):
    command = [sys.executable, "-c", LOOK, device]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    ours, theirs, unreadable = json.loads(out.stdout)
    assert (ours, theirs) == (True, False)
    assert unreadable >= 1


@pytest.mark.real
def test_a_pid_that_has_become_anothers_is_never_signalled(device, start, eventually):
    job, stubborn = start(SAVER), start(STUBBORN)
    scan, pidfds = Scan([str(device)]), Pidfds()
    one = next(one for one in scan.look().holders if one.process.pid == job.pid)
    # The pid is alive and holds the device, but is not the process that was seen.
    earlier = replace(one.process, started_ticks=one.process.started_ticks - 1)
    assert not pidfds.take(earlier, partial(scan.is_holder, earlier))
    assert pidfds.take(one.process, partial(scan.is_holder, one.process))
    job.process.kill()
    job.process.wait()
    assert pidfds.ended() == [one.process]
    assert pidfds.terminate(one.process) == ""  # its descriptor leads nowhere
    assert not Pidfds().take(one.process, lambda: True)
    pidfds.drop(one.process)
    assert (pidfds.processes, stubborn.log) == ((), ["up"])


@pytest.mark.real
def test_a_signal_that_this_user_may_not_send_says_so(device, start, monkeypatch):
    job = start(SAVER)
    pidfds = Pidfds()
    (one,) = Scan([str(device)]).look().holders
    assert pidfds.take(one.process, lambda: True)

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    assert pidfds.terminate(one.process) == "SIGTERM cannot be sent: operation not permitted"
    pidfds.drop(one.process)
    assert job.log == ["up"]
