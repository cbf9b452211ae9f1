"""The end-to-end trainer, and one fault in it. Not a test itself.

- `FAULT`: one of `FAULTS`; `FAULT_AT`: the step in which it happens; `FAULT_RANK`: the rank
- `FAULT_ONCE`: it does not happen while this file is there, and makes it
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.with_name("e2e")))
import trainer

import holdfast

if os.environ["FAULT"] == "waits_in_a_collective":
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")

from holdfast.core.save.word import Agreed, buffer_of, is_durable, unpack
from holdfast.journal.layout import Word

SAVE_AT = 4
STUBBORN = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
kept = []  # what must live as long as the process


def exception() -> None:
    raise ValueError("the loss is not a number")


def exits_0() -> None:
    os._exit(0)


def exits_3() -> None:
    os._exit(3)


def segfault() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


def sigkill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def memory() -> None:
    """More than the cgroup of the test allows, until the kernel has had enough."""
    while True:
        kept.append(b"x" * (8 << 20))


def stays_for_ever() -> None:
    for number in STUBBORN:
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(60)


def leaves_children() -> None:
    """A child, a session of its own, and one that was forked twice: none of them goes by itself."""
    for forks in (1, 2, 3):
        if os.fork() == 0:
            if forks > 1:
                os.setsid()
            if forks > 2 and os.fork():
                os._exit(0)
            stays_for_ever()


def leaves_children_and_dies() -> None:
    leaves_children()
    sigkill()


def forks_a_lot() -> None:
    """A tree of 63 processes that all stay, from a process that raises."""
    for _ in range(6):
        if os.fork() == 0:
            kept.append("child")
    if kept:
        stays_for_ever()
    exception()


def ignores_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def swallows_sigterm() -> None:
    signal.signal(signal.SIGTERM, lambda *_: print("what signal?", flush=True))


def closes_all_descriptors() -> None:
    """As one does who becomes a daemon: nothing of what we opened stays."""
    os.closerange(0, 65536)
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)


def prints_without_end() -> None:
    """Some of it without an end of line."""

    def chatter() -> None:
        while True:
            os.write(1, b"blah " * 100 + b"\n" + b"." * 4000)
            time.sleep(0.001)  # or the test would run out of memory: it keeps what it has seen

    threading.Thread(target=chatter, daemon=True).start()


def has_workers() -> None:
    """Processes that a signal to the whole group ends before the trainer has seen it."""
    for _ in range(2):
        worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
        worker.daemon = True
        worker.start()
        kept.append(worker)
    print("workers are up", flush=True)


def minds_its_workers() -> None:
    """As a data loader does: a worker that dies takes the trainer down with it."""
    has_workers()

    def child_died(*_: object) -> None:
        if not all(worker.is_alive() for worker in kept):
            raise RuntimeError("a worker was killed by a signal")

    signal.signal(signal.SIGCHLD, child_died)


def has_a_data_loader() -> None:
    """PyTorch's own: its workers' deaths are raised in the trainer by a SIGCHLD handler."""
    from torch.utils.data import DataLoader

    loader = iter(DataLoader(range(1_000_000), num_workers=2))
    next(loader)
    kept.append(loader)


def stops_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def holds_the_gil() -> None:
    """A call into C that does not come back, and lets nobody else run Python meanwhile."""
    lock = ctypes.PyDLL(None).pthread_mutex_lock
    mutex = ctypes.create_string_buffer(64)
    lock(mutex)
    lock(mutex)


def waits_in_a_collective() -> None:
    """Each rank in a collective that the other one never enters."""
    if os.environ["RANK"] == "0":
        dist.all_reduce(torch.ones(1))
    else:
        dist.recv(torch.ones(1), src=0)


FAULTS = {
    fault.__name__: fault
    for fault in (
        exception,
        exits_0,
        exits_3,
        segfault,
        abort,
        sigkill,
        memory,
        leaves_children,
        leaves_children_and_dies,
        forks_a_lot,
        ignores_sigterm,
        swallows_sigterm,
        closes_all_descriptors,
        prints_without_end,
        has_workers,
        minds_its_workers,
        has_a_data_loader,
        stops_itself,
        holds_the_gil,
        waits_in_a_collective,
    )
}


def save_this_step() -> None:
    """Ask until it is ordered: on a busy machine the supervisor may answer too late for a step.

    Every rank waits for the set, also the one that finds the save ordered already.
    """
    run = holdfast.start()
    run._boundary.wait_for_commit = True
    while not is_ordered(unpack(run._writer.page.load(Word.ORDER))):
        run.save(wait=True)


def is_ordered(order: Agreed) -> bool:
    """Whether the order is for a durable set, and not only for one in memory."""
    return order.epoch > 0 and (buffer_of(order.flags) is None or is_durable(order.flags))


def misbehave(step: int) -> None:
    """The fault, at its step and in its rank; and before it, a save."""
    if step == SAVE_AT:
        save_this_step()
    if step != int(os.environ["FAULT_AT"]):
        return
    fault, rank = os.environ["FAULT"], os.environ["RANK"]
    if rank != os.environ["FAULT_RANK"] and fault != "waits_in_a_collective":
        return
    once = os.environ.get("FAULT_ONCE", "") and f"{os.environ['FAULT_ONCE']}-{rank}"
    if once and Path(once).exists():
        return
    if once:
        Path(once).touch()
    FAULTS[fault]()


if __name__ == "__main__":
    trainer.crash_if_told = misbehave
    trainer.main(int(sys.argv[1]))
