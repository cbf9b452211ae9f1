"""Usage: inprocess_job.py RANKS SPARES COMMAND…: a job of plain processes, started anew when lost.

What Slurm does with `--kill-on-bad-exit=0`: a rank that dies is left alone, the others decide. The
stores that the ranks meet in live here, so that no rank's death takes them along. When fewer ranks
than needed are left the wrapper in them gives up; then all are ended and started anew.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import torch.distributed

LOOK_EVERY_S = 0.02


def main() -> None:
    active, spares, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        while True:
            stores = next_stores()
            ranks = [start(command, rank, active, active + spares, stores) for rank in
                     range(active + spares)]  # fmt: skip
            while sum(rank.poll() is None for rank in ranks) >= active:
                time.sleep(LOOK_EVERY_S)
            end(ranks)
    finally:
        end(ranks)


def next_stores() -> list[torch.distributed.TCPStore]:
    """The wrapper's and the training's, on two ports in a row."""
    for port in range(21000 + os.getpid() % 5000, 60000, 2):
        try:
            return [
                torch.distributed.TCPStore("127.0.0.1", one, is_master=True, wait_for_workers=False)
                for one in (port, port + 1)
            ]
        except torch.distributed.DistError:
            continue
    raise SystemExit("no two free ports in a row")


def start(
    command: list[str], rank: int, active: int, world: int, stores: list[torch.distributed.TCPStore]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env={
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(stores[0].port),
            "RACE_STORE_PORT": str(stores[0].port),
            "RACE_ACTIVE_RANKS": str(active),
        },
    )


def end(ranks: list[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.wait()


if __name__ == "__main__":
    main()
