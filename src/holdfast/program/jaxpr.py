"""The FLOPs of a JAX function, by walking its jaxpr: nothing is compiled, and nothing runs.

A jaxpr does not say which of its equations compute again what was computed before. But a value is
a pure function of others, so two values of one expression are equal: each value has a number, and
the same expression of the same numbers is the same number ("value numbering", J. Cocke and J. T.
Schwartz, "Programming Languages and Their Compilers", 1970). What stands inside a differentiated
`checkpoint` and has a number that was there before is a recomputation: it is executed, and no part
of the model's count. Outside of one it counts again, for nobody said that it is there twice on
purpose.

Rejected: tracing the function with `jax.checkpoint` replaced. JAX keeps its traces, and the
training would go on with those that have no checkpoints.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.errors import ConfigurationError
from holdfast.program.conv import conv_flops
from holdfast.program.flops import NONE, Flops

# They change where a value lies, or how it is laid out, and not what it is.
_SAME_VALUE = frozenset(
    {
        "copy", "copy_p", "device_put", "name", "optimization_barrier", "pbroadcast", "pvary",
        "reduce_precision", "sharding_constraint",
    }
)  # fmt: skip
_CHECKPOINT = frozenset({"checkpoint", "remat", "remat2"})
# Their FLOPs are in no equation. What goes element by element, sorts or moves is not among them.
_HIDDEN = frozenset(
    {
        "call_exported", "cholesky", "cholesky_update", "custom_linear_solve", "eig", "eigh", "fft",
        "ffi_call", "geqp3", "geqrf", "hessenberg", "householder_product", "io_callback", "lu",
        "ormqr", "pure_callback", "qr", "schur", "spsolve", "svd", "symmetric_product",
        "triangular_solve", "tridiagonal", "tridiagonal_solve", "xla_custom_call",
    }
)  # fmt: skip
# JAX's splash attention, forward and backward. Its kernels have no cost estimates.
_SPLASH = re.compile(r"splash_m[hq]a_(fwd|dkv|dq)")
# Fused kernels, sparse matrices of JAX, and primitives of others (`te_gemm`, `te_fused_attn`).
_HIDDEN_WORDS = (
    "dot_product_attention", "triton", "cudnn", "scaled_matmul", "mosaic_gpu", "gemm", "attn",
    "bcoo_dot", "bcoo_spdot", "bcsr_dot", "matmat", "matvec", "spmm", "spmv",
)  # fmt: skip


def of_jax(
    function: Callable[..., Any], *args: Any, while_turns: int | None = None, **kwargs: Any
) -> Flops:
    """The FLOPs of `function(*args, **kwargs)`, of all devices together.

    `args` may be shapes (`jax.ShapeDtypeStruct`). The function is traced once more, as by
    `jax.eval_shape`. `while_turns`: how often each `while` loop turns; without it their bodies
    are left out, and that is said. Of a `cond` the dearest branch counts, which is said, too.
    """
    import jax

    trace = getattr(function, "trace", None)  # of a jitted function, which knows what is static
    if trace is None:
        trace = jax.jit(function).trace
    traced = trace(*args, **kwargs)
    traced = getattr(traced, "traced", traced)  # flax's nnx.jit wraps JAX's own
    return of_jaxpr(traced.jaxpr, while_turns=while_turns)


def of_jaxpr(closed: Any, *, while_turns: int | None = None) -> Flops:
    """The FLOPs of a closed jaxpr (`jax.make_jaxpr`); the rest as in `of_jax`."""
    from jax.interpreters.partial_eval import dce_jaxpr

    is_whole = isinstance(while_turns, int) and not isinstance(while_turns, bool)
    if while_turns is not None and not (is_whole and while_turns >= 0):
        raise ConfigurationError(f"while_turns={while_turns!r}: give a whole number, 0 or more")
    walk = _Walk(while_turns)
    everything = [True] * len(closed.jaxpr.outvars)
    # What nobody reads is not computed, inside of calls and loops neither: XLA leaves it out.
    needed, _ = dce_jaxpr(closed.jaxpr, everything, instantiate=True)
    inputs = [walk.number(("input", i)) for i, _ in enumerate(needed.invars)]
    found = walk.open(needed, inputs, [walk.number(("const", id(one))) for one in closed.consts])
    return replace(found.flops, left_out=tuple(walk.left_out))


class _Found(NamedTuple):
    """What a jaxpr comes to: the numbers of its results, and its FLOPs."""

    outs: list[int]
    flops: Flops = NONE


class _Walk:
    def __init__(self, while_turns: int | None) -> None:
        self.left_out: dict[str, None] = {}  # in order
        self._while_turns = while_turns
        self._numbers: dict[Any, int] = {}
        self._keys: list[Any] = []
        self._done: set[int] = set()  # products that were counted
        self._is_again = 0  # how many differentiated checkpoints we are in
        self._trials = 0  # walks that only find out what is equal
        # By axis how many there are, and whether values say if they vary along it.
        self._shards: dict[str, tuple[int, bool]] = {}
        self._depth = 0  # how many loops: "the element of this turn" is another one in each

    def number(self, key: Any) -> int:
        """The same for the same expression of the same values."""
        found = self._numbers.setdefault(key, len(self._keys))
        if found == len(self._keys):
            self._keys.append(key)
        return found

    def closed(self, closed: Any, inputs: Sequence[int]) -> _Found:
        """A jaxpr and its constants."""
        consts = [self.number(("const", id(one))) for one in closed.consts]
        return self.open(closed.jaxpr, inputs, consts)

    def open(self, jaxpr: Any, inputs: Sequence[int], consts: Sequence[int] = ()) -> _Found:
        """A jaxpr, equation by equation."""
        known: dict[Any, int] = dict(zip(jaxpr.invars, inputs, strict=True))
        known |= dict(zip(jaxpr.constvars, consts, strict=True))

        def read(atom: Any) -> int:
            return self._literal(atom) if hasattr(atom, "val") else known[atom]

        flops = NONE
        for equation in jaxpr.eqns:
            found = self._equation(equation, [read(atom) for atom in equation.invars])
            known |= dict(zip(equation.outvars, found.outs, strict=True))
            flops += found.flops
        return _Found([read(atom) for atom in jaxpr.outvars], flops)

    def _literal(self, atom: Any) -> int:
        """Of an array only which one it is: to read it costs, and its words leave out the most."""
        value = id(atom.val) if getattr(atom.val, "ndim", 0) else repr(atom.val)
        return self.number(("literal", str(atom.aval), value))

    def _equation(self, equation: Any, inputs: list[int]) -> _Found:
        name, params = equation.primitive.name, equation.params
        if name in _SAME_VALUE and len(inputs) == len(equation.outvars):
            return _Found(inputs)
        special: Callable[..., _Found] | None = {
            "scan": self._scan, "while": self._while, "cond": self._cond,
            "pallas_call": self._pallas, "shard_map": self._shard_map,
        }.get(name)  # fmt: skip
        if special is not None:
            return special(equation, inputs)
        if (count := _PRODUCTS.get(name)) is not None:
            return self._product(equation, inputs, count(equation), _bytes_of(equation))
        if name in _HIDDEN or any(word in name for word in _HIDDEN_WORDS):
            self.left_out[f"{name}: its FLOPs are in no equation"] = None
            return _Found(self._opaque(equation, inputs))
        inner = [one for one in params.values() if hasattr(one, "eqns")]
        if not inner:
            return _Found(self._opaque(equation, inputs))
        again = name in _CHECKPOINT and params.get("differentiated", False)
        self._is_again += again
        try:
            return self._called(equation, inner[0], inputs)
        finally:
            self._is_again -= again

    def _called(self, equation: Any, inner: Any, inputs: list[int]) -> _Found:
        """An equation that stands for a jaxpr: `jit`, `checkpoint`, `custom_vjp` and their like."""
        jaxpr = getattr(inner, "jaxpr", inner)
        fits = (len(jaxpr.invars), len(jaxpr.outvars)) == (len(inputs), len(equation.outvars))
        if not fits:  # of each element (scatter), or somebody's own primitive
            own = [self.number(("own", id(equation), i)) for i, _ in enumerate(jaxpr.invars)]
            found = self._inside(inner, own)
            if found.flops.executed:
                self.left_out[f"{equation.primitive.name}: counted as if it ran once"] = None
            return found._replace(outs=self._opaque(equation, inputs))
        return self._inside(inner, inputs)

    def _inside(self, inner: Any, inputs: Sequence[int]) -> _Found:
        return self.closed(inner, inputs) if hasattr(inner, "consts") else self.open(inner, inputs)

    def _product(self, equation: Any, inputs: list[int], flops: int, moved: int) -> _Found:
        outs = self._opaque(equation, inputs)
        is_repeated = self._is_again > 0 and outs[0] in self._done
        if not self._trials:
            self._done.add(outs[0])
        shards = math.prod(size for size, _ in self._shards.values())
        needed = 0 if is_repeated else self._different(equation.outvars[0].aval)
        return _Found(
            outs, Flops(flops * needed, flops * shards, (), moved * needed, moved * shards)
        )

    def _different(self, result: Any) -> int:
        """In how many shards a result is another one, as far as JAX knows. Others do it again."""
        told = getattr(result, "manual_axis_type", None)  # JAX 0.8 has the axes alone
        varies = getattr(result, "vma", ()) if told is None else told.varying
        sizes = self._shards.items()
        return math.prod(size for axis, (size, is_known) in sizes if axis in varies or not is_known)

    def _opaque(self, equation: Any, inputs: list[int]) -> list[int]:
        """Numbers for the results of an equation that is looked at from outside."""
        what = equation.primitive.name, _frozen(equation.params), tuple(inputs)
        return [self.number((*what, i)) for i, _ in enumerate(equation.outvars)]

    # --- Control flow -------------------------------------------------------------------------

    def _scan(self, equation: Any, inputs: list[int]) -> _Found:
        """`length` times its body. What one scan stacked, another takes apart again."""
        params = equation.params
        length, (consts_end, carry_end) = params["length"], _ends_in_scan(params)
        consts, init = inputs[:consts_end], inputs[consts_end:carry_end]
        self._depth += 1
        turn = "scan", length, self._depth
        each = [self._element(one, turn) for one in inputs[carry_end:]]
        how = *turn, params["reverse"]
        carried, found = self._turn(params["jaxpr"], consts, init, each, how)
        self._depth -= 1
        ends = zip(carried, found.outs[: len(carried)], strict=True)
        outs = [self.number(("last", both)) for both in ends]
        outs += [self.number(("stack", turn, one)) for one in found.outs[len(carried) :]]
        return _Found(outs, found.flops * length)

    def _element(self, stacked: int, turn: tuple[Any, ...]) -> int:
        key = self._keys[stacked]
        is_stack = key[:2] == ("stack", turn)
        return int(key[2]) if is_stack else self.number(("element", stacked, turn))

    def _turn(
        self, body: Any, consts: Sequence[int], init: Sequence[int], each: Sequence[int], how: Any
    ) -> tuple[list[int], _Found]:
        """A loop's carried values in any turn, and what a turn comes to.

        A carried value is known by how it begins, and by what each turn makes of it. Those that
        begin alike are told apart as long as a turn makes different ones of them, as states of an
        automaton are (J. Hopcroft, 1971). One turn more than that tells two loops apart.
        """
        carried = [self.number(("begins", how, one)) for one in init]
        is_told_apart = not init
        while not is_told_apart:
            self._trials += 1
            tried = self._inside(body, [*consts, *carried, *each]).outs
            self._trials -= 1
            made = [self.number(("carried", *both)) for both in zip(carried, tried, strict=False)]
            is_told_apart = len(set(made)) == len(set(carried))
            carried = made
        return carried, self._inside(body, [*consts, *carried, *each])

    def _while(self, equation: Any, inputs: list[int]) -> _Found:
        """Its body as often as somebody says, and what asks whether to go on once more."""
        params, turns = equation.params, self._while_turns
        body, end = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        self._depth += 1
        carried, found = self._turn(
            params["body_jaxpr"], inputs[body:end], inputs[end:], (), ("while", self._depth)
        )
        asks = self._inside(params["cond_jaxpr"], [*inputs[:body], *carried])
        self._depth -= 1
        ends = zip(carried, found.outs, strict=True)
        outs = [self.number(("when", asks.outs[0], both)) for both in ends]
        if turns is not None:
            return _Found(outs, found.flops * turns + asks.flops * (turns + 1))
        if a_turn := found.flops.executed + asks.flops.executed:
            self.left_out[
                f"a while loop: nobody says how often it turns ({a_turn:,} FLOPs a turn)"
            ] = None
        return _Found(outs)

    def _cond(self, equation: Any, inputs: list[int]) -> _Found:
        """The branch that costs most. One side of an earlier cond of the same choice is that."""
        choice, *given = inputs

        def side(value: int, branch: int) -> int:
            key = self._keys[value]
            return int(key[2][branch]) if key[:2] == ("cond", choice) else value

        branches = [
            self._inside(one, [side(value, i) for value in given])
            for i, one in enumerate(equation.params["branches"])
        ]
        worst = max(branches, key=lambda one: (one.flops.model, one.flops.executed))
        if len({one.flops.executed for one in branches}) > 1:
            costs = ", ".join(dict.fromkeys(f"{one.flops.executed:,}" for one in branches))
            self.left_out[f"a cond: of its branches ({costs} FLOPs) the dearest counts"] = None
        sides = zip(*(one.outs for one in branches), strict=True)
        outs = [
            each[0] if len(set(each)) == 1 else self.number(("cond", choice, each))
            for each in sides
        ]
        return worst._replace(outs=outs)

    def _shard_map(self, equation: Any, inputs: list[int]) -> _Found:
        """Its body has the shapes of one shard: as often as there are shards (`_product`)."""
        params = equation.params
        mesh = params["mesh"].shape
        axes = params["manual_axes" if "manual_axes" in params else "newly_manual_axes"]
        outside = self._shards
        self._shards = outside | {
            axis: (mesh[axis], params.get("check_vma", False)) for axis in axes
        }
        found = self._inside(params["jaxpr"], inputs)
        self._shards = outside
        return found

    def _pallas(self, equation: Any, inputs: list[int]) -> _Found:
        """By the kernel's own word, else by its body: that runs at each place of its grid."""
        cost, name = equation.params.get("cost_estimate"), _name_of_kernel(equation)
        if cost is not None:
            return self._product(equation, inputs, int(cost.flops), int(cost.bytes_accessed))
        flops = self._body_of_kernel(equation)
        if flops is None:
            self.left_out[f"pallas_call {name}: it has no cost estimate"] = None
            return _Found(self._opaque(equation, inputs))
        if not flops:  # it multiplies nothing
            return _Found(self._opaque(equation, inputs))
        found = self._product(equation, inputs, flops, _bytes_of(equation))
        splash = _SPLASH.search(name)
        # Fused it has a part of the queries' gradient for each block of keys: a dimension more.
        dimensions = [len(out.aval.shape) for out in equation.outvars]
        is_fused = max(dimensions) > dimensions[-1]
        if splash is None or (is_fused and splash[1] == "dkv"):
            self.left_out[
                f"pallas_call {name}: it has no cost estimate, and counts by its body, with what "
                "that skips or computes again"
            ] = None
        if splash is None:
            return found
        again, products = {"fwd": (0, 2), "dkv": (1, 5 if is_fused else 4), "dq": (2, 3)}[splash[1]]
        model = found.flops.model * (products - again) // products
        return found._replace(flops=replace(found.flops, model=model))

    def _body_of_kernel(self, equation: Any) -> int | None:
        """None: it cannot be told, for it loops as often as it likes, or its grid is not known."""
        grid = getattr(equation.params.get("grid_mapping"), "grid", None)
        if grid is None or not all(isinstance(size, int) for size in grid):
            return None
        known, self.left_out = self.left_out, {}
        shards, self._shards = self._shards, {}
        self._trials += 1
        body = equation.params["jaxpr"]
        own = [self.number(("own", id(equation), i)) for i, _ in enumerate(body.invars)]
        found = self._inside(body, own)
        self._trials -= 1
        self._shards = shards
        gaps, self.left_out = self.left_out, known
        if any(not gap.startswith("a cond") for gap in gaps):  # those are parts of the grid's edge
            return None
        return int(found.flops.executed * math.prod(grid))


