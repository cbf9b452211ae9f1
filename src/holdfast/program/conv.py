"""The FLOPs of a convolution."""

from __future__ import annotations

import math
from typing import Any


def conv_flops(equation: Any) -> int:
    """Each pair of an input and a weight that is multiplied, twice.

    What meets padding, or a hole that a dilation made, is no pair. So a convolution and both its
    gradients count the same. (torch's counter takes padding for input: it counts a little more.)
    """
    left, right = (one.aval.shape for one in equation.invars[:2])
    out, params = equation.outvars[0].aval.shape, equation.params
    numbers = params["dimension_numbers"]
    (batch, feature, *spatial) = numbers.out_spec
    pairs = int(out[batch] * out[feature] * right[numbers.rhs_spec[1]])
    lines = zip(
        (left[axis] for axis in numbers.lhs_spec[2:]),
        (right[axis] for axis in numbers.rhs_spec[2:]),
        (out[axis] for axis in spatial),
        params["window_strides"],
        (low for low, _ in params["padding"]),
        params["lhs_dilation"],
        params["rhs_dilation"],
        strict=True,
    )
    return 2 * pairs * math.prod(_pairs_of_line(*line) for line in lines)


def _pairs_of_line(
    size: int, taps: int, outs: int, stride: int, before: int, spread: int, between: int
) -> int:
    """Along one axis: how many (place of the output, tap of the kernel) meet an input.

    Place o and tap k meet the input at (o × stride + k × between − before) / spread, if there is
    one there. `spread`: the distance of inputs; `between`: of taps.
    """
    end = (size - 1) * spread + 1
    places, steps = (outs, stride), (taps, between)
    (many, by), (few, far) = (places, steps) if outs >= taps else (steps, places)
    period = spread // math.gcd(by, spread)  # of the x that meet no hole
    met = 0
    for i in range(few):
        shift = i * far - before  # x with 0 ≤ x × by + shift < end
        first, last = max(0, -(shift // by)), min(many - 1, (end - 1 - shift) // by)
        hits = (x for x in range(first, first + period) if (x * by + shift) % spread == 0)
        if (hit := next(hits, None)) is not None and hit <= last:
            met += (last - hit) // period + 1
    return met
