"""Saves that scripts ask for: several ranks of one script ask for the same one, each for itself.

Every rank counts the saves that its own script has asked for. The ranks run the same script, so
the first to reach a count asks for all of them; the others' words come moments later, perhaps when
that save is already ordered, or done.
"""

from __future__ import annotations


class Asked:
    """How many saves each rank's script was heard to ask for, and who asked last."""

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