def _name_of_kernel(equation: Any) -> str:
    params = equation.params
    if named := params.get("name") or params.get("name_and_src_info"):
        return str(named)
    # JAX 0.8 has it with the body alone: "mine at file.py:3"
    told = getattr(getattr(params.get("jaxpr"), "debug_info", None), "func_src_info", None)
    return str(told or "").partition(" at ")[0]


def _ends_in_scan(params: Any) -> tuple[int, int]:
    """Of a scan's inputs, where its constants end and where what it carries does."""
    if "num_consts" in params:
        consts, carried = params["num_consts"], params["num_carry"]
    else:  # from JAX 0.11 on
        consts, carried = map(len, params["ft_in"].unpack()[:2])
    return consts, consts + carried


def _frozen(params: Mapping[str, Any]) -> tuple[Any, ...]:
    """Parameters as part of a key: by what they are, or by which they are."""
    parts = []
    for name, value in params.items():
        try:
            hash(value)
            parts.append((name, value))
        except TypeError:
            parts.append((name, repr(value)))
    return tuple(parts)


def _bytes_of(equation: Any) -> int:
    """Operands and results, each once."""
    atoms = (one.aval for one in (*equation.invars, *equation.outvars))
    return sum(math.prod(one.shape) * one.dtype.itemsize for one in atoms)


