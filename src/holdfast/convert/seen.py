"""What a log says, one thing after the other: what its reader hands to the story."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.convert.notes import LogPlace

BAR = "bar"  # a progress bar says that a process began, and shows whole seconds


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing. Times are nanoseconds; None: the log has none. The first step is 1.

    `writer` tells processes apart that write into one log.

    `what` is one of:

    - step: `step` was over at `at_ns`, or before: the line may have been written later. `first` of
      those that the line stands for (None: the one after the line before) to it took `took_ns`.
      `is_sample`: if it is an attempt's first, it stands for as many steps as lines are usually
      apart, and each took `took_ns`.
    - pause: no step advanced, for a kind of span that `name` says. It ended at `at_ns` and took
      `took_ns` (None: what the row of steps around it took too long). Without `at_ns`: it came
      right after `step` (-1: nobody said).
    - pause began, pause part, pause over: such a one, told in pieces; parts only by `took_ns`.
    - began: a process started. `name`: by which line that is known: the same twice is two starts,
      and `is_sure` even another one right after a start.
    - restoring: a checkpoint with the steps up to `step` is read; who trained starts anew.
    - restored: that reading is over.
    - ended: the attempt did; `name` is a cause of the history.
    - about: the run's `name` or number of `chips`, or that it is done after the step `wanted`.
    - file: what follows stands in another file.
    - torn: a line that cannot be understood.
    - line: the process wrote something else.
    """

    what: str
    place: LogPlace
    at_ns: int | None = None
    step: int = -1
    first: int | None = None
    took_ns: int | None = None
    writer: str | None = None
    name: str = ""
    is_sure: bool = False
    is_sample: bool = False
    chips: int | None = None
    wanted: int | None = None
