"""What a row of equal steps means, to the nanosecond.

`count` steps between `start_ns` and `end_ns` share the time as evenly as integers allow: step
`index` (from 0) runs from `boundary_ns(index)` to `boundary_ns(index + 1)`. Plain Python integers:
a row of 10¹² steps over a year would overflow 64 bits.
"""

from __future__ import annotations


def boundary_ns(start_ns: int, end_ns: int, count: int, index: int) -> int:
    """When `index` steps of the row are over."""
    return start_ns + (end_ns - start_ns) * index // count


def completed_until(start_ns: int, end_ns: int, count: int, at_ns: int) -> int:
    """How many steps of the row are over at `at_ns`; a step that ends right then is."""
    if at_ns >= end_ns:
        return count
    if at_ns < start_ns:
        return 0
    # boundary(k) <= at  ⟺  duration·k < (at − start + 1)·count, integers all.
    return ((at_ns - start_ns + 1) * count - 1) // (end_ns - start_ns)
