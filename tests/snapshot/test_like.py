from __future__ import annotations

import dataclasses
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest

from holdfast.errors import StateMismatch
from holdfast.snapshot.like import starting_values
from holdfast.snapshot.tree import flatten, unflatten

Point = namedtuple("Point", "x y")
F32 = np.zeros((2, 3), np.float32)


def differs(saved: Any, like: Any) -> StateMismatch:
    with pytest.raises(StateMismatch) as caught:
        unflatten(flatten(saved), like)
    return caught.value


@pytest.mark.parametrize(
    ("saved", "like", "path", "want", "got"),
    [
        ({"w": F32}, {"w": np.zeros((2, 4), np.float32)}, "w", "float32[2, 4]", "float32[2, 3]"),
        ({"w": F32}, {"w": np.zeros((2, 3), np.float64)}, "w", "float64[2, 3]", "float32[2, 3]"),
        ({"w": F32}, {"v": F32}, "v", "float32[2, 3]", "nothing there"),
        ({"w": F32, "x": 1}, {"w": F32}, "x", "nothing there", "a int"),
        ({"w": [1, 2]}, {"w": [1]}, "w/1", "nothing there", "a int"),
        ({"w": [1]}, {"w": [1, 2.0]}, "w/1", "a float", "nothing there"),
        ({"w": [1]}, {"w": (1,)}, "w", "a tuple of 1", "a list of 1"),
        ({"w": {0: 1}}, {"w": {"0": 1}}, "w/%30", "a int", "nothing there"),
        ({"w": 1}, {"w": 1.0}, "w", "a float", "a int"),
        ({"w": True}, {"w": 1}, "w", "a int", "a bool"),
        ({"w": None}, {"w": {}}, "w", "an empty dict", "None"),
        ({"w": {}}, {"w": None}, "w", "None", "an empty dict"),
        ({"w": F32}, {"w": None}, "w", "None", "float32[2, 3]"),
        ({"w": F32}, {"w": {"x": 1}}, "w", "a dict with x", "float32[2, 3]"),
        ({"w": {"x": F32}}, {"w": F32}, "w", "float32[2, 3]", "a dict with x"),
        ({"w": Point(1, 2)}, {"w": (1, 2)}, "w", "a tuple of 2", "a record with x, y"),
        ({"w": "x" * 999}, {"w": b""}, "w", "a bytes", "a str"),
        ({"w": 0.1}, {"w": np.zeros((), np.float32)}, "w", "float32[]", "a float"),
        ({"w": np.zeros(())}, {"w": 1}, "w", "a int", "float64[]"),
        (1, {"w": 1}, "", "a dict with w", "a int"),
    ],
)
def test_the_first_difference_is_named(
    saved: Any, like: Any, path: str, want: str, got: str
) -> None:
    error = differs(saved, like)
    assert (error.path, error.want, error.got) == (path, want, got)


def test_first_means_in_the_order_of_the_tree() -> None:
    saved = {"a": {"x": 1, "y": F32}, "b": 2}
    assert differs(saved, {"b": 2.0, "a": {"x": 1, "y": 2}}).path == "b"
    assert differs(saved, {"a": {"x": 1, "y": 2}, "b": 2.0}).path == "a/y"


def test_kinds_and_containers_come_from_like() -> None:
    saved = {"p": {"x": F32 + 1, "y": np.float32(3)}, "n": np.int32(4), "f": 5, "g": math.nan}
    like = {"p": Point(F32, np.zeros((), np.float32)), "n": 0, "f": np.zeros((), "i8"), "g": 1.0}
    back = unflatten(flatten(saved), like)
    assert type(back["p"]) is Point
    assert back["p"].x.tolist() == (F32 + 1).tolist()
    assert back["p"].y.shape == ()
    assert back["n"] == 4
    assert type(back["n"]) is int
    assert back["f"].dtype == np.int64
    assert back["f"] == 5
    assert math.isnan(back["g"])


def test_long_text_and_bytes_fit_short_ones() -> None:
    back = unflatten(flatten({"t": "é" * 999, "b": b"z" * 999}), {"t": "", "b": b""})
    assert back == {"t": "é" * 999, "b": b"z" * 999}


def test_an_object_in_like_is_an_error_that_names_it() -> None:
    assert differs({"w": 1}, {"w": object()}).want == "a object"


