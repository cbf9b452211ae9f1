"""What controllers heard of saves: the sets of the lineage, and how often any was saved."""

from __future__ import annotations

from holdfast.journal.facts.controllers import TierSets
from holdfast.journal.facts.lines import MEMORY, SavedSet


def test_the_interval_is_that_of_all_saves_though_a_crash_loop_repeats_its_steps():
    sets = TierSets()
    for attempt in range(3):
        for step in range(1, 5):
            at_ns = attempt * 100 + step
            sets.add(SavedSet(MEMORY, step, at_ns))
            sets.add(SavedSet(MEMORY, step, at_ns))  # told again
        sets.went_back(4 if attempt else 0)
    assert sets.interval_ns == 1
    assert sets.newest == SavedSet(MEMORY, 4, 104)
