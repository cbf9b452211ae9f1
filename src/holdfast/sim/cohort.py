"""Things of one age and one law: which of them fails next, and when, one after the other.

Of n lives with survival S(t), the smallest of n uniform numbers is how much of S the first failure
leaves: U^(1/n); the next failure leaves U^(1/(n−1)) of that, and so on (uniform order statistics,
drawn in their order; Devroye, Non-Uniform Random Variate Generation, 1986, V.3). In terms of the
hazard that each has come through, H = −ln S, the steps are exponential with mean 1/n. So a fleet
of any size costs what its failures cost, in time and in memory.
"""

from __future__ import annotations

from math import exp, log
from random import Random

from holdfast.sim.laws import Law

LEAST_SURVIVAL = 1e-300  # a law has no age at 0


class Cohort:
    """`members` things, numbered from 0, all of them new at age 0.

    Beside failures it draws false alarms, `alarms` of them for each failure on average: they come
    at the members' hazard, as failures do, and nothing happens to the one they name.
    """

    __slots__ = ("_alarms", "_hazard", "_law", "_left", "_moved")

    def __init__(self, law: Law, members: int, alarms: float = 0.0) -> None:
        self._law = law
        self._alarms = alarms
        self._left = members
        self._hazard = 0.0
        # A shuffle that exists only where it was touched: the place of one that has failed holds
        # the last of those that have not.
        self._moved: dict[int, int] = {}

    def draw(self, rng: Random) -> tuple[float, int, bool] | None:
        """The next: age in seconds, which member, and whether it fails. None: all have failed."""
        left = self._left
        if not left:
            return None
        self._hazard -= log(1.0 - rng.random()) / (left * (1.0 + self._alarms))
        age_s = self._law.age_at_s(max(LEAST_SURVIVAL, exp(-self._hazard)))
        place = int(rng.random() * left) if left > 1 else 0
        member = self._moved.get(place, place)
        if self._alarms and rng.random() * (1.0 + self._alarms) < self._alarms:
            return age_s, member, False
        last = self._left = left - 1
        moved = self._moved.pop(last, last)
        if place != last:
            self._moved[place] = moved
        return age_s, member, True
