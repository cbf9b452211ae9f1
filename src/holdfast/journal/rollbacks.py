"""The wishes to go back that still stand, as the run store knows them.

A person's lies in `control/` until an attempt that settles it is on record, which names it; so does
a controller's own, where replicas differ. A script's is in the reports of the newest attempt's
ranks: the next attempt's record ends it by being the next. So a wish is granted exactly once,
whoever dies when.
"""

from __future__ import annotations

import contextlib

from holdfast.core.exits import Exit
from holdfast.core.run.rollback import Wish, wishes_of
from holdfast.errors import HoldfastError
from holdfast.journal import control
from holdfast.journal.attempts import Attempts, attempts
from holdfast.journal.rank_reports import read_reports
from holdfast.journal.store import RunFolder


def standing_wishes(folder: RunFolder, known: Attempts | None = None) -> tuple[Wish, ...]:
    """Every wish that no attempt has settled, in the order made: scripts' first.

    Files that make no sense are passed over; the supervisor's inbox names them. Raises
    StoreUnavailable.
    """
    known = attempts(folder) if known is None else known
    wishes: list[Wish] = []
    newest = known.newest
    if newest is not None:
        ends = [
            (rank, Exit(code=1, report=report))
            for rank, report in read_reports(folder, newest.attempt)
        ]
        wishes += wishes_of(newest.attempt, ends)
    settled = {name for record in known.records if record.rollback for name in record.rollback.ids}
    for asked in control.lasting(folder):
        if asked.args["id"] not in settled:
            wishes.append(wish_of(asked))
    return tuple(wishes)


def wish_of(asked: control.Request) -> Wish:
    """A request as the wish that it is."""
    return Wish(
        id=asked.args["id"],
        to=asked.args["to"],
        skip_batches=asked.args["skip_batches"],
        words=asked.args["words"] or f"holdfast rollback by {asked.sender}",
        is_from_script=False,
    )


def leave_wish(folder: RunFolder, wish: Wish) -> None:
    """A controller's own: it stands until it is settled, as a person's. Raises as `request`."""
    of = {"id": wish.id, "to": wish.to, "skip_batches": wish.skip_batches, "words": wish.words}
    control.request(folder, "rollback", **of)


def clear_settled(folder: RunFolder) -> None:
    """Remove the requests that some attempt's record names; what cannot be removed stays, inert."""
    with contextlib.suppress(HoldfastError, OSError):
        known = attempts(folder)
        settled = {n for record in known.records if record.rollback for n in record.rollback.ids}
        for asked in control.lasting(folder):
            if asked.args["id"] in settled:
                control.remove(folder, asked)
