"""Laws of chance: how long something takes, or lasts until it fails.

Seconds everywhere. A law is drawn from with the caller's own `random.Random`, so that a seed
decides everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, exp, expm1, gamma, inf, isfinite, log, sqrt
from random import Random
from typing import Protocol


class Law(Protocol):
    """A distribution of positive times: a plain value, equal to others by what it says."""

    def __hash__(self) -> int:
        """Of its parameters."""

    @property
    def mean_s(self) -> float:
        """Its mean."""

    def sample_s(self, rng: Random) -> float:
        """Draw one."""

    def survival(self, age_s: float) -> float:
        """The probability that it is longer than `age_s`."""

    def age_at_s(self, survival: float) -> float:
        """The time that is outlived with that probability, 0 < survival <= 1."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same."""

    mean_s: float

    def __post_init__(self) -> None:
        _check("a time", self.mean_s, zero=True)

    def sample_s(self, rng: Random) -> float:  # noqa: ARG002 - the protocol
        """That time."""
        return self.mean_s

    def survival(self, age_s: float) -> float:
        """1 before, 0 after."""
        return 1.0 if age_s < self.mean_s else 0.0

    def age_at_s(self, survival: float) -> float:  # noqa: ARG002 - the protocol
        """That time."""
        return self.mean_s


@dataclass(frozen=True, slots=True)
class Exponential:
    """Without memory: what has lasted for long lasts as long again."""

    mean_s: float

    def __post_init__(self) -> None:
        _check("a mean", self.mean_s)

    def sample_s(self, rng: Random) -> float:
        """Draw one."""
        return -self.mean_s * log(1.0 - rng.random())

    def survival(self, age_s: float) -> float:
        """e^(−t/M)."""
        return exp(-max(0.0, age_s) / self.mean_s)

    def age_at_s(self, survival: float) -> float:
        """−M·ln S."""
        return -self.mean_s * log(survival)


@dataclass(frozen=True, slots=True)
class Weibull:
    """S(t) = e^−(t/λ)^k, λ = M/Γ(1+1/k). A `shape` k below 1 is infant mortality, above 1 wear."""

    mean_s: float
    shape: float

    def __post_init__(self) -> None:
        _check("a mean", self.mean_s)
        _check("a Weibull's shape", self.shape)
        if self.shape < 0.05:
            raise ValueError(f"a Weibull's shape of {self.shape} is too small: give 0.05 or more")

    @property
    def scale_s(self) -> float:
        """λ."""
        return self.mean_s / gamma(1.0 + 1.0 / self.shape)

    def sample_s(self, rng: Random) -> float:
        """Draw one."""
        return self.age_at_s(1.0 - rng.random())

    def survival(self, age_s: float) -> float:
        """e^−(t/λ)^k."""
        if age_s <= 0:
            return 1.0
        # By logarithms, since a power of a large age overflows; e^−e^700 is 0.
        return exp(-exp(min(700.0, self.shape * (log(age_s) - log(self.scale_s)))))

    def age_at_s(self, survival: float) -> float:
        """λ·(−ln S)^(1/k)."""
        return float(self.scale_s * (-log(survival)) ** (1.0 / self.shape))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """ln t is normal around ln `median_s` with standard deviation `sigma`: repairs, queues."""

    median_s: float
    sigma: float

    def __post_init__(self) -> None:
        _check("a median", self.median_s)
        _check("a sigma", self.sigma, zero=True)
        if self.sigma > 10:
            raise ValueError(
                f"a sigma of {self.sigma} is too large (a mean of e^50 medians): give 10 or less"
            )

    @property
    def mean_s(self) -> float:
        """The median times e^(sigma²/2)."""
        return self.median_s * exp(self.sigma**2 / 2)

    def sample_s(self, rng: Random) -> float:
        """Draw one."""
        return self.median_s * exp(self.sigma * rng.gauss(0.0, 1.0))

    def survival(self, age_s: float) -> float:
        """½·erfc(ln(t/median) / (sigma·√2))."""
        if age_s <= 0:
            return 1.0
        if self.sigma == 0:
            return 1.0 if age_s < self.median_s else 0.0
        return erfc((log(age_s) - log(self.median_s)) / (self.sigma * sqrt(2.0))) / 2

    def age_at_s(self, survival: float) -> float:
        """The median times e^(sigma·z), z the normal quantile."""
        from statistics import NormalDist

        if survival >= 1.0:
            return 0.0
        return self.median_s * exp(-self.sigma * NormalDist().inv_cdf(survival))


NEVER_S = inf


@dataclass(frozen=True, slots=True)
class Early:
    """Infant mortality: S(t) = 1 − p·(1 − e^(−t/m)).

    With the probability `share` p an exponential life of mean `life_s` m, else no end by this law:
    what lives on ends by another one.
    """

    share: float
    life_s: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(
                f"an early end of {self.share} is not a share: give more than 0, at most 1"
            )
        _check("an early life", self.life_s)

    @property
    def mean_s(self) -> float:
        """M where all end early, else without end."""
        return self.life_s if self.share == 1 else NEVER_S

    def sample_s(self, rng: Random) -> float:
        """Draw one; it may be `NEVER_S`."""
        return self.age_at_s(1.0 - rng.random())

    def survival(self, age_s: float) -> float:
        """1 − p·(1 − e^(−t/m))."""
        return 1.0 + self.share * expm1(-max(0.0, age_s) / self.life_s)

    def age_at_s(self, survival: float) -> float:
        """−m·ln(1 − (1 − S)/p); never where S is what lives on."""
        alive = 1.0 - (1.0 - survival) / self.share
        if self.share == 1:
            alive = survival
        return -self.life_s * log(alive) if alive > 0 else NEVER_S


def _check(what: str, value: float, *, zero: bool = False) -> None:
    fine = value >= 0 if zero else value > 0
    if not (fine and isfinite(value)):
        at_least = "zero or more" if zero else "more than zero"
        raise ValueError(f"{what} of {value} is impossible: it must be finite and {at_least}")
