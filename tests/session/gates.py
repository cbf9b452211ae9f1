"""Where the ranks without supervisor wait, fail and save as a test wants it. Not a test itself.

`ALLOW`: a file with the last step that may begin. `TAG_AT`: a step at which all ask for a save.
`CRASH_AT`: `rank:step` at which to raise. `HOLD_AT_THE_STOP`: this rank never comes to the boundary
at which a stop is ordered.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import holdfast as hf
from holdfast.core.save.word import Order, unpack
from holdfast.journal.layout import Word
from holdfast.session import asked_save


def wait_for_permission(step: int, known: list[int] = [0]) -> None:  # noqa: B006 - remembered
    """The step may begin when the test says so."""
    allow = os.environ.get("ALLOW")
    while allow and known[0] < step:
        known[0] = int(Path(allow).read_text())
        if known[0] < step:
            time.sleep(0.002)


def hold_at_the_stop(run: hf.Run, step: int) -> None:
    """Print that the step has come whose boundary is ordered for a stop, and wait for ever."""
    if os.environ.get("HOLD_AT_THE_STOP") == str(run.rank):
        order = unpack(run._attachment.writer.page.load(Word.ORDER))
        if order.flags & Order.STOP and order.step == step:
            print(f"[{run.rank}] holds at {step}", flush=True)
            time.sleep(600)


def in_step(run: hf.Run, step: int) -> None:
    """What a test wants of this step, before it is done."""
    if os.environ.get("TAG_AT") == str(step):
        asked_save.PATIENCE_NS = 30 * 10**9  # this very step, also on a loaded machine
        run.save(tag="asked", wait=True)
    if os.environ.get("CRASH_AT") == f"{run.rank}:{step}":
        raise ValueError(f"the loss is not a number at step {step}")
    hold_at_the_stop(run, step)
