"""The core of a controller: what an agreed save and single events cost it, by the ranks.

    python bench/core.py [--ranks 10 100 1000 10000] [--rounds 5]

An agreed save is all that the run's machine is told of one: it is asked for, each rank publishes
the ordered step, has copied it, has made it durable; the manifest is written. With a memory tier
the set is sealed and flushed instead. Where copies end later, each rank publishes the next step
between taking the ordered one and having copied it. A report is one rank's next step while nothing
is under way, when the policies are asked whether a save is due. Each of the other events is told to
as many copies of a machine whose ranks run: none of them should cost more where there are more.

Only `RunMachine.handle` is measured, as processor time: what happens is made up beforehand. One
machine is used for all rounds, as one controller sees save after save.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Iterable, Iterator

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.notices.board import Notice, NoticeAction
from holdfast.core.run.machine import RunMachine, RunPolicy, Timer
from holdfast.core.save import events as news
from holdfast.core.save.policy import EverySeconds
from holdfast.core.save.word import Order, buffer_of

MS, SECOND = 10**6, 10**9
REPORTS = 1000  # at least so many for one figure
ROUNDS = 25  # of one event


class Told:
    """A run of so many ranks that step together, a step a second, and what its machine is told."""

    def __init__(self, ranks: int, *, in_memory: bool, is_later: bool = False) -> None:
        self.ranks, self.in_memory, self.is_later = ranks, in_memory, is_later
        hourly = EverySeconds(3600)  # it is asked, and nothing is due
        self.machine = RunMachine(RunPolicy(ranks, hourly, hourly))
        self.now_ns = self.step = 0
        resume = ev.Resume(None, 0, None)
        self.tell([ev.Opened(0, 0), ev.Chosen(0, resume, "from scratch"), ev.Launched(0, 0)])
        self.tell(ev.Joined(0, 0, rank) for rank in range(ranks))
        if in_memory:
            self.tell(ev.BuffersReady(0, 0, rank, 3) for rank in range(ranks))
        self.tell(self.steps())

    def tell(self, events: Iterable[ev.Event]) -> list[act.Action]:
        """What it answers."""
        answers: list[act.Action] = []
        for event in list(events):
            answers += self.machine.handle(event)
        return answers

    def heard(self, what: news.Event) -> ev.Event:
        return ev.Heard(self.now_ns, 0, what)

    def steps(self) -> Iterator[ev.Event]:
        """Every rank's next step."""
        self.step += 1
        self.now_ns += SECOND
        for rank in range(self.ranks):
            yield self.heard(news.Progress(self.now_ns, rank, self.step))

    def save(self) -> float:
        """Seconds of an agreed save of the step after the next."""
        self.tell(self.steps())
        began_s = time.process_time()
        answers = self.machine.handle(ev.SaveAsked(self.now_ns, "for the measurement"))
        spent_s = time.process_time() - began_s
        (order,) = (a.what for a in answers if isinstance(a, act.CarryOut))
        assert isinstance(order, news.PublishOrder)
        assert order.step == self.step + 1
        buffer = buffer_of(order.flags)
        of = (order.epoch, order.step)
        copied: list[ev.Event] = []
        for rank, stepped in enumerate(list(self.steps())):
            taken = news.Taken(self.now_ns, rank, *of, buffer)
            snap = news.Snapped(self.now_ns, rank, *of)
            copied += [stepped, self.heard(taken if self.is_later else snap)]
        if self.is_later:
            copied += self.steps()
            copied += [self.heard(news.Snapped(self.now_ns, n, *of)) for n in range(self.ranks)]
        if buffer is None:
            written = [self.heard(news.Durable(self.now_ns, n, *of)) for n in range(self.ranks)]
            done = self.heard(news.Committed(self.now_ns, *of))
            told = [*copied, *written, done]
        else:
            flushed = [ev.Flushed(self.now_ns, 0, n, *of, self.ranks) for n in range(self.ranks)]
            sealed = ev.Sealed(self.now_ns, 0, *of, buffer)
            told = [*copied, sealed, *flushed, ev.FlushCommitted(self.now_ns, 0, *of)]
        handle, answers = self.machine.handle, ()
        began_s = time.process_time()
        for event in told:
            answers = handle(event)
        spent_s += time.process_time() - began_s
        verdicts = [a.what for a in answers if isinstance(a, act.CarryOut)]
        assert any(isinstance(v, news.PublishVerdict) and v.flags & Order.COMMITTED
                   for v in verdicts), answers  # fmt: skip
        return spent_s

    def event(self, event: ev.Event, rounds: int) -> list[float]:
        """Seconds of it, told to each of so many copies."""
        spent: list[float] = []
        for _ in range(rounds):
            machine = self.machine.copy()
            began_s = time.perf_counter()  # too short for the processor's clock
            machine.handle(event)
            spent.append(time.perf_counter() - began_s)
        return spent

    def events(self) -> dict[str, ev.Event]:
        """One of each kind that the machine may be told of next."""
        at_ns, last = self.now_ns + 1, self.ranks - 1
        killed, done = Exit(signal=9), Exit(code=0, finished=True)
        return {
            "a rank shows itself": ev.Joined(at_ns, 0, last),
            "a rank is done": ev.RankExited(at_ns, 0, last, at_ns, done),
            "a rank is killed": ev.RankExited(at_ns, 0, last, at_ns, killed),
            "a notice": ev.Noticed(at_ns, Notice("a source", NoticeAction.TERMINATE, at_ns)),
            "a timer": ev.TimerFired(at_ns, Timer.SAVES),
            "a save is asked for": ev.SaveAsked(at_ns, "for the measurement"),
            "a stop is asked for": ev.StopAsked(at_ns, "somebody", None, notice=False),
        }

    def report(self) -> float:
        """Seconds of one progress report, of as many as there are ranks and then some."""
        told: list[ev.Event] = []
        while len(told) < REPORTS:
            told += self.steps()
        handle = self.machine.handle
        began_s = time.process_time()
        for event in told:
            handle(event)
        return (time.process_time() - began_s) / len(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {load:.1f}, "
          f"{options.rounds} rounds: median (least … most)\n")  # fmt: skip
    for ranks in options.ranks:
        for words, in_memory, is_later in (
            ("without a memory tier", False, False),
            ("with a memory tier", True, False),
            ("with copies that end later", True, True),
        ):
            told = Told(ranks, in_memory=in_memory, is_later=is_later)
            saves = [told.save() for _ in range(options.rounds)]
            reports = [Told(ranks, in_memory=in_memory).report() for _ in range(options.rounds)]
            print(
                f"{ranks:,} ranks, {words}: an agreed save {spread(saves, 1e3)} ms, "
                f"a report {spread(reports, 1e6)} µs",
                flush=True,
            )

    print()
    for ranks in options.ranks:
        told = Told(ranks, in_memory=False)
        told.tell([*told.steps(), *told.steps()])
        events = told.events().items()
        took = [f"{name} {spread(told.event(one, ROUNDS), 1e6)}" for name, one in events]
        print(f"{ranks:,} ranks, µs: {'; '.join(took)}", flush=True)


def spread(seconds: list[float], scale: float) -> str:
    middle, least, most = statistics.median(seconds), min(seconds), max(seconds)
    return f"{middle * scale:,.2f} ({least * scale:,.2f} … {most * scale:,.2f})"


if __name__ == "__main__":
    main()