# --- Products -------------------------------------------------------------------------------------


def _dot_general(equation: Any) -> int:
    """Each pair that is multiplied, twice: all of the left, by what is free on the right."""
    left, right = (one.aval.shape for one in equation.invars[:2])
    (_, contracted), (_, batched) = equation.params["dimension_numbers"]
    return _twice(left, right, (*contracted, *batched))


def _ragged_dot(equation: Any) -> int:
    """The same; each row of the left meets the matrix of one group."""
    left, right = (one.aval.shape for one in equation.invars[:2])
    numbers = equation.params["ragged_dot_dimension_numbers"]
    (_, contracted), (_, batched) = numbers.dot_dimension_numbers
    return _twice(left, right, (*contracted, *batched, *numbers.rhs_group_dimensions))


def _twice(left: Sequence[int], right: Sequence[int], met: Sequence[int]) -> int:
    """`met`: the axes of the right that each element of the left has its one place on."""
    return 2 * math.prod(left) * math.prod(n for axis, n in enumerate(right) if axis not in met)


_PRODUCTS: Mapping[str, Callable[[Any], int]] = {
    "dot_general": _dot_general,
    "scaled_dot": _dot_general,
    "ragged_dot": _ragged_dot,
    "ragged_dot_general": _ragged_dot,
    "conv_general_dilated": conv_flops,
}
