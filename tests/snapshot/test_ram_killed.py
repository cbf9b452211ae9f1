"""A trainer killed at any instruction: whatever was sealed is intact, what was half written is not.

A real process copies step after step into three buffers, this one seals them as the flush process
would, by the rule of the controller (never into the newest sealed one), and kills it at random.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import CorruptCheckpoint
from holdfast.snapshot.ram_folder import buffer_name, claim_ram, sealed_buffers
from holdfast.snapshot.receipt import shard_name
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.seal import seal_buffer

pytestmark = pytest.mark.real

KILLS = 40
TRAINER = """
    import os, signal, sys
    from pathlib import Path
    import numpy as np
    from holdfast.snapshot.ram import BufferFiles, Named

    def say(*words):
        # In one write: a line that a kill cuts off would run into the next one.
        os.write(1, (" ".join(map(str, words)) + "\\n").encode())

    # Imports are paid for once: each life is a fork of this process, which has no threads.
    while line := sys.stdin.readline():
        attempt, step, orders = line.split()
        attempt, step = int(attempt), int(step)
        if (life := os.fork()):
            os.waitpid(life, 0)
            say("died")
            continue
        buffers = BufferFiles(Path(sys.argv[1]), wanted=3, rank=0, world_size=1, local_world_size=1)
        tree = {"state": {"w": np.zeros(5_000_000, np.float32), "s": "", "n": 0}}
        buffers.prepare(buffers.measure(tree))
        say("ready", os.getpid())
        orders = open(orders)
        while order := orders.readline():
            # The size changes a little, as a data stream's position does.
            tree["state"]["w"][:] = step
            tree["state"]["s"] = "x" * (step * 37 % 9000)
            tree["state"]["n"] = step
            buffers.begin(int(order), tree, Named(attempt, step, 0, ("state",), ()), None)
            say("copied", order.strip(), step)
            step += 1
        os._exit(0)
