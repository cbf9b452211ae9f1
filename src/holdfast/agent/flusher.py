"""The flush process: puts checksums to what ranks left in memory, and takes it to the run store.

Runs as a program of its own (`python -P -m holdfast.agent.flusher PARENT NICE`), so that neither
the trainer nor the agent's loop pays for it, and so that a trainer's death does not disturb it.

- It speaks JSON lines. In: `seal` and `flush`, each with an `id`, and `stop` for one of these.
  Seals are done in their order, by one thread, flushes by threads of their own. Out: for each id
  `done`, or `failed` with one sentence; before, how far a flush is: `wrote`, now and then.
- End of file on its standard input, or the agent's death, ends it at once, in the middle of
  whatever it does: what is sealed is still in memory, and is flushed anew.
- Signals for a terminal's processes, or for a job's, are not for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast.errors import CorruptCheckpoint, HoldfastError
from holdfast.journal.flow import Flow
from holdfast.snapshot.flush import flush_set
from holdfast.snapshot.seal import KnownHeaders, seal_part

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
NAME = b"hf-flush"
COMMAND_FD = 0
REPORT_FD = 1
PROGRESS_S = 0.5
GIVING_WAY_SHARE = 1 / 12  # of a core: 4 % of two

# ioprio_set(2): best effort, and the last of its eight levels.
_IOPRIO_CALLS = {"x86_64": 251, "aarch64": 30}
_IOPRIO_LAST = 2 << 13 | 7

Command = dict[str, Any]
_reporting = threading.Lock()
_flows: dict[int, Flow] = {}  # of the flushes under way
_known_headers = KnownHeaders()


def report(event: str, number: int, **fields: Any) -> None:
    """One JSON line to the agent. If the agent is gone there is nobody to tell."""
    line = json.dumps({"event": event, "id": number, **fields}).encode() + b"\n"
    with _reporting, contextlib.suppress(OSError):
        while line:
            line = line[os.write(REPORT_FD, line) :]


class FlushProgress:
    """Tells the agent how far a flush is, but not at every block."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._next_s = 0.0

    def __call__(self, nbytes: int) -> None:
        """So many bytes are written by now."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + PROGRESS_S
            report("wrote", self._number, bytes=nbytes)


def seal(command: Command) -> dict[str, Any]:
    """Give a buffer its receipts and its manifest."""
    done, alike, comparison, taken_ns = seal_part(
        Path(command["buffer"]),
        command["world_size"],
        attempt=command["attempt"],
        step=command["step"],
        ranks=command["ranks"],
        known=_known_headers,
    )
    differing = [
        [one.array, [[replica.rank, replica.digest] for replica in one.replicas]]
        for one in comparison.differing
    ]
    told = {"is_compared": comparison.is_made, "differing": differing}
    return {"bytes": done.nbytes, "alike": alike, "taken_ns": taken_ns, **told}


def flush(command: Command) -> dict[str, Any]:
    """Take a sealed buffer to the run store, the manifest left out."""
    done = flush_set(
        Path(command["buffer"]),
        Path(command["set"]),
        attempt=command["attempt"],
        step=command["step"],
        alike=tuple((section, digest) for section, digest in command["alike"]),
        flow=_flows[command["id"]],
    )
    return {"bytes": done.nbytes, "ranks": list(done.ranks), "world_size": done.world_size}


DO: dict[str, Callable[[Command], dict[str, Any]]] = {"seal": seal, "flush": flush}


def carry_out(command: Command) -> None:
    """Do one thing, and say what came of it."""
    number, started_s = command["id"], time.monotonic()
    try:
        fields = DO[command["do"]](command)
    except HoldfastError as error:
        is_gone = isinstance(error, CorruptCheckpoint)
        report("failed", number, why=str(error), is_gone=is_gone)
    except Exception as error:  # whatever it is, somebody waits for an answer
        report("failed", number, why=f"internal error in the flush process: {error!r}")
    else:
        report("done", number, took_ns=round((time.monotonic() - started_s) * 1e9), **fields)
    finally:
        _flows.pop(number, None)


def serve(seals: queue.SimpleQueue[Command], command: Command, share: float) -> None:
    """Hand a command to who carries it out. `share`: of the time, a flush is at work."""
    if command["do"] == "seal":
        seals.put(command)
    elif command["do"] == "flush":
        _flows[command["id"]] = Flow(FlushProgress(command["id"]), share=share)
        threading.Thread(target=carry_out, args=(command,), daemon=True).start()
    elif (flow := _flows.get(command["id"])) is not None:
        flow.stop()


def seal_all(seals: queue.SimpleQueue[Command]) -> None:
    """The thread that seals."""
    while True:
        carry_out(seals.get())


def take_place(parent: int, nice: int, name: bytes = NAME) -> None:
    """Die with the agent, ignore what is meant for others, stand back for the training.

    Only now, when all is imported: standing back, that alone can take seconds.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NAME, name, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before prctl took hold
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    if not nice:
        return
    with contextlib.suppress(OSError):
        os.nice(nice)
    # Where sessions are scheduled as groups, nice counts only among the members of one: ours is
    # this process alone.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice))
    call = _IOPRIO_CALLS.get(platform.machine())
    if call is not None:
        libc.syscall(call, 1, 0, _IOPRIO_LAST)


def commands() -> Iterator[Command]:
    """What is asked for, a line each, until there is nobody to serve."""
    waiting = b""
    while data := os.read(COMMAND_FD, 1 << 16):
        *lines, waiting = (waiting + data).split(b"\n")
        yield from map(json.loads, lines)


def main(parent: int, nice: int) -> None:
    """Serve until there is nobody to serve."""
    take_place(parent, nice)
    seals: queue.SimpleQueue[Command] = queue.SimpleQueue()
    threading.Thread(target=seal_all, args=(seals,), daemon=True).start()
    for command in commands():
        serve(seals, command, GIVING_WAY_SHARE if nice else 1.0)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
