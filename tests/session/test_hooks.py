"""Hooks into frameworks: everything passes through; a hook that fails costs its feature alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from holdfast.session.hooks import arguments, hook_into

Python = Callable[..., str]


def framework() -> SimpleNamespace:
    """One with a private function that takes more than we know of."""
    return SimpleNamespace(_private=lambda *args, **kwargs: (args, kwargs))


def test_whatever_is_passed_arrives_and_whatever_is_returned_comes_back() -> None:
    theirs, seen = framework(), []
    hook_into(
        theirs,
        "_private",
        "nothing",
        before=lambda *args, **kwargs: seen.append(("before", args, kwargs)),
        after=lambda result, *args, **kwargs: seen.append(("after", result, args, kwargs)),
    )
    assert theirs._private(1, 2, new=3) == ((1, 2), {"new": 3})
    assert seen == [
        ("before", (1, 2), {"new": 3}),
        ("after", ((1, 2), {"new": 3}), (1, 2), {"new": 3}),
    ]


def test_a_hook_may_answer_instead_or_change_the_result() -> None:
    theirs = framework()
    hook_into(theirs, "_private", "nothing", before=lambda word: "ours" if word == "x" else None)
    assert theirs._private("x") == "ours"
    assert theirs._private("y") == (("y",), {})
    hook_into(theirs, "_private", "nothing", after=lambda result, *_: f"{result}!")
    assert theirs._private("x") == "ours!"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_hook_that_fails_is_said_once_and_not_called_again(
    when: str, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, calls = framework(), []

    def fails(*args: object) -> None:
        calls.append(args)
        raise TypeError("missing 1 required positional argument")

    hook_into(theirs, "_private", "programs are not kept", **{when: fails})
    assert [theirs._private(n) for n in range(3)] == [((n,), {}) for n in range(3)]
    assert len(calls) == 1
    said = capsys.readouterr().err
    assert said.count("holdfast: programs are not kept") == 1
    assert "missing 1 required positional argument" in said


def test_an_error_of_the_framework_itself_is_the_scripts() -> None:
    theirs, calls = SimpleNamespace(), []

    def refuses(*_: object) -> None:
        calls.append(1)
        raise ConnectionError("theirs")

    theirs._private = refuses
    hook_into(theirs, "_private", "nothing")
    with pytest.raises(ConnectionError, match="theirs"):
        theirs._private()
    assert calls == [1]


def test_arguments_are_known_by_name_however_they_are_passed() -> None:
    def theirs(key: str, seconds: float, *, backend: str = "cpu") -> None:
        """Theirs."""

    by_name = arguments(theirs, "key", "seconds")
    assert by_name("k", seconds=2.0) == {"key": "k", "seconds": 2.0}
    with pytest.raises(AttributeError, match="theirs takes no host"):
        arguments(theirs, "key", "host")


# What another version of JAX may have changed, and what is said of it.
SABOTAGE = {
    # As in JAX 0.11: the writer of the cache takes an argument less.
    "a_parameter_less": (
        """
def compile_and_write(backend, module, devices, options, host_callbacks, name, key):
    executable = compiler.backend_compile_and_load(
        backend, module, devices, options, host_callbacks
    )
    compiler._cache_write(key, 1.5, name, backend, executable)
    return executable

def cache_write(cache_key, compile_time_secs, module_name, backend, executable):
    write(cache_key, compile_time_secs, module_name, backend, executable, [])

write = compiler._cache_write
compiler._compile_and_write_cache, compiler._cache_write = compile_and_write, cache_write
""",
        "",
    ),
    "no_such_writer": (
        """
def compile_and_write(backend, module, devices, options, host_callbacks, name, key):
    return compiler.backend_compile_and_load(backend, module, devices, options, host_callbacks)

del compiler._cache_write
compiler._compile_and_write_cache = compile_and_write
""",
        "Compiled programs are not kept: jax",
    ),
    "another_time": (
        """
def compile_and_write(backend, module, devices, options, host_callbacks, name, key):
    executable = compiler.backend_compile_and_load(
        backend, module, devices, options, host_callbacks
    )
    compiler._cache_write(key, None, name, backend, executable, [])
    return executable

write = compiler._cache_write

def cache_write(cache_key, compile_time_secs, module_name, backend, executable, host_callbacks):
    write(cache_key, 1.5, module_name, backend, executable, host_callbacks)

compiler._compile_and_write_cache, compiler._cache_write = compile_and_write, cache_write
""",
        "compile times, and the programs of ranks other than 0, are not kept: a hook does not fit",
    ),
    "no_version": ("del jax.lib.__version__\n", "this version of jax is not known here"),
    "no_monitoring": ("jax.monitoring = None\n", ""),
}
TRAIN = """
import jax, jax.numpy as jnp
from jax._src import cache_key, compilation_cache, compiler
SABOTAGE
run = hf.start()
step = run.compile(lambda x: jnp.tanh(x) + 1)
state = run.restore(init=lambda: jnp.ones(3))
for n in run.steps(3):
    state = step(state)
    run.done(n, state)
print("value", float(state[0]).hex())
"""


@pytest.mark.real
@pytest.mark.parametrize("how", SABOTAGE)
def test_another_version_of_jax_costs_the_cache_and_never_the_training(
    python: Python, how: str
) -> None:
    pytest.importorskip("jax")
    change, sentence = SABOTAGE[how]
    said = python(TRAIN.replace("SABOTAGE", change))
    assert said.count("value 0x1.f") == 1
    assert sentence in said
    if not sentence:
        assert "not kept" not in said
