"""The reaper: a small parent for an attempt's ranks, so that none of their processes outlives it.

Runs as a program of its own (`python -I -S reaper/__main__.py`, standard library only: it is up in
some 15 ms) between the agent and the ranks. It is two processes, agent → guard → reaper → ranks:

- The reaper is a child subreaper: whatever the ranks leave behind, double-forked sessions included,
  is reparented to it, and dies with the attempt.
- End of file on its standard input means that the agent is gone: it kills the whole tree and
  ends. Its own parent-death signal says the same. Nothing else makes it end early: signals meant
  for others are swallowed.
- It speaks JSON lines. In: perhaps a `standby`, one `launch`, then `free`, `signal` and `kill`.
  Out: `launched` or `spawn_failed`, `exit` per rank, `stuck` for processes that survive SIGKILL,
  `busy` for those that have got no processor to end on, `gone`.
- `standby` starts one interpreter for each rank ahead of the launch, which wakes it: it becomes the
  rank. What it says of itself is passed on as `standby`; its death before that is `standby_lost`.
- The guard is its parent, and a subreaper too. It does nothing until the reaper has ended; what is
  left then (the reaper was killed, with the agent or without it) has come to the guard, and dies.
- A rank itself dies with its reaper by the kernel's hand (PR_SET_PDEATHSIG; the reaper has one
  thread), even when agent, guard and reaper are killed in one instant.

Times in its messages are CLOCK_BOOTTIME nanoseconds.
"""

from __future__ import annotations

import sys

if not __package__:  # run by its path: the package is found beside the standard library, not first
    sys.path.append(__file__.rpartition("/reaper/")[0])
    __package__ = "reaper"

from .guard import main

if __name__ == "__main__":
    main(int(sys.argv[1]))
