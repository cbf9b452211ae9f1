"""The kernel's own kills, by the counts of the cgroup that a rank was seen in."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agent.postmortem import LOOK_EVERY_NS, OomWatch

V1 = "4:memory:{path}\n1:cpu:/\n0::/\n"
V2 = "0::{path}\n"


class Host:
    """A process table and a cgroup filesystem, as files."""

    def __init__(self, folder: Path) -> None:
        self.root, self.proc = folder / "cgroup", folder / "proc"
        self.proc.mkdir()
        self.kills("proc/vmstat", 0, folder)

    def kills(self, counter: str, count: int, base: Path | None = None) -> None:
        path = (base or self.root) / counter
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"low 0\noom_kill {count}\noom_group_kill 0\n")

    def process(self, pid: int, text: str) -> None:
        (self.proc / str(pid)).mkdir(exist_ok=True)
        (self.proc / str(pid) / "cgroup").write_text(text)

    def watch(self) -> OomWatch:
        return OomWatch(self.root, self.proc)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize(
    ("cgroup", "counter"),
    [
        (V2.format(path="/job/7"), "job/7/memory.events"),
        (V2.format(path="/job/7"), "unified/job/7/memory.events"),
        (V2.format(path="/docker/abc"), "memory.events"),  # the mount begins there
        (V1.format(path="/job/7"), "memory/job/7/memory.oom_control"),
        (V1.format(path="/docker/abc"), "memory/memory.oom_control"),
    ],
)
def test_its_own_cgroup_counts(host: Host, cgroup: str, counter: str) -> None:
    host.kills(counter, 3)
    host.process(50, cgroup)
    watch = host.watch()
    watch.look({0: 50}, 0)
    assert not watch.has_killed(0)
    host.kills(counter, 4)
    assert watch.has_killed(0)


def test_a_neighbours_kill_is_not_ours(host: Host) -> None:
    for name in ("a", "b"):
        host.kills(f"memory/{name}/memory.oom_control", 0)
    host.process(50, V1.format(path="/a"))
    host.process(51, V1.format(path="/b"))
    watch = host.watch()
    watch.look({0: 50, 1: 51}, 0)
    host.kills("memory/a/memory.oom_control", 1)
    host.kills("vmstat", 1, host.proc)
    assert watch.has_killed(0)
    assert not watch.has_killed(1)


def test_a_rank_that_moved_is_found_again(host: Host) -> None:
    host.kills("memory/memory.oom_control", 0)
    host.process(50, V1.format(path="/"))
    watch = host.watch()
    watch.look({0: 50}, 0)
    host.kills("memory/limited/memory.oom_control", 7)
    host.process(50, V1.format(path="/limited"))
    watch.look({0: 50}, LOOK_EVERY_NS)
    assert not watch.has_killed(0)
    host.kills("memory/limited/memory.oom_control", 8)
    assert watch.has_killed(0)


def test_without_cgroups_the_machine_counts(host: Host) -> None:
    watch = host.watch()
    watch.look({0: 50}, 0)
    assert not watch.has_killed(0)
    host.kills("vmstat", 1, host.proc)
    assert watch.has_killed(0)
