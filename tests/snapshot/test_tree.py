from __future__ import annotations

import dataclasses
import enum
import math
import random
import struct
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Unstorable
from holdfast.snapshot.paths import join, matches, piece
from holdfast.snapshot.sealed import compact, parse
from holdfast.snapshot.structure import arrays, decode, prune
from holdfast.snapshot.tree import Flat, flatten, unflatten

Point = namedtuple("Point", "x y")

NUMPY_DTYPES = [
    "?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "g", "F", "D", "G",
    ">f4", ">i8", "M8[ns]", "m8[s]", "U3", "S5", "V4",
    [("x", "<f4"), ("y", "<i8", (2,))],
    [("nested", [("a", "u1"), ("b", ">f2")]), ("tail", "S3")],
]  # fmt: skip
ML_DTYPES = [
    "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float6_e2m3fn",
    "float6_e3m2fn", "float4_e2m1fn", "int2", "int4", "uint2", "uint4",
]  # fmt: skip
ALL_DTYPES = [np.dtype(d) for d in NUMPY_DTYPES] + [
    np.dtype(getattr(ml_dtypes, name)) for name in ML_DTYPES
]


def same(left: Any, right: Any) -> bool:
    """Equality to the bit and to the type."""
    if isinstance(left, np.ndarray | np.generic):
        return (
            isinstance(left, np.ndarray) is isinstance(right, np.ndarray)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and left.tobytes() == right.tobytes()
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def through_json(flat: Flat) -> Flat:
    return Flat(parse(compact(flat.structure).encode()), flat.leaves)


keys = st.text(max_size=4) | st.integers() | st.sampled_from(["0", "-1", "$", "", "a/b", "\ud800"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**5000), max_value=10**5000)
    | st.floats(allow_nan=True)
    | st.complex_numbers(allow_nan=True)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.sampled_from([b"x" * 5000, "é" * 5000, math.nan, -0.0, math.inf, 2**53, -(2**53) - 1])
    | st.sampled_from([np.arange(6, dtype="i2").reshape(2, 3), np.float32(1.5), np.zeros((0, 3))])
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(trees)
def test_any_plain_tree_comes_back_to_the_bit_and_to_the_type(tree: Any) -> None:
    assert same(unflatten(through_json(flatten(tree))), tree)


@given(trees)
def test_paths_tell_all_arrays_apart(tree: Any) -> None:
    paths = [leaf.path for leaf in flatten(tree).leaves]
    assert len(set(paths)) == len(paths)
    assert [one.path for one in arrays(through_json(flatten(tree)).structure)] == paths
    for path in paths:
        path.encode("utf-8")  # a safetensors header must be able to hold it


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4)], ids=str)
def test_every_dtype_and_shape(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    size = math.prod(shape) * dtype.itemsize
    raw = rng.integers(0, 2 if dtype == np.bool_ else 8, size, np.uint8)
    array = np.frombuffer(raw.tobytes(), dtype).reshape(shape).copy()
    assert same(unflatten(through_json(flatten({"a": array}))), {"a": array})
    scalar = array.reshape(-1)[:1].copy()
    if scalar.size and dtype.itemsize <= 16 and dtype.char != "g":  # long doubles have padding
        assert same(unflatten(flatten([scalar[0]])), [scalar[0]])


@pytest.mark.parametrize("dtype", ["f4", "c16", "bfloat16", "i1", [("x", "f4"), ("y", "i2")]])
def test_arrays_that_are_not_contiguous(dtype: Any) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    base = np.arange(60 * kind.itemsize, dtype=np.uint8).view(kind).reshape(4, 15)
    for view in (base.T, base[::2, ::-3], base[:, 1:7], np.broadcast_to(base[0, 0], (3, 2))):
        assert same(unflatten(flatten(view)), np.ascontiguousarray(view))
    read_only = base.copy()
    read_only.flags.writeable = False
    assert same(unflatten(flatten(read_only)), base)


def test_the_result_is_a_copy() -> None:
    source = np.zeros(3)
    result = unflatten(flatten({"a": source}))
    source[:] = 1
    assert result["a"].tolist() == [0, 0, 0]


class Color(enum.IntEnum):
    RED = 1


class Opaque:
    pass


class Stateful:
    def state_dict(self) -> dict[str, int]:
        return {}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda: 0, "code"),
        (print, "code"),
        ((n for n in ()), "generator"),
        ({1}, "no order"),
        (Color.RED, ".value"),
        (Opaque(), "cannot be stored"),
        (Opaque, "the class Opaque"),
        (Stateful(), "run.track"),
        (np.array([object()]), "Python objects"),
        (np.ma.masked_array([1], [True]), "mask"),
        (np.zeros((1, 1)).view(np.matrix), "numpy.asarray"),
        (np.random.default_rng(0), "run.track"),
        (random.Random(0), "run.track"),
        ({(1, 2): 3}, "keys are str or int"),
        ({True: 3}, "keys are str or int"),
        ({np.int64(1): 3}, "keys are str or int"),
        (bytearray(b"x"), "cannot be stored"),
    ],
    ids=lambda value: type(value).__name__,  # repr holds addresses: workers must agree
)
def test_what_cannot_be_stored_is_named_with_its_path(value: Any, says: str) -> None:
    with pytest.raises(Unstorable, match=says) as caught:
        flatten({"params": [0, {"a/b": value}]})
    assert caught.value.path == "params/1/a%2Fb"


