"""One run's journals, followed: where its time went, and how far its ranks are.

The first reading costs what the journals hold, later ones what has come since.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.core.ledger.account import Account
from holdfast.core.ledger.program import Basis
from holdfast.core.ledger.summary import RunSummary, Spent, Window, spent_of
from holdfast.errors import HoldfastError, JournalError
from holdfast.journal.attempts import Attempts, attempts, lineage
from holdfast.journal.lease import LeaseState, LeaseView, view
from holdfast.journal.live import live_journals
from holdfast.journal.rank_reports import error_of
from holdfast.journal.recorded import RecordedLedger
from holdfast.journal.store import RunFolder
from holdfast.runs.curves import Curve, curves
from holdfast.runs.state import is_held, last_sign_ns, state_of

if TYPE_CHECKING:
    from holdfast.snapshot.sets import SetInfo

COURSE_PARTS = 24
NO_LEASE = LeaseView(LeaseState.FREE, 0, None, None)


class RunReading:
    """Follows one run; `summary` reads what is new. Of one thread at a time."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.recorded = RecordedLedger(folder.path)
        self.known = Attempts((), ())
        self._errors: dict[int, str] = {}  # by attempt
        self.now_ns = 0  # of the last summary, on the run's clock
        self.lease = NO_LEASE
        self.newest_set: SetInfo | None = None  # that a restart could use, where sets were listed
        self.curves: tuple[Curve, ...] = ()  # as of the last summary

    def summary(
        self,
        windows: Iterable[Window],
        now_unix_ns: int | None = None,
        *,
        live: bool = True,
        sets: bool = True,
    ) -> RunSummary:
        """How the run stands now.

        `live`: its journals may be written on this host, and are then read there. `sets`: also look
        which checkpoint a restart would use.

        Raises nothing of what a run may hold: what cannot be read is a note.
        """
        now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
        notes: list[str] = []
        account = self._account(notes, live=live)
        known, lease = self.known, self.lease
        state, why = state_of(lease, known.newest, now_unix_ns, is_held=self.recorded.facts.is_held)
        saved_step = self._saved_step(notes) if sets else None
        self.curves = curves(self.recorded, self.now_ns) if account else ()
        notes += self.recorded.notes()
        basis = self.recorded.facts.program_basis()
        return RunSummary(
            name=self.folder.name,
            run_id=self.folder.identity.run_id,
            state=state,
            why=why,
            chips=account.chips if account else 0,
            attempts=len(known.records),
            step=self.step(),
            saved_step=saved_step,
            seen_unix_ns=last_sign_ns(known, lease),
            holder=str(lease.holder) if is_held(lease) and lease.holder else None,
            start_ns=account.start_ns if account else None,
            end_ns=account.end_ns if account else None,
            course=self.recorded.ledger.kept_shares(COURSE_PARTS, self.now_ns) if account else (),
            within=self._within(account, windows, basis) if account else {},
            notes=tuple(notes),
            metrics={one.name: float(one.kept.value[-1]) for one in self.curves if len(one.kept)},
            device=basis.told.device,
            peak_flops=basis.peak_flops,
            reached_flops=basis.told.reached.flops,
        )

    def step(self) -> int | None:
        """The highest step that all ranks of the newest attempt have come to; None: nobody says."""
        steps = [
            one.values.complete or one.values.step for one in self.recorded.facts.newest_ranks()
        ]
        return min(steps, default=None)

    def account_between(self, from_ns: int | None, total: Account) -> Account | None:
        """The account from a moment to the end of the time line; None: that was over before."""
        if from_ns is None or from_ns <= total.start_ns:
            return total
        if from_ns >= total.end_ns:
            return None
        return self.recorded.account(self.now_ns, total.end_ns - from_ns)

    def _account(self, notes: list[str], *, live: bool) -> Account | None:
        try:
            self.known = attempts(self.folder)
            notes += self.known.damage
            self.lease = view(self.folder)
        except HoldfastError as error:
            notes.append(str(error))
        try:
            if live:
                self.recorded.facts.live.update(live_journals(self.folder))
            self.recorded.refresh()
            facts = self.recorded.facts
            self.now_ns = max(facts.clock.now_ns(), facts.requested_ns or 0)
            return self.recorded.account(self.now_ns)
        except JournalError:
            return None  # nothing was recorded yet, or nothing that can be read: see its notes
        except (HoldfastError, OSError) as error:
            notes.append(str(error))
            return None

    def _within(self, total: Account, windows: Iterable[Window], basis: Basis) -> dict[str, Spent]:
        for one in total.disruptions:
            if one.attempt not in self._errors:  # an attempt that is over says nothing new
                self._errors[one.attempt] = error_of(self.folder, one.attempt, one.cause)
        found: dict[str, Spent] = {}
        for name, from_ns in windows:
            account = self.account_between(from_ns, total)
            if account is not None:
                found[name] = spent_of(account, basis, self._errors)
        return found

    def _saved_step(self, notes: list[str]) -> int | None:
        """The step of the newest checkpoint that a restart could use."""
        from holdfast.snapshot.sets import newest_sound

        chain = lineage(self.known.records)
        try:
            self.newest_set, damage = newest_sound(self.folder.ckpt_dir, chain)
        except HoldfastError as error:
            notes.append(str(error))
            return None
        notes += [f"checkpoint {name}: {why}" for name, why in damage.items()]
        return None if self.newest_set is None else self.newest_set.step
