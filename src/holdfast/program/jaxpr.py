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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.program.conv import conv_flops
from holdfast.program.flops import Flops

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
        "cholesky", "custom_linear_solve", "eig", "eigh", "ffi_call", "hessenberg",
        "householder_product", "io_callback", "lu", "pure_callback", "qr", "schur", "svd",
        "triangular_solve", "tridiagonal", "tridiagonal_solve", "xla_custom_call",
    }
)  # fmt: skip
_HIDDEN_WORDS = ("dot_product_attention", "triton", "cudnn", "scaled_matmul", "mosaic_gpu")


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
    return of_jaxpr(trace(*args, **kwargs).jaxpr, while_turns=while_turns)


def of_jaxpr(closed: Any, *, while_turns: int | None = None) -> Flops:
    """The FLOPs of a closed jaxpr (`jax.make_jaxpr`); the rest as in `of_jax`."""
    walk = _Walk(while_turns)
    found = walk.closed(closed, [walk.number(("input", i)) for i, _ in enumerate(closed.in_avals)])
    return Flops(found.model, found.executed, tuple(walk.left_out))


class _Found(NamedTuple):
    """What a jaxpr comes to: the numbers of its results, and its FLOPs."""

    outs: list[int]
    model: int = 0
    executed: int = 0


class _Walk:
    def __init__(self, while_turns: int | None) -> None:
        self.left_out: dict[str, None] = {}  # in order
        self._while_turns = while_turns
        self._numbers: dict[Any, int] = {}
        self._keys: list[Any] = []
        self._done: set[int] = set()  # products that were counted
        self._is_again = 0  # how many differentiated checkpoints we are in

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
        """A jaxpr, equation by equation; those that nobody reads are passed over, as by XLA."""
        known: dict[Any, int] = dict(zip(jaxpr.invars, inputs, strict=True))
        known |= dict(zip(jaxpr.constvars, consts, strict=True))

        def read(atom: Any) -> int:
            if hasattr(atom, "val"):
                return self.number(("literal", str(atom.aval), repr(atom.val)))
            return known[atom]

        model = executed = 0
        for equation in _needed(jaxpr):
            found = self._equation(equation, [read(atom) for atom in equation.invars])
            known |= dict(zip(equation.outvars, found.outs, strict=True))
            model, executed = model + found.model, executed + found.executed
        return _Found([read(atom) for atom in jaxpr.outvars], model, executed)

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
            return self._product(equation, inputs, count(equation))
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
            if found.executed:
                self.left_out[f"{equation.primitive.name}: counted as if it ran once"] = None
            return found._replace(outs=self._opaque(equation, inputs))
        return self._inside(inner, inputs)

    def _inside(self, inner: Any, inputs: Sequence[int]) -> _Found:
        return self.closed(inner, inputs) if hasattr(inner, "consts") else self.open(inner, inputs)

    def _product(self, equation: Any, inputs: list[int], flops: int) -> _Found:
        outs = self._opaque(equation, inputs)
        is_repeated = self._is_again > 0 and outs[0] in self._done
        self._done.add(outs[0])
        return _Found(outs, 0 if is_repeated else flops, flops)

    def _opaque(self, equation: Any, inputs: list[int]) -> list[int]:
        """Numbers for the results of an equation that is looked at from outside."""
        what = equation.primitive.name, _frozen(equation.params), tuple(inputs)
        return [self.number((*what, i)) for i, _ in enumerate(equation.outvars)]

    # --- Control flow -------------------------------------------------------------------------

    def _scan(self, equation: Any, inputs: list[int]) -> _Found:
        """`length` times its body. What one scan stacked, another takes apart again."""
        params = equation.params
        length, consts_end = params["length"], params["num_consts"]
        carry_end = consts_end + params["num_carry"]
        consts, init = inputs[:consts_end], inputs[consts_end:carry_end]
        each = [self._element(one, length) for one in inputs[carry_end:]]
        # A carried value is known by how it begins and by what a turn makes of it: two turns.
        carried = [self.number(("begins", one, length)) for one in init]
        tried = self._inside(params["jaxpr"], [*consts, *carried, *each])
        carried = [
            self.number(("carried", *both)) for both in zip(carried, tried.outs, strict=False)
        ]
        found = self._inside(params["jaxpr"], [*consts, *carried, *each])
        outs = [
            self.number(("last", both))
            for both in zip(carried, found.outs[: len(carried)], strict=True)
        ]
        outs += [self.number(("stack", length, one)) for one in found.outs[len(carried) :]]
        return _Found(outs, found.model * length, found.executed * length)

    def _element(self, stacked: int, length: int) -> int:
        key = self._keys[stacked]
        is_stack = key[:2] == ("stack", length)
        return int(key[2]) if is_stack else self.number(("element", stacked, length))

    def _while(self, equation: Any, inputs: list[int]) -> _Found:
        params, turns = equation.params, self._while_turns
        skipped, end = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        init = [self.number(("turns", id(params["body_jaxpr"]), one)) for one in inputs[end:]]
        found = self._inside(params["body_jaxpr"], [*inputs[skipped:end], *init])
        outs = self._opaque(equation, inputs)
        if turns is not None:
            return _Found(outs, found.model * turns, found.executed * turns)
        if found.executed:
            self.left_out[
                f"a while loop: nobody says how often it turns ({found.executed:,} FLOPs a turn)"
            ] = None
        return _Found(outs)

    def _cond(self, equation: Any, inputs: list[int]) -> _Found:
        """The branch that costs most."""
        branches = [self._inside(one, inputs[1:]) for one in equation.params["branches"]]
        worst = max(branches, key=lambda one: (one.model, one.executed))
        if len({one.executed for one in branches}) > 1:
            costs = ", ".join(f"{one.executed:,}" for one in branches)
            self.left_out[f"a cond: of its branches ({costs} FLOPs) the dearest counts"] = None
        sides = zip(*(one.outs for one in branches), strict=True)
        outs = [self.number(("cond", inputs[0], side)) for side in sides]
        return worst._replace(outs=outs)

    def _shard_map(self, equation: Any, inputs: list[int]) -> _Found:
        """Its body has the shapes of one shard: as often as there are shards."""
        params = equation.params
        mesh = dict(params["mesh"].shape)
        axes = params.get("newly_manual_axes", params.get("manual_axes"))
        if axes is None:  # JAX before 0.7
            axes = set(mesh) - set(params.get("auto", ()))
        shards = math.prod(mesh[axis] for axis in axes)
        found = self._inside(params["jaxpr"], inputs)
        return found._replace(model=found.model * shards, executed=found.executed * shards)

    def _pallas(self, equation: Any, inputs: list[int]) -> _Found:
        cost = equation.params.get("cost_estimate")
        if cost is None:
            name = equation.params.get("name") or equation.params.get("name_and_src_info") or ""
            self.left_out[f"pallas_call {name}: it has no cost estimate"] = None
            return _Found(self._opaque(equation, inputs))
        return self._product(equation, inputs, int(cost.flops))


def _needed(jaxpr: Any) -> list[Any]:
    """The equations that a result or an effect depends on."""
    read = {atom for atom in jaxpr.outvars if not hasattr(atom, "val")}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(out in read for out in equation.outvars):
            read.update(atom for atom in equation.invars if not hasattr(atom, "val"))
            kept.append(equation)
    return kept[::-1]


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
    "ragged_dot": _ragged_dot,
    "ragged_dot_general": _ragged_dot,
    "conv_general_dilated": conv_flops,
}
