"""How an attempt ended: what comes in about it, and the verdict when nothing of it is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.core import events as ev
from holdfast.core import exits
from holdfast.core.hang.watch import HangVerdict
from holdfast.core.run import rollback
from holdfast.core.run.stopping import StopIntent
from holdfast.errors import EXIT_CONFIGURATION, EXIT_UNAVAILABLE, EXIT_USER_FAILURE

UNAVAILABLE = (
    exits.ExitCause.STORE_UNAVAILABLE,
    exits.ExitCause.BAD_CHECKPOINT,
    exits.ExitCause.NOT_FETCHED,
)


class EndVerdict(NamedTuple):
    """Why the attempt ended, in a sentence as well, and the rank that it is about."""

    cause: exits.ExitCause
    words: str
    rank: int | None
    signature: str  # what two ends must share to be the same failure
    is_from_script: bool  # as of `exits.is_from_script`


@dataclass(slots=True)
class EndEvidence:
    """What is known of one attempt's end so far."""

    by_rank: dict[int, ev.RankExited] = field(default_factory=dict)
    plain: list[ev.RankExited] = field(default_factory=list)  # done, it seems: without a session
    host_lost: bool = False
    is_faulty: bool = False  # a rank was lost that nobody had told to leave
    gone_back: rollback.Wish | None = None  # for which the attempt was ended
    restarts_for: ev.RestartAsked | None = None  # what the next attempt is to have

    def verdict(self, hung: HangVerdict | None, stop: StopIntent | None, saved: str) -> EndVerdict:
        """The first of these that is so: host lost, gone back, hung, broken, stopped."""
        cause, words, rank = self._cause(hung, stop, saved)
        if hung is not None:
            return EndVerdict(cause, words, rank, hung.signature, is_from_script=False)
        root = self.by_rank.get(rank) if rank is not None else None
        if root is None:
            return EndVerdict(cause, words, rank, cause.value, is_from_script=False)
        signature = exits.signature(cause, root.exit)
        return EndVerdict(cause, words, rank, signature, exits.is_from_script(cause, root.exit))

    def _cause(
        self, hung: HangVerdict | None, stop: StopIntent | None, saved: str
    ) -> tuple[exits.ExitCause, str, int | None]:
        if self.host_lost:
            return exits.ExitCause.HOST_LOST, "processes of the attempt survive SIGKILL", None
        if self.gone_back is not None:
            return exits.ExitCause.ROLLED_BACK, rollback.wish_words(self.gone_back), None
        if self.restarts_for is not None and stop is None:
            of_notice = self.restarts_for.is_notice
            kind = exits.ExitCause.PREEMPTED if of_notice else exits.ExitCause.STOPPED
            return kind, self.restarts_for.words, None
        if hung is not None:
            return exits.ExitCause.HANG, hung.words, hung.rank
        in_order = sorted(self.by_rank.values(), key=lambda e: (e.died_at_ns, e.rank))
        cause, words, rank = exits.root_cause([(e.rank, e.exit) for e in in_order])
        if stop is not None and not (cause is exits.ExitCause.DONE or self.is_faulty):
            kind = exits.ExitCause.PREEMPTED if stop.notice else exits.ExitCause.STOPPED
            return kind, f"{stop.source}: stopped; {saved}", None
        return cause, words, rank


def exit_code(cause: exits.ExitCause) -> int:
    """What a supervisor that gives up after such an end ends with."""
    if cause is exits.ExitCause.CONFIGURATION:
        return EXIT_CONFIGURATION
    if cause in UNAVAILABLE:
        return EXIT_UNAVAILABLE
    return EXIT_USER_FAILURE
