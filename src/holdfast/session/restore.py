"""Restoring: the one choice of a set, read with every byte verified, put where it belongs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.events import Resume
from holdfast.core.save.choose import TrainingEnd
from holdfast.core.value import value
from holdfast.errors import ConfigurationError, CorruptCheckpoint, PartNotFetched
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Word
from holdfast.journal.store import RunFolder
from holdfast.session.attachment import Attachment
from holdfast.session.contents import STATE, Contents
from holdfast.session.reshape import OWN, SHARED, reshape
from holdfast.session.say import say
from holdfast.session.store_away import folder_of, is_back

MOST_ABSENCES = 5  # of the store, in one restore
_T = TypeVar("_T")


@value
class Restored:
    """The state to train on from `step`.

    `external`: a framework's checkpoint, below its folder. `ended`: as of `Resume.training_end`.
    """

    state: Any
    step: int
    external: str | None = None
    ended: TrainingEnd | None = None


def restore(
    attachment: Attachment,
    contents: Contents,
    *,
    like: Any,
    init: Callable[[], Any] | None,
    only: str | None,
    folder: Path | None = None,
) -> Restored:
    """See `Run.restore`, and `Run.framework`, which gives the `folder`."""
    if init is not None and only is not None:
        raise ConfigurationError(
            f"run.restore(init=…, only={only!r}): init makes the whole state, and only takes "
            "a part of it, which would not fit at the next start; leave one of them out"
        )
    attachment.come_in(lambda: _look_ahead(init))
    started_ns, external = now_ns(), None
    there: Callable[[Callable[[], Any]], Any] = partial(_while_there, attachment.folder)
    token = attachment.writer.open_span("restore")
    try:
        while True:
            resume = attachment.resume()
            if resume.set_name is None:
                state = init() if init is not None else like
            else:
                try:
                    if folder is not None:
                        external = there(partial(_verified, attachment, resume, folder))
                    how = attachment, resume, contents, like, init, only
                    stored = there(partial(_read, *how))
                except PartNotFetched as error:  # it may come in the next attempt
                    raise PartNotFetched(f"{resume.set_name}: {error}") from error
                except CorruptCheckpoint as error:
                    say(f"checkpoint {resume.set_name} cannot be trusted: {error}")
                    attachment.reject(resume, str(error))
                    continue
            if attachment.resumed(resume):
                break
        if resume.set_name is not None:
            contents.apply(stored)  # only now: what is drawn from a data stream stays drawn
            state = stored.get(STATE)
        contents.skip(resume.skip_batches)
    finally:
        attachment.writer.close_span(token)
    attachment.writer.page.store(Word.WATERMARK, resume.step)
    attachment.writer.record_restore(started_ns, now_ns(), resume.step, resume.parent)
    return Restored(state, resume.step, external, resume.training_end)


def _verified(attachment: Attachment, resume: Resume, folder: Path) -> str:
    """The framework's checkpoint that the set stands for: this rank's share of it is read."""
    from holdfast.snapshot.external import external_of, verify_external
    from holdfast.snapshot.sets import read_head

    external = external_of(read_head(attachment.set_dir(resume)).extras)
    if external is None:
        raise ConfigurationError(
            f"checkpoint {resume.set_name} of run {attachment.name!r} is Holdfast's own, and none "
            "that a framework has written: go on with the script that made it, or give the run "
            "another name"
        )
    verify_external(external, folder, attachment.rank, attachment.world_size)
    return external.path


def _while_there(
    folder: RunFolder, read: Callable[[], _T], wait: Callable[[str, str], object] = folder_of
) -> _T:
    """What is read; again where the store was away meanwhile: what is not there is no damage."""
    for _ in range(MOST_ABSENCES):
        try:
            return read()
        except CorruptCheckpoint as error:
            if not is_back(folder, error, wait):
                raise
    return read()


def _read(
    attachment: Attachment,
    resume: Resume,
    contents: Contents,
    like: Any,
    init: Callable[[], Any] | None,
    only: str | None,
) -> dict[str, Any]:
    from holdfast.snapshot.part import await_part
    from holdfast.snapshot.restore import read_own, read_set
    from holdfast.snapshot.sets import read_manifest

    set_dir = attachment.set_dir(resume)
    await_part(set_dir)
    shape = like if like is not None or init is None else _shape_of(init)  # as memory is touched
    warm = attachment.warming.take(set_dir) if attachment.warming is not None else None
    manifest = read_manifest(set_dir) if warm is None else warm.manifest
    written_by = manifest.world_size
    is_reshaped = written_by != attachment.world_size
    stored = read_set(
        set_dir,
        like=None if shape is None else {STATE: shape},
        only=only,
        rank=attachment.rank,
        world_size=attachment.world_size,
        sections=SHARED if is_reshaped else None,
        room=None if warm is None else warm.room,
        manifest=manifest,
        layout=contents.layouts(),
    )
    if is_reshaped:
        say(
            f"checkpoint {resume.set_name} was written by {written_by} ranks, "
            f"{attachment.world_size} now"
        )
        stored |= reshape(read_own(set_dir, OWN), attachment.rank, attachment.world_size)
    return stored


def _look_ahead(init: Callable[[], Any] | None) -> None:
    """Trace an `init` of JAX's, which remembers that: a restore needs to know how the state looks.

    No other kind of function, whose results would take memory while another attempt trains.
    """
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(init, jax.stages.Wrapped):
        with contextlib.suppress(Exception):  # the restore itself meets the same trouble
            jax.eval_shape(init)


def _shape_of(init: Callable[[], Any]) -> Any:
    """How the state looks, without making it where JAX can tell."""
    from holdfast.snapshot.like import starting_values
    from holdfast.snapshot.materialise import names_devices

    jax = sys.modules.get("jax")
    shape = None
    if jax is not None:
        try:
            shape = _traced(jax, init)
            leaves = jax.tree.leaves(shape)
            if not all(names_devices(one) for one in leaves if hasattr(one, "sharding")):
                shape = None  # on the axes of an explicit mesh: who calls it sees the devices
        except Exception as error:
            # An init that is not traceable (it computes with numpy) is simply called.
            del error
    if shape is None:
        shape = init()
    if shape is None:
        raise ConfigurationError("init() gave None: it must return the state to train on")
    return starting_values(shape)


def _traced(jax: Any, init: Callable[[], Any]) -> Any:
    """What `init` returns, with shapes in the place of JAX's arrays; all else as it is.

    jax.eval_shape alone would call a float64 of numpy's a float32 of JAX's. Of a jitted `init`, all
    of whose results are JAX's, it knows where they are to lie.
    """
    if isinstance(init, jax.stages.Wrapped):
        return jax.eval_shape(init)
    from holdfast.snapshot.like import is_plain, wanted

    made: list[Any] = []
    tree = None

    def trace() -> list[Any]:
        nonlocal made, tree
        made, tree = jax.tree.flatten(init())
        return [leaf if isinstance(leaf, jax.Array) else None for leaf in made]

    shapes = jax.eval_shape(trace)
    leaves = [leaf if shape is None else shape for leaf, shape in zip(made, shapes, strict=True)]
    strange = [leaf for leaf in leaves if not is_plain(leaf) and wanted(leaf) is None]
    if strange:
        raise TypeError(f"a {type(strange[0]).__name__} may hold what is being traced")
    return jax.tree.unflatten(tree, leaves)
