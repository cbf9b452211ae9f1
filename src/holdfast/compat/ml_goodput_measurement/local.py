"""The log that a recorder writes to without a cloud: a run in the local store.

Each process that records is an attempt of the run, and so is each further start of the job in one
process. A step costs a few stores into mapped memory, and survives whatever ends the process.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.compat.ml_goodput_measurement import clock, keys, kinds
from holdfast.compat.ml_goodput_measurement.events import (
    SKEW_NS,
    checkpoint_of,
    event_of,
    slices_of,
    told_behind,
)
from holdfast.config import inside_claimed, rank_environment, run_store
from holdfast.core.ledger.kinds import RESTORE
from holdfast.errors import ConfigurationError, HoldfastError, UnknownRun
from holdfast.journal.names import fit_name

if TYPE_CHECKING:
    from holdfast.compat.ml_goodput_measurement.stored import Stored
    from holdfast.compat.ml_goodput_measurement.tape import AttemptTape
    from holdfast.config.rank import RankEnvironment
    from holdfast.journal.carrier import Carrier
    from holdfast.journal.store import RunFolder

BEAT_S = 15.0
CARRY_LIMIT_S = 60.0  # for the last records, to an object store
BUSY_S = 0.2  # a signal handler that comes in the middle of a record waits no longer
_FAR = 100_000  # steps passed over at once are run ones up to here; beyond, another count began

logger = logging.getLogger(__name__)


class LocalLog:
    """One job's log. Recording never raises; what cannot be recorded is said once."""

    _all: ClassVar[dict[tuple[str, str], LocalLog]] = {}
    _making: ClassVar[threading.Lock] = threading.Lock()

    record_step: Callable[[int], None]
    """`record_step(step)`: that step of the job begins now. The hot path; from any thread."""

    def __init__(
        self,
        job_name: str,
        log_name: str = "",
        max_logs_retention_period: datetime.timedelta | None = None,
        **_: Any,
    ) -> None:
        """Touches nothing. The other arguments are a cloud logger's, and mean nothing here."""
        del log_name, max_logs_retention_period
        self.job_name = job_name
        self._rank = _own_rank()
        self.store = run_store(None) if self._rank is None else self._rank.store
        self._name = run_name(job_name) if self._rank is None else self._rank.run
        self._tape: AttemptTape | None = None
        self._busy = threading.Lock()
        self._late: deque[Callable[[], None]] = deque()
        self._chips = 1
        self._has_start = False
        self._is_inert = False
        self._carrier: Carrier | None = None
        self.reading = threading.RLock()
        self._books: Stored | None = None
        self._beating: threading.Thread | None = None
        self._wake = threading.Event()
        self.record_step = self._record_step
        _live.add(self)

    @classmethod
    def of(cls, job_name: str, log_name: str = "") -> LocalLog:
        """The log of that job in the configured store; a process has one of each."""
        with cls._making:
            key = run_store(None), job_name
            if key not in cls._all:
                cls._all[key] = cls(job_name, log_name)
            return cls._all[key]

    # --- Reading -----------------------------------------------------------------------------

    def books(self) -> Stored:
        """The job's books as of now. Raises ValueError when the store has no such run.

        They are one for all who ask: call this, and ask them, with `reading` held.
        """
        if self._books is None:
            from holdfast.compat.ml_goodput_measurement.stored import Stored
            from holdfast.journal.store import RunStore

            try:
                folder = RunStore.at(self.store).get(self._name)
            except UnknownRun as problem:
                raise ValueError(
                    f"nothing is recorded of job {self.job_name!r}, so its goodput cannot be "
                    f"told: {problem}"
                ) from None
            self._books = Stored(folder)
        self._books.refresh()
        return self._books

    def read_cloud_logging_entries(self, *_: Any, **__: Any) -> tuple[list[Any], None]:
        """Nothing: a run's journals are asked by `books`."""
        return [], None

    def flush(self) -> None:
        """What was recorded can be read at once; what waits for another thread is written."""
        self._do(lambda: None)

    # --- Recording ---------------------------------------------------------------------------

    def now_ns(self) -> int:
        """Now, as what is recorded has it: unix time that nobody sets while a job is recorded."""
        tape = self._tape
        return clock.unix_ns() if tape is None else tape.now_ns()

    def write_cloud_logging_entry(self, entry: Mapping[str, Any] | None) -> None:
        """Record what an entry of the library's log says. Entries of another job are ignored."""
        if entry is None or entry.get(keys.JOB_NAME, self.job_name) != self.job_name:
            return
        self._do(lambda: self._write(entry))

    def _do(self, action: Callable[[], None]) -> None:
        """Do it while nobody else records; what cannot wait so long is done by who comes next."""
        if self._is_inert:
            return
        if not self._busy.acquire(timeout=BUSY_S):
            self._late.append(action)
            self._wake.set()
            return
        try:
            while self._late:
                self._late.popleft()()
            action()
        except (HoldfastError, OSError, ValueError, TypeError, KeyError, OverflowError) as problem:
            self._give_up(problem)
        finally:
            self._busy.release()

    def _give_up(self, problem: Exception) -> None:
        if self._tape is None:
            from holdfast.compat.ml_goodput_measurement.tape import AttemptTape

            self._tape = AttemptTape(None, clock.unix_ns())
        self._trouble(f"not everything is recorded: {problem}")

    def _trouble(self, words: object) -> None:
        logger.warning("goodput of job %s: %s", self.job_name, words)

    def _record_step(self, step: int) -> None:
        """The long way: the first step of an attempt, or one that does not follow the last."""
        at_ns = self.now_ns()
        self._do(lambda: self._take_step(int(step) + 1, at_ns))

    def _shorten(self, tape: AttemptTape) -> None:
        """From here on a step that follows the last goes straight to the journal."""
        busy, record = self._busy, tape.writer.record_step
        long_way = self._record_step

        def record_step(step: int) -> None:
            # By the journal's numbers `step` is the one that ends now.
            if tape.step == step and not tape.events and busy.acquire(False):
                try:
                    tape.step = step + 1
                    record(step)
                finally:
                    busy.release()
            else:
                long_way(step)

        self.record_step = record_step

    def _write(self, entry: Mapping[str, Any]) -> None:
        if keys.STEP_START in entry:
            self._take_step(int(entry[keys.STEP]) + 1, clock.ns_of(entry[keys.STEP_START]))
        elif keys.JOB_START in entry:
            self._start(clock.ns_of(entry[keys.JOB_START]))
        elif keys.JOB_END in entry:
            at_ns = clock.ns_of(entry[keys.JOB_END])
            self._here(at_ns).end(at_ns)
            self.record_step = self._record_step
        elif keys.SLICES_AT in entry:
            self._take_slices(entry)
        elif (event := event_of(entry)) is not None:
            self._take_event(*event)
        elif (checkpoint := checkpoint_of(entry)) is not None:
            self._take_checkpoint(*checkpoint)

    # --- Attempts ----------------------------------------------------------------------------

    def _here(self, at_ns: int) -> AttemptTape:
        if self._tape is None:
            return self._begin(at_ns)
        return self._tape

    def _begin_as_rank(self, rank: RankEnvironment, at_ns: int) -> AttemptTape:
        """The run and its attempt are there: a start in this process begins no other."""
        from holdfast.compat.ml_goodput_measurement.rank_tape import RankTape
        from holdfast.journal.store import RunStore

        if self._tape is None:
            folder = RunStore.at(self.store).get(self._name)
            self._tape = RankTape(rank, folder, at_ns, self._leave_steps)
        elif self._tape.step is not None:
            self._tape.end_steps(self._tape.on_tape(at_ns))
        self._tape.closed = self._has_start = False
        return self._tape

    def _leave_steps(self) -> None:
        """The steps are a session's: it tells them itself."""
        if self._tape is not None:
            self._tape.tells_steps, self._tape.step = False, None
        self.record_step = _pass_over

    def _begin(self, at_ns: int) -> AttemptTape:
        if self._rank is not None:
            return self._begin_as_rank(self._rank, at_ns)
        # Not before something is recorded: what an import costs is paid by every process.
        from holdfast.compat.ml_goodput_measurement.tape import AttemptTape
        from holdfast.journal.carrier import Carrier
        from holdfast.journal.store import RunStore

        before, self._tape = self._tape, None
        if before is not None:
            before.finish()
        self.record_step = self._record_step
        folder = RunStore.at(self.store).open(self._name, requested_unix_ns=at_ns)
        if self._carrier is None:
            self._carrier = Carrier(folder, self._trouble)
        behind_ns = self._behind_ns(folder, at_ns)
        tape = self._tape = AttemptTape(folder, at_ns, before)
        self._has_start = False
        if behind_ns:
            tape.move(behind_ns)
        if behind_ns > SKEW_NS:
            self._trouble(told_behind(tape.number, behind_ns))
        tape.begin(at_ns, self._chips)
        self._correct_last_end(folder, tape)
        tape.beat()
        if self._beating is None and tape.is_live:
            thread = threading.Thread(target=_beat, args=(weakref.ref(self), self._wake))
            thread.daemon, thread.name = True, "holdfast-goodput"
            self._beating = thread
            thread.start()
        return tape

    def _start(self, at_ns: int) -> None:
        tape = self._tape
        if tape is None or tape.closed or self._has_start:
            tape = self._begin(at_ns)
        else:
            tape.begin(at_ns, self._chips)  # its first events came before its start
        self._has_start = True

    def _behind_ns(self, folder: RunFolder, at_ns: int) -> int:
        """How far an attempt that begins then must be moved to come after those before it.

        Of a job that is told afterwards the order counts, where a host's clock contradicts it; what
        is recorded as it happens goes by the store's clock.
        """
        from holdfast.compat.ml_goodput_measurement.tape import is_of_this_boot

        if is_of_this_boot(at_ns):
            return 0
        return max(0, self._earlier(folder).ledger.last_ns() - at_ns)

    def _correct_last_end(self, folder: RunFolder, tape: AttemptTape) -> None:
        """An attempt that said it was done, and is followed by another, was not."""
        if tape.number == 0:
            return
        last = self._earlier(folder).lives.get(tape.number - 1)
        if last is not None and last.fact is not None and last.fact.cause == "done":
            at_ns = tape.on_tape(last.fact.end_ns or 0)
            tape.fact(fact="attempt_end", attempt=tape.number - 1, at_ns=at_ns, cause="restarted")

    def _earlier(self, folder: RunFolder) -> Stored:
        from holdfast.compat.ml_goodput_measurement.stored import Stored

        stored = Stored(folder)
        stored.refresh()
        return stored

    # --- Steps and events --------------------------------------------------------------------

    def _take_step(self, step: int, at_ns: int) -> None:
        tape = self._here(at_ns)
        if tape.closed:
            tape = self._begin(at_ns)
        if not tape.tells_steps:
            self._leave_steps()
            return
        tape.leave_open()
        if tape.step is None:
            tape.begin_steps(step, at_ns, self._source(tape, step))
        elif tape.step < step <= tape.step + _FAR:
            tape.record_step(step, at_ns)
        else:
            tape.writer.end_steps(tape.on_tape(at_ns))
            tape.begin_steps(step, at_ns, None)
        if tape.is_live:
            self._shorten(tape)

    def _source(self, tape: AttemptTape, step: int) -> int | None:
        """The attempt that the first step resumes; None: none, it is from scratch."""
        if tape.folder is None or tape.number == 0 or step <= 1:
            return None
        lives = self._earlier(tape.folder).lives
        numbers = (n for n in sorted(lives, reverse=True) if n < tape.number)
        return next((n for n in numbers if lives[n].has(step - 1)), None)

    def _take_event(self, kind: str, at_ns: int, begins: bool) -> None:
        tape = self._here(at_ns)
        if tape.closed:
            return
        if begins:
            tape.open(kind, at_ns)
            return
        in_reinit = kind in (kinds.TPU_INIT, kinds.PREPARATION) and tape.is_open(
            kinds.ELASTIC_REINIT
        )
        tape.close(kind, at_ns, keep=not in_reinit)

    def _take_checkpoint(self, kind: str, start_ns: int | None, length_ns: int) -> None:
        now_ns = self.now_ns()
        tape = self._here(now_ns)
        start_ns = now_ns - length_ns if start_ns is None else start_ns
        kind = kinds.CHECKPOINT_RESTORE if kind == RESTORE else kind
        tape.span(kind, tape.on_tape(start_ns), tape.on_tape(start_ns + length_ns))

    def _take_slices(self, entry: Mapping[str, Any]) -> None:
        slices = slices_of(entry)
        at_ns = clock.ns_of(slices.at_s)
        tape = self._here(at_ns)
        if slices.total > self._chips:
            self._chips = slices.total
            tape.begin(at_ns, self._chips)
        tape.fact(
            fact="capacity",
            at_ns=tape.on_tape(at_ns),
            chips=min(slices.active, slices.total) * self._chips // slices.total,
            active=slices.active,
            available=slices.available,
            total=slices.total,
            unix_ns=at_ns,
        )

    # --- Life --------------------------------------------------------------------------------

    def beat(self) -> None:
        """A sign of life, and whatever others left to be written."""
        if self._late:
            self._do(lambda: None)
        tape = self._tape
        if tape is not None:
            try:
                tape.beat()
            except (HoldfastError, OSError) as problem:
                self._trouble(problem)

    def close(self) -> None:
        """Let go of the files; the next record begins another attempt."""

        def finish() -> None:
            tape, self._tape = self._tape, None
            self.record_step = self._record_step
            if tape is not None:
                tape.finish()

        self._do(finish)
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.close(CARRY_LIMIT_S)

    def after_fork(self) -> None:
        """In a forked child: what was being recorded is its parent's. A child may begin anew."""
        self._is_inert = self._tape is not None or self._rank is not None
        self._busy, self.reading = threading.Lock(), threading.RLock()
        self._late.clear()
        self._carrier = self._beating = self._books = None
        self._wake = threading.Event()
        self.record_step = self._record_step


def _own_rank() -> RankEnvironment | None:
    """The place of this process in a supervised run; None: it has none, or is a rank's child."""
    with contextlib.suppress(ConfigurationError):  # whoever trains here says it
        return None if inside_claimed() else rank_environment()
    return None


def _pass_over(step: int) -> None:
    """A step that somebody else tells."""


_live: weakref.WeakSet[LocalLog] = weakref.WeakSet()


def run_name(job_name: str) -> str:
    """The run that a job is: its name, with `-` for what a run's name must not hold."""
    return fit_name(job_name)


def _beat(log_of: Callable[[], LocalLog | None], wake: threading.Event) -> None:
    while True:
        wake.wait(BEAT_S)
        wake.clear()
        log = log_of()
        if log is None:
            return
        log.beat()
        del log


def _after_fork() -> None:
    LocalLog._making = threading.Lock()
    for log in list(_live):
        log.after_fork()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    for log in list(_live):
        log.close()
