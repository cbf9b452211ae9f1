"""Kept programs are run before they are traced; here each is compared with its function.

A thread traces the function again while the training goes on, and compares what that gives with
what the program was made from. Where it gives something else, or nothing can be said (the function
is called inside a context of JAX's, which a thread does not share), nobody is accused: there is a
*suspicion*, and the next call looks for itself, with its own arguments. Only that one decides.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.session.attachment import Attachment
from holdfast.session.watch import BESIDE

CLOSE_LIMIT_S = 5.0
NUDGE_S = 0.1

_one_at_a_time = threading.Lock()


class _OverError(BaseException):
    """The process ends: nobody needs the rest of the trace."""


class KeptCheck:
    """Of the program under `key`, which was made from what has the digest `made_from`.

    `suspicion`: what the loop is to look into; "" as long as there is nothing.
    """

    def __init__(
        self,
        jitted: Any,
        key: str,
        made_from: str,
        call: tuple[tuple[Any, ...], dict[str, Any]],
        *,
        is_alike: Callable[[], bool],
        proved: Callable[[], None],
    ) -> None:
        """`call`: arguments of which nothing but shapes, types and shardings are needed.

        `is_alike`: whether JAX's options in this thread are those of the call. `proved` is called
        once the two are found to be the same.
        """
        self.key = key
        self.made_from = made_from
        self.suspicion = ""
        self._jitted = jitted
        self._call = _outlines(call)
        self._is_alike = is_alike
        self._proved = proved
        self._has_traced = False  # beside the training: JAX remembers that
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, after_s: float) -> None:
        """Look, once that time is over."""
        self._thread = threading.Thread(target=self._run, args=(after_s,), name=BESIDE, daemon=True)
        self._thread.start()

    def confirm(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Look now, in the loop, with a call's own arguments: how the program is wrong, or ""."""
        self.suspicion = ""
        if self._has_traced:
            sys.modules["jax"].clear_caches()
        try:
            return self._compare(args, kwargs)
        except Exception as error:
            return f"it cannot be traced any more ({error!r:.200})"

    def close(self) -> None:
        """End it: a thread that traces as the interpreter ends could take the process down."""
        thread = self._thread
        self._closing.set()
        if thread is None:
            return
        until_s = time.monotonic() + CLOSE_LIMIT_S
        thread.join(NUDGE_S)
        while thread.is_alive() and time.monotonic() < until_s:
            _interrupt(thread)
            thread.join(NUDGE_S)

    def _run(self, after_s: float) -> None:
        with contextlib.suppress(_OverError):
            if self._closing.wait(after_s):
                return
            with _one_at_a_time:
                self.suspicion = self._look()

    def _look(self) -> str:
        try:
            if not self._is_alike():
                return "it is called inside a context of JAX's"
            self._has_traced = True
            args, kwargs = self._call
            return self._compare(args, kwargs)
        except Exception as error:
            return f"it cannot be traced beside the training ({error!r:.200})"

    def _compare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        from holdfast.session.executables import digest_of

        if digest_of(self._jitted.trace(*args, **kwargs).lower()) != self.made_from:
            return "it is traced to another program now"
        self._proved()
        return ""


def resume_after(attachment: Attachment, resume_step: int, right_until: int | None) -> int:
    """The step that the attempts after that one began with, the lowest of them.

    `resume_step`: this attempt's own, which it is where nothing else is known.
    """
    from holdfast.journal.attempts import attempts

    if right_until is None:
        return resume_step
    since = range(right_until + 1, attachment.attempt)
    try:
        records = attempts(attachment.folder).records
    except HoldfastError:
        records = ()
    return min([resume_step, *(one.resume_step for one in records if one.attempt in since)])


def _outlines(call: Any) -> Any:
    """Arguments without their values: shapes, types and shardings, where an array is meant."""
    jax: Any = sys.modules["jax"]
    import numpy as np

    def outline(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            is_placed = getattr(leaf, "committed", True)
            return jax.ShapeDtypeStruct(
                leaf.shape,
                leaf.dtype,
                sharding=leaf.sharding if is_placed else None,
                weak_type=getattr(leaf, "weak_type", False),
            )
        if isinstance(leaf, np.ndarray | np.generic):
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        return leaf

    return jax.tree_util.tree_map(outline, call)


def _interrupt(thread: threading.Thread) -> None:
    """Have a thread's Python code raise, at its next instruction."""
    import ctypes

    if thread.ident is not None:
        number, error = ctypes.c_ulong(thread.ident), ctypes.py_object(_OverError)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, error)
