"""What counting comes to: the FLOPs that a model needs, and those that a program executes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flops:
    """The FLOPs of one run of a program. A multiplication and an addition are two.

    Products of matrices and convolutions count; what goes element by element does not, as ever in
    figures of utilization.

    `model`: what the result needs. `executed`: that, and what is computed again to save memory
    (rematerialization, activation checkpointing). `left_out`: what could not be counted, in words.
    """

    model: int
    executed: int
    left_out: tuple[str, ...] = ()