"""


class Life:
    """One trainer, told which buffer to copy into."""

    def __init__(self, pid: int, orders: Path) -> None:
        self.pid = pid
        self._orders = orders.open("w")

    def tell(self, buffer: int) -> None:
        self._orders.write(f"{buffer}\n")
        self._orders.flush()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._orders.close()


class Nursery:
    """Lives of a trainer, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(TRAINER), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def live(self, attempt: int, step: int, orders: Path) -> Life:
        """Begin a life; its orders come through a pipe of its own, which dies with it."""
        os.mkfifo(orders)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{attempt} {step} {orders}\n")
        self.process.stdin.flush()
        word, life = self.hear()
        assert word == "ready"
        return Life(int(life), orders)

    def hear(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()


def test_whatever_is_sealed_is_intact(tmp_path: Path) -> None:
    folder = claim_ram(tmp_path, "run").path
    chance = random.Random(20)
    nursery = Nursery(folder)
    newest, step, torn = 0, 1, 0
    for attempt in range(KILLS):
        life = nursery.live(attempt, step, tmp_path / f"orders-{attempt}")
        for _ in range(chance.randrange(4)):
            sealed = [one.number for one in sealed_buffers(folder)[0]]
            free = [n for n in range(3) if n not in sealed[-1:]]
            life.tell(chance.choice(free))
            _, buffer, copied = nursery.hear()
            assert int(copied) == step
            seal_buffer(folder / buffer_name(int(buffer)), 1, attempt=attempt, step=step)
            newest, step = step, step + 1
        sealed = [one.number for one in sealed_buffers(folder)[0]]
        victim = chance.choice([n for n in range(3) if n not in sealed[-1:]])
        life.tell(victim)
        if attempt % 2:  # in the middle of it, however busy the machine is
            wait_for_the_first_store(folder / buffer_name(victim) / shard_name(0))
        time.sleep(chance.random() * 0.006)  # the copy takes a few ms: at any point of it
        life.kill()
        while nursery.hear() != ["died"]:
            pass
        torn += check(folder, victim, attempt, step, newest)
        step += 1
    nursery.process.communicate()
    assert torn  # else no kill hit the middle of a copy, and this shows nothing


def wait_for_the_first_store(shard: Path) -> None:
    """Until the first eight bytes are 0; not for long, for it may be over already."""
    give_up = time.monotonic() + 0.1
    with shard.open("rb", buffering=0) as file:
        while any(os.pread(file.fileno(), 8, 0)) and time.monotonic() < give_up:
            continue


def check(folder: Path, victim: int, attempt: int, step: int, newest: int) -> bool:
    """Everything sealed is what it says; whether the victim's copy was cut off in its middle."""
    found, damage = sealed_buffers(folder)
    assert not damage
    if newest:
        assert found[-1].info.step == newest
    for one in found:
        restored = read_set(one.info.path)["state"]
        assert restored["n"] == one.info.step
        assert np.all(restored["w"] == one.info.step)
    try:
        seal_buffer(folder / buffer_name(victim), 1, attempt=attempt, step=step)
    except CorruptCheckpoint as error:
        if victim not in [one.number for one in found]:
            return "half written" in str(error)
        seal_buffer(
            folder / buffer_name(victim),
            1,
            attempt=next(one.info.attempt for one in found if one.number == victim),
            step=next(one.info.step for one in found if one.number == victim),
        )
        return False
    restored = read_set(folder / buffer_name(victim))["state"]
    assert np.all(restored["w"] == step)
    # It was whole, and its step is the newest now; take the seal away again, nobody was told.
    (folder / buffer_name(victim) / shard_name(0)).unlink()
    (folder / buffer_name(victim) / "manifest.json").unlink()
    return False


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a filesystem")
@pytest.mark.parametrize(("size", "lines"), [("64m", ["3 ready", "grown"]), ("20m", ["1 ready"])])
def test_a_small_filesystem(tmp_path: Path, size: str, lines: list[str]) -> None:
    """A real tmpfs of that size, as a container's /dev/shm: never a SIGBUS, always a sentence."""
    script = """
        import os, sys
        from pathlib import Path
        import numpy as np
        from holdfast.errors import StoreUnavailable
        from holdfast.snapshot.ram import BufferFiles, Named
        from holdfast.snapshot.ram_folder import claim_ram
        from holdfast.snapshot.seal import seal_buffer
        from holdfast.snapshot.reader import verify

        base = Path(sys.argv[1])
        folder = claim_ram(base, "run").path
        tree = {"state": {"w": np.ones(2_500_000, np.float32)}}
        buffers = BufferFiles(folder, wanted=3, rank=0, world_size=1, local_world_size=1)
        why = buffers.prepare(buffers.measure(tree))
        print(buffers.ready, "ready", flush=True)
        print(why, file=sys.stderr)
        buffers.begin(0, tree, Named(0, 1, 0, ("state",), ()), None)
        seal_buffer(folder / "buffer-0", 1, attempt=0, step=1)
        big = {"state": {"w": np.ones(9_000_000, np.float32)}}
        if buffers.ready == 1:
            (base / "filler").write_bytes(bytes(os.statvfs(base).f_bavail * 4096))
            again = BufferFiles(folder, wanted=3, rank=0, world_size=1, local_world_size=1)
            why = again.prepare(buffers.measure(big))
            assert "no buffer of" in why and again.ready == 0, why
            verify(folder / "buffer-0")
            seen = again
        else:
            buffers.begin(1, big, Named(0, 2, 0, ("state",), ()), None)
            seal_buffer(folder / "buffer-1", 1, attempt=0, step=2)
            print("grown", flush=True)
            seen = buffers
        for round in range(2):
            try:
                seen.begin(2, big, Named(0, 3, 0, ("state",), ()), None)
            except StoreUnavailable as error:
                assert "no space left" in str(error) or "is gone" in str(error), error
            else:
                raise SystemExit("it fitted")
        verify(folder / "buffer-0")
    """
    place = tmp_path / "small"
    place.mkdir()
    command = f'mount -t tmpfs -o size={size} none {place} && exec {sys.executable} -c "$0" {place}'
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", command, textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == lines
    assert ("because" in done.stderr) == (size == "20m")
