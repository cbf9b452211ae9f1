"""`Run`: what a training script holds. One per process; made by `holdfast.start`.

A script that uses it trains the same with a supervisor (`holdfast run -- python train.py`) and
without (`python train.py`).
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from holdfast.config import calibrated_file
from holdfast.core.events import Resume
from holdfast.errors import ConfigurationError, DeclaredFailure, StateMismatch, StepOrderError
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import RankPhase, Word
from holdfast.journal.names import check_tag, fit_name, shown
from holdfast.journal.writer import DATA_SPAN_MIN_NS
from holdfast.session.attachment import Attachment
from holdfast.session.boundary import NO_STEP, NOTHING_LEFT, Boundary
from holdfast.session.compiling import Compiling
from holdfast.session.contents import Contents
from holdfast.session.data import DataStream, SetEpoch
from holdfast.session.kept_check import resume_after
from holdfast.session.memory import RankBuffers
from holdfast.session.profiling import Profiling
from holdfast.session.program import StepFlops
from holdfast.session.reshape import Reshard
from holdfast.session.restore import Restored, restore
from holdfast.session.saver import Saver
from holdfast.session.say import say
from holdfast.session.watch import CompletionWatch

if TYPE_CHECKING:
    from holdfast.session.framework_loop import FrameworkLoop

T = TypeVar("T")


class Run:
    """A run as its training process sees it. Made by `holdfast.start`, never directly."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._writer = attachment.writer
        self._contents = Contents()
        page, ram = attachment.writer.page, attachment.ram
        memory = RankBuffers(ram, page, attachment.rank, attachment.world_size) if ram else None
        self._saver = saver = Saver(
            attachment.ckpt_dir,
            page,
            self._contents,
            attempt=lambda: attachment.attempt,
            rank=attachment.rank,
            world_size=attachment.world_size,
            before_write=attachment.before_save,
            memory=memory,
        )
        attachment.on_close(saver.close)
        self._watch = watch = CompletionWatch(attachment.writer)
        self._boundary = Boundary(attachment.writer, saver)
        self._boundary.watch = watch.offer
        self._boundary.copied = watch.copied
        if attachment.rank == 0:
            self._boundary.measure = watch.offer_metrics
        self._boundary.hurry = attachment.hurry
        self._program = StepFlops(attachment, calibrated_file)
        self._profiling = Profiling(attachment, self._boundary)
        self._boundary.stepped = self._first_step
        optimizers = self._contents.optimizers
        optimizers.speaks, optimizers.span = attachment.rank == 0, self._waiting
        self._restored = False
        self._stepped = self._is_frameworks = False
        self._closed = False
        self._compiling = Compiling(attachment, self._disown)
        attachment.on_close(self._compiling.close)
        # An instance attribute: one lookup less in the loop, and no bound method to make.
        self.done = self._boundary.done  # type: ignore[method-assign]
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """In a forked child there is no run: it has no threads, and nobody looks at its page."""
        self._attachment.is_inert = True
        self._closed = True
        self._contents.optimizers.close()

    def close(self) -> None:
        """End the session; the interpreter's exit calls it. Again: no effect."""
        if not self._closed:
            self._closed = True
            self._watch.close()  # before the journal is brought home
            self._attachment.close()

    def _first_step(self) -> None:
        self._attachment.stepped()
        self._program.stepped()
        self._profiling.listen()

    # --- who and where ----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The run's name in its store."""
        return self._attachment.name

    @property
    def attempt(self) -> int:
        """The number of the present launch, from 0."""
        return self._attachment.attempt

    @property
    def rank(self) -> int:
        """The number of the process among all training processes, from 0."""
        return self._attachment.rank

    @property
    def world_size(self) -> int:
        """How many training processes there are."""
        return self._attachment.world_size

    @property
    def resume_step(self) -> int:
        """The last step that the restored checkpoint contains; 0: from scratch."""
        return self._boundary.resume_step

    @property
    def stopping(self) -> bool:
        """Whether a stop has been asked for: the next agreed boundary saves and raises Stop."""
        return self._attachment.stopping()

    # --- what belongs to a checkpoint -------------------------------------------------------

    def track(self, **parts: Any) -> None:
        """Save and restore these objects in place, under their names.

        Each has `state_dict`/`load_state_dict` or `get_state`/`set_state`. The random generators
        of Python, numpy and torch are saved without being asked for. Raises ConfigurationError
        for an object that has neither pair.
        """
        self._contents.track(parts)

    def snapshot_safe(self, is_safe: bool) -> None:
        """Whether only optimizers' steps change their parameters and state between boundaries.

        On a CUDA device these are copied beside the next step, which waits for that where it would
        change them. A script that changes them elsewhere, after `done`, calls this with False: all
        is copied at the boundary then, which blocks for longer. So are arrays of JAX; without that
        call an accelerator holds a second copy of them for a moment. It holds from the next `done`
        on, until the next call. A change that was not told may spoil snapshots and never be found.
        """
        self._contents.optimizers.is_safe = is_safe

    def flops(self, per_step: Any, *, tokens: int | None = None, dtype: str = "bf16") -> None:
        """How many FLOPs the model needs for one step, on all chips together: for program goodput.

        `per_step`: a number, or what `holdfast.program` counts. Say it once; rank 0's word counts,
        and of several the last, for the whole run, its other attempts too. The peak is that of the
        device, dense, for numbers of type `dtype`: bf16, fp16, tf32, fp32, fp8 or int8. Leave it at
        bf16 for quantised training too, so that runs can be compared. Raises ConfigurationError for
        what is no such number or type.

        `tokens`: of the step that was counted, where others have other numbers of them. `run.done`
        is told each step's, in the same way, and FLOPs go by their mean.
        """
        self._program.tell(per_step, dtype, tokens)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """An optimizer's step waits for a copy: that time is SAVE, in the middle of the step."""
        token = self._writer.open_span("save")
        try:
            yield
        finally:
            self._writer.close_span(token)

    def data(
        self,
        source: Iterable[T],
        *,
        epochs: float = 1,
        set_epoch: SetEpoch | None = None,
        reshard: Reshard | None = None,
    ) -> DataStream[T]:
        """Iterate over `source`; the time it keeps the loop waiting is DATA, its position is saved.

        The position is that of the batches handed to the loop. A source with `get_state` and
        `set_state` (or `state_dict` and `load_state_dict`; its own, or its iterator's) is asked
        for it. Otherwise the batches are drawn again on restore: of an iterable those of the
        epoch, with the random generators as they were when it began; of an iterator all.

        `epochs`: how often an iterable is gone through; `math.inf`: without end. `set_epoch` is
        told each epoch's number, from 0, before it begins: `sampler.set_epoch`.
        `reshard`: how to go on with another number of ranks. "same": the position means the same
        for any number of them. A function `(positions, rank, world_size) -> position` makes this
        rank's from those of all ranks that were. Without it such a restore is refused.
        """
        writer = self._writer
        stream: DataStream[T] = DataStream(
            source,
            opened=lambda: writer.open_span("data"),
            closed=lambda token: _close(writer.close_span, token),
            poll=self._boundary.draw,
            epochs=epochs,
            set_epoch=set_epoch,
            reshard=reshard,
        )
        self._contents.add_stream(stream)
        return stream

    def restore(
        self,
        like: Any = None,
        *,
        init: Callable[[], T] | None = None,
        only: str | None = None,
    ) -> Any:
        """The state to start from: the newest good checkpoint's, or `init()` if none was ever made.

        `like` is a tree of arrays or shapes (jax.ShapeDtypeStruct, with sharding or without) that
        says how the state looks; without it the result of `init` does (JAX traces it, where that
        works): its numpy arrays may have become JAX's, its plain values others. To its dicts plain
        values may have come, and anything where it has None or an empty container. Tracked parts,
        data positions and random generators are restored as well. `only`: of the state what a glob
        on its paths fits (`params/**`); not beside `init`, which makes all of it.

        Raises StateMismatch naming the first path that differs, NoGoodCheckpoint when checkpoints
        were made and none can be trusted, DataTopologyChanged, StoreUnavailable.
        """
        restored = self._restore(like=like, init=init, only=only)
        self._saver.expect(restored.state)
        return restored.state

    def _restore(self, **how: Any) -> Restored:
        if self._stepped:
            raise StepOrderError("restore() comes before the first step: call it before run.steps")
        self._restored = True
        self._compiling.preload()
        try:
            restored = restore(self._attachment, self._contents, **how)
        except StateMismatch as error:
            error.run = self.name
            raise
        self._boundary.resume_step, self._boundary.ended = restored.step, restored.ended
        return restored

    def framework(
        self, folder: str | os.PathLike[str], *, own: str | None = None, generators: bool = True
    ) -> FrameworkLoop:
        """For a loop that a framework drives, and whose checkpoints it writes below `folder`.

        Which of them this attempt starts from is chosen as ever, and every byte of it is verified.
        Tracked parts, data positions and random generators are restored. `own`: a pattern of names
        in that folder that are this run's alone: what the run keeps no more is removed there.
        Otherwise nothing is. `generators`: False where the framework keeps the random generators
        in its checkpoints, and puts them back itself. Raises as `restore`, ConfigurationError when
        the chosen checkpoint is Holdfast's own, and StepOrderError when it was called before.
        """
        if self._is_frameworks:
            raise StepOrderError(
                "this process has two adapters for its loop: make one, and register it once"
            )
        self._is_frameworks = True
        from holdfast.session.framework_files import FrameworkFiles
        from holdfast.session.framework_loop import FrameworkLoop

        base = Path(folder).absolute()
        self._contents.has_generators = generators
        restored = self._restore(init=None, like=None, only=None, folder=base)
        who = self._attachment.rank, self._attachment.world_size
        files = FrameworkFiles(base, own, self._attachment.ckpt_dir, *who)
        ready = self._begin_framework
        return FrameworkLoop(files, restored.external, self._boundary, self._saver, ready)

    def _begin_framework(self, after: int | None) -> None:
        self._begin(after)
        self._attachment.restores = True  # what was chosen, by the framework's own means
        self._contents.restore_generators()

    def compile(
        self, function: Callable[..., T], *, flops: bool = False, **options: Any
    ) -> Callable[..., T]:
        """`jax.jit(function, **options)`, whose compiled form the next attempt finds again.

        `function` may be jitted already; then without `options`. Call the result as the function.
        A restart on the same devices neither traces, lowers nor compiles it, as long as the code,
        what it closes over, its arguments' types and JAX are the same; otherwise, and where that
        cannot be told (the log says why), it is compiled as ever. The results are the same to the
        bit. What the function prints or counts while it is traced, it does only then.

        While the training goes on, a thread traces it once more, and compares. If that gives
        something else, for it depends on what nobody could see (a package reads a variable), the
        attempt ends with DeclaredFailure, and the run goes back to before it.

        `flops=True`: one call of it is one step. Its FLOPs are counted where it is traced, kept
        with the program, and told as by `run.flops`, whose own word counts before them. Say it
        of one function: of several the last one counts, which the report says; of its calls with
        other shapes the dearest.
        """
        from holdfast.session.compiled_step import CompiledStep

        name = getattr(function, "__name__", type(function).__name__)
        count = partial(self._program.count, of=name) if flops else None
        step: Callable[..., T] = CompiledStep(function, self._compiling, count, **options)
        return step

    # --- the loop ---------------------------------------------------------------------------

    def steps(self, until: int, *, after: int | None = None, base: int = 1) -> Iterator[int]:
        """The numbers of the steps still to do, up to the `until`-th; call `done` for each.

        `after`: the last step that is already done, where the checkpoint is not Holdfast's.
        `base` 0 counts 0..until-1. Tracked parts are restored before the first step, if that was
        not done, and random generators once more, as the script may have drawn since `restore`.
        When the loop ends, the last state is saved, and only then is the run done.
        Raises StepOrderError when a step was not finished with `done`.
        """
        if self._attachment.is_inert:
            return
        if base not in (0, 1):
            raise ConfigurationError(f"run.steps counts from 0 or from 1, not from {base}")
        self._begin(after)
        self._contents.restore_generators()
        boundary = self._boundary
        first, last = boundary.resume_step + 1, until
        is_over = boundary.is_over(last)
        if is_over:
            say(NOTHING_LEFT.format(boundary.resume_step))
        if first > last or is_over:
            boundary.expected = NO_STEP
            self._writer.page.store(Word.PHASE, RankPhase.FINISHED)
            return
        boundary.begin(first, last, base)
        for step in range(first - boundary.shift, last + 1 - boundary.shift):
            boundary.begun = step
            yield step
            if boundary.expected == step:
                raise StepOrderError(
                    f"step {step} was not finished: call run.done({step}) before the next one"
                )
            if boundary.expected == NO_STEP:
                break  # finished in the loop, or given up
        self.finish()

    def _begin(self, after: int | None) -> None:
        """What must be settled before the first step."""
        restores_parts = not self._restored and after is None and self._contents.has_parts
        if restores_parts and self.restore() is not None:
            raise StepOrderError(
                f"run.steps() was called before run.restore(), but the checkpoint of step "
                f"{self.resume_step} has a state: take it, so that no step is done twice"
            )
        if not self._restored:
            resume = self._attachment.resume()
            if resume.set_name is not None and after is None:
                raise StepOrderError(
                    f"run.steps() was called before run.restore(), but checkpoint "
                    f"{resume.set_name} is there: restore it, so that no step is done twice"
                )
            if resume.set_name is not None and self._contents.is_told_of_more:
                say(
                    "tracked parts, data positions and random generators begin anew, as "
                    "run.restore() was not called: it restores them beside a checkpoint of yours"
                )
            mine = resume if resume.set_name is None else Resume(None, 0, None)
            while not self._attachment.resumed(mine):
                self._attachment.resume()
            self._boundary.ended = resume.training_end
            self._contents.skip(mine.skip_batches)
        if after is not None:
            self._boundary.resume_step = after
        self._contents.settle()
        self._contents.optimizers.begin(self._boundary.resume_step)
        self._attachment.restores = self._restored and after is None
        self._attachment.watch_sigterm()
        self._stepped = True
        self._attachment.ready(self._boundary.resume_step)

    def finish(self, state: Any = None) -> None:
        """End the loop before `until`: save the last step that was done, and the run is done.

        `steps` calls it at its end. After a `break`, call it yourself; a script that ends without
        it counts as a failure, and is started again. `state` replaces the one that `done` was given
        for that step, unless that was saved already (a line says so). In the middle of a step
        `state` is required, since that of the last step may be changed already; raises
        StepOrderError without it. A second call has no effect. A loop of `framework` has its own:
        StepOrderError there.
        """
        if self._is_frameworks:
            raise StepOrderError(
                "run.finish() would save without the framework's checkpoint: end the loop with "
                "`while loop.finishing():`, and save there"
            )
        if not self._attachment.is_inert:
            self._boundary.finish(state)

    def done(
        self,
        step: int,
        state: Any = None,
        *,
        ready: Any = None,
        tokens: int | None = None,
        commit: Callable[[int], None] | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> None:
        """Step `step` has been dispatched: the boundary at which saves and stops happen.

        `state`: the tree to save if a save is due here; its buffers may be donated right after.
        It is needed at each step if `restore` returned one, unless checkpoints are your own.
        `ready`: an array of this step, whose completion on the device is watched from a thread.
        `tokens`: how many the step trained on. `commit`: for checkpoints of your own (`steps` with
        `after`), called with the step when one is due, and returns when it is durable. Holdfast
        does not read them: use `framework` for those that it is to verify and to choose from.
        `metrics`: a few numbers by name (`{"loss": loss, "lr": 1e-3}`) for the report; a scalar on
        a device is fetched later, by a thread, so do not change it in place. Those of rank 0 are
        kept: the first 4,096 of each name in an attempt, then one each 10 s.
        Raises Stop after a stop's save is durable on all ranks, StepOrderError.
        Costs about a microsecond when nothing is due.
        """
        raise NotImplementedError  # replaced for each instance

    @contextlib.contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """Time that is not a step: `compile`, `startup`, `save`, `data`, or a name of your own.

        Raises Stop, before and after, when there is nothing left to wait for.
        """
        self.poll()
        token = self._writer.open_span(kind)
        try:
            yield
        finally:
            self._writer.close_span(token)
        self.poll()

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        """What this rank does together with the others: it stays a part of the step.

        Nothing depends on it but one number: on several hosts it tells which of them the others
        wait for. Mark all that waits for other ranks, or nothing.
        """
        begun_ns = now_ns()
        try:
            yield
        finally:
            page = self._writer.page
            page.store(Word.TOGETHER_NS, page.load(Word.TOGETHER_NS) + now_ns() - begun_ns)

    def poll(self) -> None:
        """A place where the script may be stopped inside long work, an evaluation say; raises Stop.

        Between two steps (no data drawn since `done`) a stop saves the last step right here. In the
        middle of a step it leaves only when nothing more will be saved. It also shows that the
        script has not hung.
        """
        self._boundary.poll()

    def save(self, tag: str | None = None, *, wait: bool = False) -> None:
        """Ask for a save at the next boundary; `tag` names and pins it.

        A tag is as a run's name, of letters, digits and `. _ + -`: what it must not hold becomes
        `-`, and a line says so.

        With a tag it is of the step under way, if no other save is (else a line says so): call it
        before `done`. `wait`: that boundary's `done` returns only when the save is durable (or has
        failed).
        """
        if tag is not None:
            given, tag = tag, fit_name(str(tag))
            if tag != given:
                say(f"The tag {shown(str(given))} is kept as {tag}: no other characters are taken")
            self._contents.tag(tag)
        if wait:
            self._boundary.wait_for_commit = True
        if (tag is None and not wait) or self._attachment.is_inert:
            self._writer.page.increment(Word.SAVE_ASKED)
        elif not self._boundary.ask_now() and tag is not None:
            say(f"The tag {tag!r} goes to a later step, because another save is under way")

    def best(self, metric: str, value: float, mode: str) -> bool:
        """If `value` is the best yet of `metric`, save at the next boundary, tagged `best`.

        Call it before `done`; `mode` is min (a loss) or max (an accuracy). Tells whether it is the
        best; NaN never is.
        """
        if mode not in ("min", "max"):
            raise ConfigurationError(f"run.best's mode is 'min' or 'max', not {mode!r}")
        value, known = float(value), self._contents.bests.get(metric)
        if math.isnan(value):
            return False
        if known is not None and (value >= known if mode == "min" else value <= known):
            return False
        self._contents.bests[metric] = value
        self.save(tag="best")
        return True

    def _disown(self, reason: str, right_until: int | None) -> NoReturn:
        """What was trained since that attempt may be wrong, and in this one it is: go back."""
        failure, to = DeclaredFailure(reason), None
        if self._stepped:
            to = resume_after(self._attachment, self._boundary.resume_step, right_until)
        self._attachment.give_up(failure, to, 0, said="")
        self._boundary.fail(failure)

    def fail(
        self, reason: str, *, rollback_to: int | str | None = None, skip_batches: int = 0
    ) -> NoReturn:
        """The run cannot go on (NaN, a broken invariant): end this attempt with this reason.

        The next one starts from the newest checkpoint; with `rollback_to` from the newest at or
        before that step (0: from scratch), or from the one with that tag, and what came after it is
        given up. `skip_batches`: from there, each `run.data` stream passes over so many batches.
        Any rank may call it, and several at once. Raises DeclaredFailure, which ends the process
        with code 1.
        """
        wanted = _checked_wish(rollback_to, skip_batches)
        failure = DeclaredFailure(str(reason))
        self._attachment.give_up(failure, *wanted)
        self._boundary.fail(failure)


def _checked_wish(rollback_to: object, skip_batches: object) -> tuple[int | str | None, int]:
    """What `fail` was asked for; raises ConfigurationError for what is not valid."""
    to: int | str | None = None
    try:
        if isinstance(rollback_to, str):
            to = check_tag(rollback_to)
        elif rollback_to is not None:
            to = operator.index(rollback_to)  # type: ignore[arg-type]
        skip = operator.index(skip_batches)  # type: ignore[arg-type]
    except TypeError:
        skip = -1
    if skip < 0:
        raise ConfigurationError(
            f"run.fail(rollback_to={rollback_to!r}, skip_batches={skip_batches!r}): give a step or "
            "a tag, and a whole number of batches, 0 or more"
        )
    return to, skip


def _close(close_span: Callable[[int, int], int], token: int) -> None:
    close_span(token, DATA_SPAN_MIN_NS)
