"""How often hosts are lost early, when all of a fleet are new at first and later ones now and then.

A host is young with probability p when it is new, and then lost at 1/m beside what befalls all; one
that is lost is replaced by a new one. The share of hosts that are young follows a linear equation:
they become so at λp, of losses by other causes at λ, and cease to be at (λ + 1/m)(1 − p). It is p
at first, and goes to its mean over long times with the sum of these two rates, κ:

    young(t) = y + (p − y)·e^(−κt),  y = λp/κ

(a renewal process of hyperexponential lives; D. R. Cox, "Renewal Theory", 1962, section 4.4).
"""

from __future__ import annotations

from math import expm1

from holdfast.sim.laws import Early


def early_losses_per_s(early: Early, others_per_s: float, duration_s: float) -> float:
    """Of a host's place, on average over that time, where others are lost at `others_per_s`."""
    return young_share(early, others_per_s, duration_s) / early.life_s


def young_share(early: Early, others_per_s: float, duration_s: float) -> float:
    """The share of hosts that will be lost early, on average over that time."""
    p = early.share
    grow, cease = others_per_s * p, (others_per_s + 1 / early.life_s) * (1 - p)
    settled = grow / (grow + cease) if cease else 1.0
    passed = (grow + cease) * duration_s
    return settled + (p - settled) * (-expm1(-passed) / passed if passed else 1.0)
