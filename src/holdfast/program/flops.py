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
    `model_bytes` and `executed_bytes`: what these products read and write, each operand and each
    result once. A kernel that keeps some of that on the chip (flash attention) moves less; a
    program moves more, for what goes element by element reads and writes too.
    """

    model: int
    executed: int
    left_out: tuple[str, ...] = ()
    model_bytes: int = 0
    executed_bytes: int = 0

    @property
    def intensity(self) -> float:
        """FLOPs a byte, of what is executed: the roofline's x. 0 where no bytes are known.

        S. Williams, A. Waterman and D. Patterson, "Roofline", CACM 2009. What is less than a chip's
        peak ÷ its memory's bandwidth is bound by the memory.
        """
        return self.executed / self.executed_bytes if self.executed_bytes else 0.0

    def __add__(self, other: Flops) -> Flops:
        return Flops(
            self.model + other.model,
            self.executed + other.executed,
            self.left_out + other.left_out,
            self.model_bytes + other.model_bytes,
            self.executed_bytes + other.executed_bytes,
        )

    def __mul__(self, times: int) -> Flops:
        return Flops(
            self.model * times,
            self.executed * times,
            self.left_out,
            self.model_bytes * times,
            self.executed_bytes * times,
        )

    __rmul__ = __mul__


NONE = Flops(0, 0)
