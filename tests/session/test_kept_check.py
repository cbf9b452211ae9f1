"""A kept program is compared with its function beside the training; only the loop accuses it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.journal.attempts import create_attempt
from holdfast.journal.store import RunFolder, RunStore
from holdfast.session.kept_check import KeptCheck, resume_after

pytest.importorskip("jax")

LIMIT_S = 60.0


class Jitted:
    """Stands in for a jitted function: `says` is what it is lowered to."""

    def __init__(self, says: Callable[[], str]) -> None:
        self.says = says
        self.calls: list[Any] = []
        self.threads: list[str] = []

    def trace(self, *args: Any, **kwargs: Any) -> Jitted:
        self.calls.append((args, kwargs))
        self.threads.append(threading.current_thread().name)
        return self

    def lower(self) -> Jitted:
        return self

    def as_text(self) -> str:
        return self.says()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Looked:
    """A check of a program that was made from "one", and what came of it."""

    def __init__(
        self, says: Callable[[], str], call: Any = ((), {}), *, alike: bool = True
    ) -> None:
        self.proofs = 0
        self.jitted = Jitted(says)
        self.check = KeptCheck(
            self.jitted, "key", digest("one"), call, is_alike=lambda: alike, proved=self._prove
        )

    def _prove(self) -> None:
        self.proofs += 1

    def look(self) -> str:
        self.check.begin(0.0)
        thread = self.check._thread
        assert thread is not None
        thread.join(LIMIT_S)
        return self.check.suspicion


def fails() -> str:
    raise KeyError("gone")


def test_the_same_is_proved_once() -> None:
    looked = Looked(lambda: "one")
    assert looked.look() == ""
    assert looked.proofs == 1
    assert looked.jitted.threads == ["holdfast-beside"]


def test_another_program_is_a_suspicion_that_the_loop_confirms() -> None:
    looked = Looked(lambda: "two")
    assert looked.look() == "it is traced to another program now"
    assert looked.check.confirm((), {}) == "it is traced to another program now"
    assert looked.proofs == 0


def test_a_suspicion_may_turn_out_to_be_none() -> None:
    """A thread does not share what the script has put around its calls."""
    beside = {"holdfast-beside": "two"}
    looked = Looked(lambda: beside.get(threading.current_thread().name, "one"))
    assert looked.look()
    assert looked.check.confirm((), {}) == ""
    assert (looked.check.suspicion, looked.proofs) == ("", 1)


def test_inside_a_context_only_the_loop_can_tell() -> None:
    looked = Looked(lambda: "one", alike=False)
    assert "context" in looked.look()
    assert looked.jitted.calls == []
    assert looked.check.confirm((1,), {}) == ""


def test_what_cannot_be_traced_any_more_is_wrong() -> None:
    looked = Looked(fails)
    assert "cannot be traced beside the training (KeyError('gone'))" in looked.look()
    assert looked.check.confirm((), {}) == "it cannot be traced any more (KeyError('gone'))"


def test_no_array_is_held_on_to() -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    tree = {"a": jnp.ones((2, 3)), "b": jnp.asarray(2.0), "c": np.ones(4, np.int8), "d": 1.5}
    looked = Looked(lambda: "one", ((tree, jax.random.key(1)), {"wide": True}))
    assert looked.look() == ""
    ((outlines, key), kwargs) = looked.jitted.calls[0]
    assert not any(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(outlines))
    assert (outlines["a"].shape, outlines["c"].dtype) == ((2, 3), np.int8)
    assert (outlines["b"].weak_type, outlines["d"]) == (tree["b"].weak_type, 1.5)
    assert key.dtype == jax.random.key(1).dtype
    assert kwargs == {"wide": True}


def test_one_that_is_not_due_is_called_off() -> None:
    looked = Looked(lambda: "one")
    looked.check.begin(1e6)
    looked.check.close()
    assert looked.jitted.calls == []


def test_one_that_traces_is_broken_off() -> None:
    begun = threading.Event()

    def for_ever() -> str:
        begun.set()
        while True:
            pass

    looked = Looked(for_ever)
    looked.check.begin(0.0)
    assert begun.wait(LIMIT_S)
    looked.check.close()
    thread = looked.check._thread
    assert thread is not None
    assert not thread.is_alive()
    assert looked.check.suspicion == ""


class InAttempt(NamedTuple):
    """Stands in for an attachment: the run, and the attempt that this process is."""

    folder: RunFolder
    attempt: int


@pytest.mark.parametrize(
    ("right_until", "back_to"),
    [
        (None, 90),  # nothing is known: what this attempt has done
        (3, 90),  # compared in the attempt before
        (2, 80),  # 3 had ended before it was
        (1, 60),  # and so had 2
        (0, 40),
        (4, 90),  # in this very one
    ],
)
def test_the_run_goes_back_to_where_the_program_was_right_last(
    tmp_path: Path, right_until: int | None, back_to: int
) -> None:
    folder = RunStore.at(str(tmp_path)).open("r")
    for attempt, resume_step in enumerate([0, 40, 60, 80, 90]):
        create_attempt(folder, attempt, parent=None, resume_step=resume_step, restore_set=None)
    attachment: Any = InAttempt(folder, 4)
    assert resume_after(attachment, 90, right_until) == back_to


def test_where_the_store_is_away_it_goes_back_to_before_this_attempt(tmp_path: Path) -> None:
    folder = RunStore.at(str(tmp_path)).open("r")
    folder.path.rename(tmp_path / "away")
    assert resume_after(InAttempt(folder, 4), 90, 0) == 90  # type: ignore[arg-type]
