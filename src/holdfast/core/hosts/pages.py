"""What is new in a rank's page, as the events of the run's machine."""

from __future__ import annotations

from holdfast.core import events as ev
from holdfast.core.hosts.report import RankState
from holdfast.core.save.ranks import changes


class Asked:
    """How many saves each rank's script was heard to ask for, and who asked last.

    The ranks run the same script, so the first to reach a count asks for all of them; the others'
    words come moments later, perhaps when that save is already ordered, or done.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._most = 0
        self._asker = 0

    def is_heard(self, rank: int, count: int) -> bool:
        """Whether that many are known of this rank: nothing new."""
        return self._counts.get(rank, 0) == count

    def is_new(self, rank: int, count: int, at_step: int, ordered_step: int) -> bool:
        """Whether a save must be ordered for this rank's script, which has now asked for `count`.

        `at_step` is the last step that it has published, `ordered_step` the newest step that is
        saved or ordered to be. A save that another rank has asked for is this one too once a step
        after `at_step` is ordered. The rank that asked last asks anew with every count: it has its
        last one behind it.
        """
        heard_before = count <= self._most
        self._counts[rank], self._most = count, max(self._most, count)
        if rank != self._asker and heard_before and ordered_step >= at_step:
            return False
        self._asker = rank
        return True


class PageReader:
    """Reads the pages of all ranks of an attempt, and knows which of their requests were heard."""

    def __init__(self, grace_ns: int) -> None:
        """`grace_ns`: how long a SIGTERM to a rank leaves, by what the user says."""
        self._grace_ns = grace_ns
        self._asked = Asked()

    def begin(self) -> None:
        """Another attempt begins, with new pages."""
        self._asked = Asked()

    def news(
        self,
        rank: int,
        before: RankState,
        now: RankState,
        at_ns: int,
        attempt: int,
        ordered_step: int,
    ) -> list[ev.Event]:
        """The difference between two states of a rank, as heard at `at_ns`."""
        found: list[ev.Event] = []
        if now.recorded != before.recorded:
            found.append(ev.StepsRecorded(at_ns, attempt, rank, now.recorded))
        if now.has_session and not before.has_session:
            found.append(ev.Joined(at_ns, attempt, rank))
        if now.answers.copied != before.answers.copied:
            found.append(ev.SaveTook(at_ns, attempt, now.blocked_ns))
        if now.buffers != before.buffers:  # before progress: a save may be due with it
            found.append(ev.BuffersReady(at_ns, attempt, rank, now.buffers))
        for item in changes(at_ns, rank, before.answers, now.answers):
            found.append(ev.Heard(at_ns, attempt, item))
        count = now.saves_asked
        if not self._asked.is_heard(rank, count) and self._asked.is_new(
            rank, count, now.answers.step, ordered_step
        ):
            found.append(ev.SaveAsked(at_ns, f"rank {rank}'s script", in_step=True))
        if now.sigterms > before.sigterms:
            by_ns = at_ns + self._grace_ns
            found.append(ev.StopAsked(at_ns, f"SIGTERM to rank {rank}", by_ns, notice=True))
        return found
