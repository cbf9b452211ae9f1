"""`holdfast.start`: attach this process to its run."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING, Any

from holdfast.cache.seal import read_seal
from holdfast.config import (
    check_frameworks_ranks,
    claim_rank,
    decline_jax_preemption,
    inside_claimed,
    rank_environment,
    session_settings,
)
from holdfast.errors import ConfigurationError
from holdfast.journal.carrier import Carrier
from holdfast.journal.names import check_name, default_name
from holdfast.journal.scratch import CACHE_FOLDER, scratch_dir
from holdfast.journal.store import RunStore
from holdfast.session import crash, meeting, signals
from holdfast.session.attachment import Attachment, Programs
from holdfast.session.channel_jax import keep_sigterm
from holdfast.session.leaving import be_ready_to_end
from holdfast.session.run import Run
from holdfast.session.say import say
from holdfast.snapshot.keep import Keep

if TYPE_CHECKING:
    from holdfast.session.alone import Alone
    from holdfast.session.follower import Follower

CARRY_LIMIT_S = 60.0  # for the last records, to an object store

_the_run: Run | None = None


def start(
    name: str | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    keep: Keep | None = None,
    flops: Any = None,
) -> Run:
    """Attach this process to its run and return it; again gives the same one.

    Under `holdfast run` the name, the store and the attempt are given; `name` and `store` count
    only without it (default: the script's name, and the configured store). `keep`: which
    checkpoints stay, the last 3 by default. `flops`: of one step, as for
    `run.flops`. Raises RunHeld when another process trains this run, StoreUnavailable,
    ConfigurationError.
    """
    run = _started(name, store, keep)
    if flops is not None:
        run.flops(flops)
    return run


def _started(name: str | None, store: str | os.PathLike[str] | None, keep: Keep | None) -> Run:
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
        lambda: attachment.report_paths,
        attachment.failed,
        is_declared=lambda: attachment.has_given_up,
    )
    if attachment.world_size > 1:
        be_ready_to_end()
    atexit.register(_close)
    meeting.remember_exit(_close)
    _the_run = Run(attachment)
    return _the_run


def _attach(
    name: str | None, store: str | os.PathLike[str] | None, keep: Keep | None
) -> Attachment:
    environment = rank_environment()
    if environment is not None and not inside_claimed():
        from holdfast.session.supervised import Supervised, write_whole_lines

        check_frameworks_ranks(environment.rank, environment.world_size)
        write_whole_lines()
        supervised = Supervised(environment, keep)
        supervised.watch_sigterm()
        return supervised
    settings = session_settings().settings
    seal = None if settings.cache_key_file is None else read_seal(settings.cache_key_file)
    bare = _bare(name, store, keep)
    limit_bytes = settings.compile_cache_bytes
    if limit_bytes is not None:
        here = scratch_dir(bare.folder.scratch_key) / CACHE_FOLDER
        bare.programs = Programs(here, bare.folder.cache_dir, limit_bytes, seal)
    bare.watch_sigterm()
    signals.install_sigint(bare.on_sigint)
    return bare


def _bare(
    name: str | None, store: str | os.PathLike[str] | None, keep: Keep | None
) -> Alone | Follower:
    """Without a supervisor: alone, or one of several ranks of which rank 0 leads."""
    from holdfast.session.channel import find_world

    settings = session_settings()
    world = find_world()
    name = check_name(name) if name is not None else settings.name or default_name(sys.argv)
    command = (sys.executable, *sys.argv)
    place = os.fspath(store) if store is not None else settings.store
    if world.size > 1 and "://" in place and not place.startswith("file:"):
        raise ConfigurationError(
            f"{place}: several ranks keep their run in an object store only under `holdfast run`; "
            "start them with it, or name a folder"
        )
    folder = RunStore.at(place).open(name, command=command)
    if world.size > 1 and decline_jax_preemption():
        keep_sigterm()
    if world.rank > 0:
        from holdfast.session.follower import Follower

        return Follower(folder, world, grace_s=settings.grace_s)
    carrier = Carrier(folder, say)
    keep = keep or Keep(last=settings.keep_last)
    from holdfast.session.controlling import bare_policy

    hold_s, grace_s = settings.settings.hold_finished_s, settings.grace_s
    chips = settings.chips_of(world.size)
    policy = bare_policy(settings.save_policy(), world.size, hold_s, chips)
    if world.size > 1:
        from holdfast.session.leader import Leader

        return Leader(folder, world, policy=policy, keep=keep, grace_s=grace_s)
    from holdfast.session.alone import Alone

    alone = Alone(folder, policy=policy, keep=keep, grace_s=grace_s)
    alone.on_close(lambda: carrier.close(CARRY_LIMIT_S))
    return alone


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
