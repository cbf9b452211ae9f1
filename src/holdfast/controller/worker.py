"""A thread for what touches the run store, in order.

The loop must answer a signal at once even when the store hangs: what a job finds comes back to it
as an event.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

from holdfast.errors import HoldfastError, InternalError


@contextlib.contextmanager
def foreseen() -> Iterator[None]:
    """Whatever fails inside is a HoldfastError, so that who waits for an answer is given one.

    Raises InternalError for what is none.
    """
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise InternalError(f"internal error of Holdfast: {error!r}") from error


class Worker:
    """One thread, one queue of jobs. A job handles its own errors, by `foreseen`."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failed = failed
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Do this after everything submitted before it."""
        self._jobs.put(job)

    def close(self, limit_s: float) -> bool:
        """Finish what was submitted; False when that takes longer than `limit_s`."""
        self._jobs.put(None)
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:
                self._failed(error)
