"""FLOPs and bytes of a compiled program's operations, from the HLO that JAX's profiler keeps of it.

Field numbers are those of XLA's hlo.proto and xla_data.proto. Products of matrices count, 2 FLOPs a
multiplication and addition, and those inside of a fusion for the fusion. What an operation reads
and writes are its operands and its result, each once. Of what runs others that the trace shows
themselves (a loop, a call) nothing is counted; nor of convolutions and kernels of other libraries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.profiles.wire import as_bytes, as_int, as_text, message_fields, packed_ints

MAX_HLO_BYTES = 64 << 20
MOST_ELEMENTS = 2**60
_TUPLE = 13
# Bytes of an element, by the number of its type.
_WIDTHS = {
    1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 2, 8: 4, 9: 8, 10: 2, 11: 4, 12: 8, 15: 8, 16: 2,
    18: 16, 19: 1, 20: 1, 21: 1, 22: 1, 23: 1, 24: 1, 25: 1, 28: 1, 29: 1,
}  # fmt: skip
_FUSIONS = ("fusion",)
_RUN_OTHERS = ("while", "conditional", "call", "async-start", "async-update", "async-done")
_MOVE_NOTHING = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
_DEEPEST = 8  # of fusions in fusions


class HloCost(NamedTuple):
    """What an operation takes, 0: not known; and which one of HLO's it is."""

    flops: int = 0
    nbytes: int = 0
    opcode: str = ""


@dataclass(slots=True)
class _Instruction:
    """As it stands in the program."""

    name: str = ""
    opcode: str = ""
    dims: list[int] = field(default_factory=list)
    nbytes: int = 0
    number: int = 0
    operands: list[int] = field(default_factory=list)
    called: list[int] = field(default_factory=list)
    contracted: list[int] = field(default_factory=list)


def hlo_costs(data: memoryview) -> dict[str, HloCost]:
    """By the operations' names. Raises ValueError for what is no HLO."""
    computations: dict[int, dict[int, _Instruction]] = {}
    for number, value in message_fields(data):
        if number != 1:
            continue
        for inner, computation in message_fields(as_bytes(value)):
            if inner == 3:
                key, instructions = _computation(as_bytes(computation))
                computations[key] = instructions
    return {
        one.name: _cost(one, instructions, computations)
        for instructions in computations.values()
        for one in instructions.values()
        if one.opcode not in _MOVE_NOTHING
    }


def _cost(
    one: _Instruction,
    beside: dict[int, _Instruction],
    computations: dict[int, dict[int, _Instruction]],
) -> HloCost:
    if one.opcode in _RUN_OTHERS:
        return HloCost(opcode=one.opcode)
    read = sum(beside[key].nbytes for key in one.operands if key in beside)
    return HloCost(_flops(one, beside, computations, _DEEPEST), read + one.nbytes, one.opcode)


def _flops(
    one: _Instruction,
    beside: dict[int, _Instruction],
    computations: dict[int, dict[int, _Instruction]],
    depth: int,
) -> int:
    if one.opcode == "dot":
        left = beside.get(one.operands[0]) if one.operands else None
        if left is None or any(not 0 <= at < len(left.dims) for at in one.contracted):
            return 0
        return 2 * _product(one.dims) * _product([left.dims[at] for at in one.contracted])
    if one.opcode not in _FUSIONS or not depth:
        return 0
    inside = [computations[key] for key in one.called if key in computations]
    return sum(
        _flops(inner, instructions, computations, depth - 1)
        for instructions in inside
        for inner in instructions.values()
        if inner.opcode == "dot" or inner.opcode in _FUSIONS
    )


def _computation(data: memoryview) -> tuple[int, dict[int, _Instruction]]:
    key, found = 0, {}
    for number, value in message_fields(data):
        if number == 5:
            key = as_int(value)
        elif number == 2:
            one = _instruction(as_bytes(value))
            found[one.number] = one
    return key, found


def _instruction(data: memoryview) -> _Instruction:
    one = _Instruction()
    for number, value in message_fields(data):
        if number == 1:
            one.name = as_text(value)
        elif number == 2:
            one.opcode = as_text(value)
        elif number == 3:
            one.dims, one.nbytes = _shape(as_bytes(value), 4)
        elif number == 30:
            for inner, dims in message_fields(as_bytes(value)):
                if inner == 1:
                    one.contracted += packed_ints(dims)
        elif number == 35:
            one.number = as_int(value)
        elif number == 36:
            one.operands += packed_ints(value)
        elif number == 38:
            one.called += packed_ints(value)
    return one


def _shape(data: memoryview, depth: int) -> tuple[list[int], int]:
    """Its dimensions, and how many bytes it takes; of a tuple those of its parts."""
    kind, dims, inner = 0, [], 0
    for number, value in message_fields(data):
        if number == 2:
            kind = as_int(value)
        elif number == 3:
            dims += packed_ints(value)
        elif number == 4 and depth:
            inner += _shape(as_bytes(value), depth - 1)[1]
    if kind == _TUPLE:
        return [], inner
    return dims, _product(dims) * _WIDTHS.get(kind, 0)


def _product(dims: list[int]) -> int:
    """How many elements; 0 for what cannot be."""
    if any(one < 0 for one in dims) or len(dims) > 16:
        return 0
    return min(math.prod(dims), MOST_ELEMENTS)