def test_an_open_file_cannot_be_stored(tmp_path: Any) -> None:
    with (tmp_path / "x").open("w") as file, pytest.raises(Unstorable, match="TextIOWrapper"):
        flatten({"log": file})


def test_cycles_and_abysses() -> None:
    cycle: dict[str, Any] = {"a": []}
    cycle["a"].append(cycle)
    with pytest.raises(Unstorable, match="contains itself") as caught:
        flatten(cycle)
    assert caught.value.path == "a/0"
    deep: Any = 0
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(Unstorable, match="deep"):
        flatten(deep)
    shared = [1, 2]
    assert unflatten(flatten([shared, shared])) == [shared, shared]  # twice is no cycle


def test_containers_without_like_become_plain() -> None:
    @dataclasses.dataclass
    class Config:
        lr: float
        betas: tuple[float, float]

    tree = {
        "point": Point(1, np.ones(2)),
        "config": Config(0.1, (0.9, 0.99)),
        "ordered": OrderedDict(b=1, a=2),
        "default": defaultdict(list, a=[1]),
    }
    plain = unflatten(flatten(tree))
    assert type(plain["point"]) is tuple
    assert plain["point"][0] == 1
    assert plain["config"] == {"lr": 0.1, "betas": (0.9, 0.99)}
    assert list(plain["ordered"].items()) == [("b", 1), ("a", 2)]
    assert type(plain["default"]) is dict
    assert flatten(tree).leaves[0].path == "point/y"

    back = unflatten(flatten(tree), like=tree)
    assert type(back["point"]) is Point
    assert back["config"] == tree["config"]
    assert type(back["config"]) is Config
    assert type(back["ordered"]) is OrderedDict
    assert back["default"]["new"] == []  # its factory is still there


def test_int_and_str_keys_are_told_apart() -> None:
    tree = {0: np.zeros(1), "0": np.ones(1), -1: 2, "-1": 3, "%30": np.full(1, 2.0)}
    assert [leaf.path for leaf in flatten(tree).leaves] == ["0", "%30", "%2530"]
    assert same(unflatten(through_json(flatten(tree))), tree)


@given(st.lists(keys, min_size=2, max_size=2, unique_by=lambda key: (type(key), key)))
def test_different_keys_have_different_pieces(pair: list[str | int]) -> None:
    assert piece(pair[0]) != piece(pair[1])
    assert "/" not in piece(pair[0])
    assert piece(pair[0])


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("params/**", "params/a/b", True),
        ("params/**", "params", True),
        ("params/**", "paramsx/a", False),
        ("**/w", "a/b/w", True),
        ("**/w", "w", True),
        ("*/w", "a/b/w", False),
        ("a?/w", "ab/w", True),
        ("a?/w", "a//w", False),
        ("**", "anything/at/all", True),
        ("a.b", "axb", False),
        ("a/0/w", join(join("a", piece("0")), "w"), True),  # as a person types it
    ],
)
def test_patterns(pattern: str, path: str, fits: bool) -> None:
    assert matches(pattern, path) is fits


def test_pruning_keeps_indexes_and_none() -> None:
    tree = {"a": [1, None, 3], "b": {0: 1, 1: 2}, "c": (4, 5), "n": None}
    structure = flatten(tree).structure
    for patterns, left in [
        (("a/1", "n"), {"a": [None, None, None], "n": None}),
        (("a/2",), {"a": [None, None, 3]}),
        (("b/1", "c/0"), {"b": {1: 2}, "c": (4, None)}),
    ]:
        assert decode(prune(structure, patterns), lambda _: None) == left


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["$", "of", "keys", "plain", "kind", "dtype", "shape", "hex", "bits", "a"]),
        inner | st.sampled_from(["array", "tuple", "dict", "record", "int", "float", "bytes"]),
        max_size=5,
    ),
    max_leaves=10,
))  # fmt: skip
def test_a_structure_from_disk_is_trusted_in_nothing(rubbish: Any) -> None:
    try:
        for array in arrays(rubbish):
            _ = array.nbytes
        decode(rubbish, lambda array: array.path)
    except ValueError:
        pass
