"""The agreement that counts equals the one that looks through all ranks, whatever they tell.

The old one knows no copies that end after their boundary. So it is the oracle where nothing uses
that: a copy is told alone, or right after its step was told as taken.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.plain_json import copied
from holdfast.core.save import agree
from holdfast.core.save import events as ev
from holdfast.core.save.agree import Agreement
from holdfast.core.save.ranks import Extremes, Ranks

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
import agree_model
import agree_oracle as oracle
from agree_oracle_state import Agreement as Plain

sys.path.pop(0)

MS = 10**6
HOLD_NS = 10_000 * MS
KINDS = (
    "progress", "progress", "progress", "snapped", "snapped", "snapped", "durable", "durable",
    "save", "copy", "stop", "ended", "gone", "failed", "committed", "beside", "commit failed",
    "not written", "moved", "tick", "due",
)  # fmt: skip


def event(what: str, state: Plain, at_ns: int, rank: int, off: int, is_odd: bool) -> ev.Event:
    """News that fits the state, or nearly does: of a step beside it, of another epoch."""
    known = state.ranks[rank]
    epoch = state.epoch + (off if is_odd else 0)
    step = max(0, state.step + (off if is_odd else 0))
    match what:
        case "progress":
            return ev.Progress(at_ns, rank, max(0, known.step + (off if is_odd else 1)))
        case "snapped":
            return ev.Snapped(at_ns, rank, epoch, step)
        case "durable":
            return ev.Durable(at_ns, rank, epoch, step)
        case "save":
            return ev.SaveDue(at_ns, "asked", 1 + abs(off), in_step=is_odd)
        case "copy":
            return ev.SaveDue(at_ns, "every 2 steps", 1 + abs(off), in_memory=True)
        case "stop":
            by_ns = at_ns + 1000 * off * MS if is_odd else None
            return ev.StopDue(at_ns, "a notice", by_ns, 1 + abs(off))
        case "moved":
            return ev.StopMoved(at_ns, at_ns + 1000 * off * MS if is_odd else None)
        case "ended":
            return ev.LoopEnded(at_ns, rank, known.step + (off if is_odd else 0))
        case "gone":
            return ev.RankGone(at_ns, rank)
        case "failed":
            return ev.SaveFailed(at_ns, rank, epoch, step)
        case "committed":
            return ev.Committed(at_ns, epoch, step)
        case "beside":
            return ev.DurableBeside(at_ns, step)
        case "commit failed":
            return ev.CommitFailed(at_ns, epoch, step, "disk full")
        case "not written":
            return ev.NotWritten(at_ns, epoch, step, "disk full", is_odd)
        case "due":
            return ev.Tick(oracle.wake_at_ns(state) or at_ns)
    return ev.Tick(at_ns)


class Both:
    """The two, told the same. `apart`: the one that counts first hears that a step is taken."""

    def __init__(self, ranks: int, *, apart: bool) -> None:
        self.apart = apart
        self.counted = Agreement.start(ranks, 0, hold_ns=HOLD_NS)
        self.plain = Plain.start(ranks, 0, hold_ns=HOLD_NS)

    def hear(self, what: ev.Event, free: tuple[int, ...]) -> None:
        before, old = agree_model.frozen(self.counted), self.counted
        self.counted = copied(old)
        self.counted.free_buffers = free
        said: tuple[ev.Action, ...] = ()
        if self.apart and isinstance(what, ev.Snapped):
            said = agree.step(self.counted, ev.Taken(what.at_ns, what.rank, what.epoch, what.step))
        said += agree.step(self.counted, what)
        self.plain, expected = oracle.step(self.plain._replace(free_buffers=free), what)
        assert said == expected, what
        assert agree_model.frozen(old) == before, "a copy goes its own way"
        self.compare()

    def compare(self) -> None:
        counted, plain = self.counted, self.plain
        assert not counted.waits, (
            "no rank waits for the others to take a step, of which plain knows"
        )
        scalars = tuple(getattr(plain, name, False) for name in agree_model.SCALARS)
        known = *scalars, tuple(map(tuple, plain.ranks)), agree_model.copies(counted.ranks)
        assert agree_model.frozen(counted) == known
        is_over = counted.phase is agree.AgreementPhase.OVER  # whatever is told then is left alone
        assert is_over or counted.ranks.copied == set(counted.ranks.answers), "no copy is under way"
        assert agree.wake_at_ns(counted) == oracle.wake_at_ns(plain)
        for name in ("fastest_step", "is_far", "is_held", "is_saved"):
            assert getattr(counted, name) == getattr(plain, name), name
        assert counted.ranks.extremes.least == plain.slowest_step
        check_counts(counted.ranks)


copying = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "copied", "failed", "gone", "ask"]),
        st.integers(0, 3),
        st.integers(1, 3),
        st.sampled_from([None, 0, 1]),
    ),
    max_size=40,
)


@given(copying)
def test_who_copies_into_which_buffer_is_counted(told):
    """By one plain list of what each rank was last heard to do."""
    agreement, last = Agreement.start(4, 0), {}
    for what, rank, epoch, buffer in told:
        match what:
            case "take":
                agree.step(agreement, ev.Taken(0, rank, epoch, 1, buffer))
                last[rank] = (epoch, buffer)
            case "copied":
                agree.step(agreement, ev.Snapped(0, rank, epoch, 1))
            case "failed":
                agree.step(agreement, ev.SaveFailed(0, rank, epoch, 1))
            case "gone":
                agreement.ranks.lose(rank)
                last[rank] = None
            case "ask":
                agreement.ranks.ask(5)
        if what in ("copied", "failed") and (last.get(rank) or (0, None))[0] == epoch:
            last[rank] = None
        if rank in agreement.ranks.gone:
            last[rank] = None
        now = {n: one for n, one in last.items() if one is not None and one[1] is not None}
        assert agreement.ranks.copying == now
        written = {buffer for _, buffer in now.values()}
        assert set(agreement.ranks.writers) == written
        assert agreement.ranks.unwritten((2, 1, 0)) == tuple(
            b for b in (2, 1, 0) if b not in written
        )


def check_counts(ranks: Ranks) -> None:
    """What is counted is what looking through all ranks finds."""
    every = range(len(ranks.steps))
    settled = {n for n in every if n in ranks.answers or n in ranks.ended}
    assert ranks.settled == settled
    early = {n for n, step in ranks.answers.items() if step < ranks.ordered} - ranks.ended
    assert ranks.early == early
    assert ranks.late == {n for n in every if ranks.steps[n] == ranks.ordered} - settled
    numbers = {step: ranks.steps.count(step) for step in ranks.steps}
    assert ranks.extremes == Extremes(numbers, min(ranks.steps), max(ranks.steps))


told = st.tuples(
    st.sampled_from(KINDS),
    st.integers(0, 4),
    st.integers(-2, 2),
    st.booleans(),
    st.sampled_from([(), (0,), (1, 2)]),
)


PROGRESS = ("progress", 0, 0, False, ())
ENDS_BEFORE_ITS_COPY = [
    *[PROGRESS] * 4,
    ("progress", 0, -2, True, ()),
    ("save", 0, 0, False, ()),
    ("ended", 1, 2, True, ()),
    ("snapped", 0, 0, False, ()),
]


@given(ranks=st.integers(1, 4), apart=st.booleans(), news=st.lists(told, max_size=60))
@example(ranks=2, apart=True, news=ENDS_BEFORE_ITS_COPY)
def test_what_is_said_and_known_is_the_same(ranks, apart, news):
    both, at_ns = Both(ranks, apart=apart), 0
    for what, rank, off, is_odd, free in news:
        at_ns += 300 * MS
        both.hear(event(what, both.plain, at_ns, rank % ranks, off, is_odd), free)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 40])
def test_random_schedules(ranks):
    """Long ones, in which little goes wrong: saves are ordered, answered, missed and committed."""
    phases = set()
    for seed in range(30):
        rng = random.Random(1000 * ranks + seed)
        both, at_ns = Both(ranks, apart=seed % 2 == 0), 0
        seldom = rng.choice([0.0, 0.1 / ranks, 0.02])
        buffers = rng.choice([(), (0, 1)])
        for _ in range(100 + 12 * ranks):
            at_ns += rng.randrange(100) * MS
            what, rank = likely(both.plain, rng)
            is_odd = rng.random() < seldom
            if is_odd:
                what, rank = rng.choice(KINDS), rng.randrange(ranks)
            both.hear(event(what, both.plain, at_ns, rank, rng.randint(-2, 2), is_odd), buffers)
            phases.add(both.plain.phase)
        end(both, rng, at_ns)
    assert phases == set(agree.AgreementPhase) - {agree.AgreementPhase.COPYING}, (
        "every phase is come to"
    )


def likely(state: Plain, rng: random.Random) -> tuple[str, int]:
    """What some rank, or who commits, does next."""
    if state.phase is agree.AgreementPhase.COMMITTING:
        return "committed", 0
    if state.phase in (agree.AgreementPhase.IDLE, agree.AgreementPhase.OVER) and rng.random() < 0.2:
        return rng.choice(["save", "copy"] if rng.random() < 0.98 else ["stop"]), 0
    rank = rng.randrange(len(state.ranks))
    known = state.ranks[rank]
    if (
        state.phase is agree.AgreementPhase.COLLECTING
        and known.answer is None
        and known.step >= state.step
    ):
        return rng.choice(["snapped", "snapped", "durable"]), rank
    if state.phase is agree.AgreementPhase.WRITING:
        waits = [n for n, one in enumerate(state.ranks) if not one.durable]
        if state.buffer is not None or not waits:
            return "committed", 0
        return "durable", rng.choice(waits)
    return "progress", rank


def end(both: Both, rng: random.Random, at_ns: int) -> None:
    """All loops end, in any order, and each answers what it is ordered."""
    for rank in rng.sample(range(len(both.plain.ranks)), len(both.plain.ranks)):
        both.hear(ev.LoopEnded(at_ns, rank, both.plain.fastest_step), ())
    for rank in range(len(both.plain.ranks)):
        step = both.plain.ranks[rank].step
        both.hear(ev.Durable(at_ns, rank, both.plain.epoch, step), ())
    both.hear(ev.CommitFailed(at_ns, both.plain.epoch, both.plain.step, "disk full"), ())
    for _ in range(4):
        both.hear(ev.Tick(oracle.wake_at_ns(both.plain) or at_ns), ())