@dataclasses.dataclass
class Trained:
    """A state of a class of its own."""

    weights: Any
    step: Any


@pytest.mark.parametrize(
    ("start", "became"),
    [
        (np.zeros(2), np.ones(2)),
        (np.float64(0), np.float64(0.1)),
        (np.float64(0), 0.25),
        (0, np.int32(7)),
        ({"losses": []}, {"losses": [0.1, 0.2]}),
        (Trained(np.zeros(2), 0), Trained(np.ones(2), 9)),
        (Trained(np.zeros(2), None), Trained(np.ones(2), 9)),
        (Point([], 1), Point([1, 2], 0.1)),
        ({"train": []}, {"train": [0.3], "val": [0.2]}),
        ({"w": np.zeros(2), "n": 1}, {"w": np.ones(2), "n": 1, "best": np.float64(0.1)}),
        ({"a": 1, "b": {"c": 2}}, {"b": {"d": {"e": "f"}, "c": 2}, "a": 1}),
        ({"average": None}, {"average": {"w": np.ones(2)}}),
        ({"average": {}}, {"average": {"w": np.ones(2)}}),
        ({"kept": []}, {"kept": [np.ones(2), {"w": np.ones(1)}]}),
        ({"history": [{"step": 0}]}, {"history": [{"step": 0}, {"step": 1, "loss": 0.1}]}),
        (defaultdict(list), defaultdict(list, {0: [1], "0": [2], "a/b": [3]})),
        (OrderedDict(b=1, a=2), OrderedDict(c=3, a=2, b=1)),
        (Counter(), Counter(a=3)),
        (Counter(a=1), Counter(b=2, a=3)),
    ],
)
def test_what_a_script_starts_with_says_what_it_may_become(start: Any, became: Any) -> None:
    restored = unflatten(flatten(became), starting_values(start))
    assert repr(restored) == repr(became) or (restored == became == 0.25)
    assert type(restored) is type(start) or not isinstance(start, Trained | Point | dict)


@pytest.mark.parametrize(
    ("start", "became", "path"),
    [
        ({"w": F32}, {"w": F32, "x": F32}, "x"),
        ({"w": F32, "n": {"a": 1}}, {"w": F32, "n": {"a": 1, "b": [F32]}}, "n/b"),
        ({"n": {"a": 1}}, {"n": {"b": 1}}, "n/a"),
        ({"n": [1]}, {"n": [F32]}, "n"),
    ],
)
def test_arrays_come_only_where_a_script_starts_with_nothing(
    start: Any, became: Any, path: str
) -> None:
    assert differs(became, starting_values(start)).path == path


@pytest.mark.parametrize(
    "value",
    [
        Counter(a=3),
        OrderedDict([(1, F32), ("1", 2)]),
        defaultdict(list, {-1: [1], "a/b": [2]}),
    ],
)
def test_dicts_of_pythons_own_kinds_keep_their_keys(value: Any) -> None:
    """Also where jax has registered them as its own."""
    pytest.importorskip("jax")
    back = unflatten(flatten(value), value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    assert repr(unflatten(flatten(value))) == repr(dict(value))


@pytest.mark.parametrize("start", [np.zeros(2), {"x": np.zeros(2)}, Trained(np.zeros(2), 0)])
def test_a_narrower_array_of_numpys_is_another_program(start: Any) -> None:
    """Only JAX makes a float32 of a float64 on its own."""
    narrow = np.zeros(2, np.float32)
    saved = {"x": narrow} if isinstance(start, dict) else narrow
    saved = Trained(narrow, 0) if isinstance(start, Trained) else saved
    with pytest.raises(StateMismatch, match=r"the program wants float64\[2\]"):
        unflatten(flatten(saved), starting_values(start))


def test_what_jax_made_of_an_array_of_numpys_comes_back_as_jaxs() -> None:
    jnp = pytest.importorskip("jax.numpy")
    restored = unflatten(flatten({"w": jnp.ones(2)}), starting_values({"w": np.zeros(2)}))["w"]
    assert type(restored) is type(jnp.ones(2))
    assert restored.dtype == np.float32
    with pytest.raises(StateMismatch, match="the checkpoint has float16"):
        unflatten(flatten({"w": jnp.ones(2, np.float16)}), starting_values({"w": np.zeros(2)}))
