"""`holdfast.start`: attach this process to its run."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING

from holdfast.config import RankEnvironment, claim_rank, inside_claimed, session_settings
from holdfast.errors import ConfigurationError
from holdfast.journal.names import check_name, default_name
from holdfast.journal.store import RunStore
from holdfast.session import crash, signals
from holdfast.session.attachment import Attachment
from holdfast.session.run import Run
from holdfast.snapshot.keep import Keep

if TYPE_CHECKING:
    from holdfast.session.alone import Alone

_the_run: Run | None = None


def start(
    name: str | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    keep: Keep | None = None,
) -> Run:
    """Attach this process to its run and return it; again gives the same one.

    Under `holdfast run` the name, the store and the attempt are given; `name` and `store` count
    only without it (default: the script's name, and the configured store). `keep`: which
    checkpoints stay, the last 3 by default. Raises RunHeld when another process trains this run,
    StoreUnavailable, ConfigurationError.
    """
    global _the_run
    if _the_run is not None:
        if name is not None and name != _the_run.name:
            raise ConfigurationError(
                f"holdfast.start({name!r}): this process is already run {_the_run.name!r}"
            )
        return _the_run
    if inside_claimed() and _is_worker():
        # A data loader's worker that imported the script again: the run is its parent's.
        from holdfast.session.inert import Inert

        _the_run = Run(Inert(name or "worker"))
        return _the_run
    crash.use_exit_codes()
    attachment = _attach(name, store, keep)
    claim_rank()
    crash.install(
        attachment.report_path, attachment.failed, is_told=lambda: attachment.has_given_up
    )
    atexit.register(_close)
    _the_run = Run(attachment)
    return _the_run


def _attach(
    name: str | None, store: str | os.PathLike[str] | None, keep: Keep | None
) -> Attachment:
    environment = RankEnvironment.from_environ()
    if environment is not None and not inside_claimed():
        from holdfast.session.supervised import Supervised, write_whole_lines

        write_whole_lines()
        supervised = Supervised(environment, keep)
        supervised.watch_sigterm()
        return supervised
    alone = _alone(name, store, keep)
    alone.watch_sigterm()
    signals.install_sigint(alone.on_sigint)
    return alone


def _alone(name: str | None, store: str | os.PathLike[str] | None, keep: Keep | None) -> Alone:
    from holdfast.session.alone import Alone

    settings = session_settings()
    if settings.world_size > 1:
        raise ConfigurationError(
            f"this is one of {settings.world_size} ranks (WORLD_SIZE), and none has a supervisor: "
            f"start them with `holdfast run --ranks {settings.world_size} -- …`"
        )
    name = check_name(name) if name is not None else settings.name or default_name(sys.argv)
    command = (sys.executable, *sys.argv)
    folder = RunStore.at(store if store is not None else settings.store).open(name, command=command)
    return Alone(
        folder,
        policy=settings.save_policy(),
        keep=keep or Keep(last=settings.keep_last),
        grace_s=settings.grace_s,
        chips=settings.chips,
    )


def _is_worker() -> bool:
    """Whether `multiprocessing` started this process: it runs the script for its functions only.

    Any other child that calls `start` means it: a sweep that starts training scripts, a test.
    """
    if "__mp_main__" in sys.modules:
        return True  # spawned, and importing the script: it does not know its parent yet
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def _close() -> None:
    if _the_run is not None:
        _the_run.close()
