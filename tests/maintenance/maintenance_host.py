"""Plays a story: a run and a host daemon that hear of it by the real sources, in virtual time.

The listener, the sources and what they speak are the package's own; so are the run's machine, with
the virtual ranks and the store of `holdfast.sim.virtual`, and the host daemon's.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "scenarios"))
sys.path.insert(0, str(Path(__file__).parent))
from maintenance_story import SLOTS, Event, Fault, Job, Step, Story, tellings
from virtual_agent import VirtualAgent
from virtual_net import VirtualLoop
from virtual_services import (
    TPU_NODE,
    VirtualAws,
    VirtualAzure,
    VirtualGce,
    VirtualKubernetes,
    VirtualSlurm,
    virtual_tpu,
)
from watch import Watch

sys.path.pop(0)
sys.path.pop(0)

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.notices.board import Notice
from holdfast.core.notices.plan import NoticePolicy, OnNotice
from holdfast.core.run.machine import RunPolicy
from holdfast.core.save import policy as saves
from holdfast.notices.found import SERVICE_ACCOUNT
from holdfast.notices.listener import Listener
from holdfast.notices.protocol import Clocks, SourceSurroundings
from holdfast.notices.registry import wanted
from holdfast.sim.clock import MS, SECOND
from holdfast.sim.virtual.loop import Source
from holdfast.sim.virtual.shape import Shape
from holdfast.sim.virtual.world import VirtualWorld

HAND_OVERS = 40
UNIX_S = 1_800_000_000  # of the vendors' calendar when the clock begins
SERVICES: dict[str, Callable[..., Any]] = {
    "aws": VirtualAws,
    "azure": VirtualAzure,
    "gce": VirtualGce,
    "kubernetes": VirtualKubernetes,
}


@dataclass(frozen=True)
class Taken:
    """The host at the moment when it was taken: steps done, and the newest that is durable."""

    at_ns: int
    done: int
    saved: int


class Commits(Watch):
    """What must be true at every event, and when sets became durable."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[tuple[int, int]] = []

    def commits(self, world: VirtualWorld, attempt: int, step: int) -> None:
        super().commits(world, attempt, step)
        self.times.append((world.now_ns, step))


class Host:
    """One story's, from its beginning to its end."""

    def __init__(self, story: Story, loop: VirtualLoop, folder: Path) -> None:
        self.story, self.loop, self.clock = story, loop, loop.clock
        self.began_ns = self.clock.now_ns
        self.folder = folder
        self.heard: list[Notice] = []
        self.heard_ns: list[int] = []
        self.said: list[tuple[int, str, str]] = []
        self.warned: list[tuple[int, str]] = []  # by the run, upon notices
        self.stop_ns: int | None = None  # when the run decided to leave
        self.taken: Taken | None = None
        self.truths: dict[str, list[tuple[int, str]]] = {}
        self._rng = random.Random(story.seed)
        self.shape = Shape(
            ranks=story.ranks,
            until=10**6,
            step_ns=(round(story.step_s * SECOND),),
            copy_ns=20 * MS,
            write_ns=round(story.write_s * SECOND),
            flush_ns=round(story.write_s * SECOND / story.ranks),
            buffers=story.buffers,
        )
        self.watch = Commits()
        self.world = VirtualWorld(
            self.shape, self._policy(), clock=self.clock, watch=self.watch, tell=self._told
        )
        self.agent = VirtualAgent(self.clock, self._rng, round(story.grace_s * SECOND))
        self.services = {name: self._service(name) for name in story.sources}
        self._listener: Listener | None = None

    def at(self, seconds: float) -> int:
        """That moment of the story on the clock."""
        return self.began_ns + round(seconds * SECOND)

    # --- what there is ----------------------------------------------------------------------

    def _policy(self) -> RunPolicy:
        story = self.story
        in_memory = saves.EverySteps(max(1, story.save_every // 4))
        return RunPolicy(
            story.ranks,
            saves.EverySteps(story.save_every),
            save_in_memory=in_memory if story.buffers else saves.Never(),
            notice=NoticePolicy(OnNotice.STAY if story.stays else OnNotice.RELEASE),
        )

    def _service(self, name: str) -> Any:
        if name in ("file", "signal"):
            return None
        if name == "slurm":
            made: Any = VirtualSlurm(self.folder)
        else:
            made = (virtual_tpu() if name == "tpu" else SERVICES[name])()
        # Slurm's and Cloud TPU's answers have no date: their hosts keep one calendar.
        skew_s = self.story.skew_s if name == "tpu" else 0
        made.open(self.loop, lambda: UNIX_S + self.clock.now_ns / SECOND + skew_s)
        if name == "kubernetes":
            self._token("first")
        return made

    def _token(self, token: str) -> None:
        place = self.folder / SERVICE_ACCOUNT.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        (place / "token").write_text(token)

    def _clocks(self) -> Clocks:
        now_ns = self.clock.now_ns
        return Clocks(now_ns, UNIX_S * SECOND + now_ns + round(self.story.skew_s * SECOND))

    def _text(self) -> str:
        options = {
            "slurm": lambda it: it.path,
            "tpu": lambda it: f"{TPU_NODE}@{it.endpoint}",
            "file": lambda _: self.folder / "notice",
            "signal": lambda _: f"USR1={SLOTS['signal.usr1'].lead_s:g}",
        }
        url = lambda it: it.url  # noqa: E731
        return ",".join(
            f"{name}:{options.get(name, url)(made)}" for name, made in self.services.items()
        )

    # --- the play ---------------------------------------------------------------------------

    async def play(self) -> None:
        """Until the story is over."""
        variables = {
            "SLURM_JOB_ID": "7",
            "SLURMD_NODENAME": "n1",
            "POD_NAMESPACE": "ml",
            "POD_NAME": "trainer-0",
        }
        around = SourceSurroundings(variables, self.folder)
        self._listener = Listener(
            wanted(self._text(), around),
            around,
            clock=self._clocks,
            heard=self._hear,
            say=lambda level, words: self.said.append((self.clock.now_ns, level, words)),
            grace_ns=30 * SECOND,
            jitter=self._rng.random,
        )
        listening = self.loop.create_task(self._listener._main())
        self._set_the_stage()
        self.world.open()
        await asyncio.sleep(self.story.horizon_s)
        self._listener.close(0)
        await listening
        for made in self.services.values():
            if made is not None:
                made.close()
        self.truths = {n: made.truths for n, made in self.services.items() if made is not None}
        self.steps_done = self.world.step
        if not self.world.is_over:
            self.world.die(with_host=True)
        self.agent.is_up = False

    def _set_the_stage(self) -> None:
        later = lambda at_s, do: self.clock.later(self.at(at_s) - self.clock.now_ns, do)  # noqa: E731
        for event, step, slot, lag_s in tellings(self.story):
            later(step.at_s + lag_s, lambda e=event, s=step, w=slot: self._tell(e, s, w))
        for fault in self.story.faults:
            later(fault.at_s, lambda f=fault: self._fail(f))
            later(fault.until_s, lambda f=fault: self._mend(f))
        for job in self.story.jobs:
            later(job.at_s, lambda j=job: self._come(j))
        for at_s in self.story.agent_ends_s:
            later(at_s, self._kill_agent)
        if self.story.ends_s is not None:
            later(self.story.ends_s, self._take)

    def _tell(self, event: Event, step: Step, slot: str) -> None:
        """A service says so now; the seconds that are left are counted from here."""
        name, row = slot.partition(".")[0], SLOTS[slot]
        templates = {"gone": row.gone, "started": row.started}.get(step.what, row.new)
        end_s = step.at_s - 5 if step.what == "late" else step.end_s or 0.0
        left_s = self.at(end_s) / SECOND - self.clock.now_ns / SECOND
        unix_s = UNIX_S + self.at(end_s) / SECOND
        if name in ("slurm", "tpu", "file"):
            unix_s += self.story.skew_s
        words = [
            one.format_map(
                {
                    "id": event.name,
                    "in": f"{left_s:.3f}",
                    "at": datetime.fromtimestamp(int(unix_s), UTC).isoformat(),
                    "unix": str(int(unix_s)),
                }
            ).split()
            for one in templates
        ]
        for line in words:
            self._do(name, line)

    def _do(self, name: str, words: list[str]) -> None:
        if name == "file":
            self._write(words)
        elif name == "signal":
            assert self._listener is not None
            self._listener.signal(10)
        else:
            self.services[name].do(*words)

    def _write(self, words: list[str]) -> None:
        path = self.folder / "notice"
        if words[0] == "remove":
            path.unlink(missing_ok=True)
            return
        text = words[1] if not words[1].startswith("-") else "0"
        path.write_text(text)
        unix_ns = self._clocks().unix_ns
        os.utime(path, ns=(unix_ns, unix_ns))

    def _fail(self, fault: Fault) -> None:
        made, words = self.services[fault.source], fault.words.split()
        if words == ["rotate"] and fault.source == "kubernetes":
            made.do("rotate", "second")
            made.do("end")  # the watches end, and new ones are refused
        elif (
            words[0] in ("drop", "compact", "rotate", "forbid", "delay") or fault.source == "slurm"
        ):
            made.do(*words)
        else:
            made.do(*words, "1000000")

    def _mend(self, fault: Fault) -> None:
        made = self.services[fault.source]
        made.do("recover")
        if fault.words == "rotate" and fault.source == "kubernetes":
            self._token("second")
        if fault.words == "forbid":
            made.do("allow")

    def _come(self, job: Job) -> None:
        if self.taken is not None:
            return
        save_ns = None if job.kind == "stubborn" else round(job.save_s * SECOND)
        one = self.agent.come(save_ns)
        if job.kind == "workers":
            self.agent.come(None, one)
        elif job.kind == "hands on":
            one.hand_overs = HAND_OVERS

    def _kill_agent(self) -> None:
        if self.agent.is_up and self.taken is None:
            self.agent.killed()

    def _take(self) -> None:
        """The host goes: whatever is not durable is lost."""
        newest = max((one.step for one in self.world.store.sets), default=0)
        self.taken = Taken(self.clock.now_ns, self.world.step, newest)
        if not self.world.is_over:
            self.world.die(with_host=True)
        self.agent.is_up = False

    # --- what is heard ----------------------------------------------------------------------

    def _hear(self, notice: Notice) -> None:
        now_ns = self.clock.now_ns
        self.heard.append(notice)
        self.heard_ns.append(now_ns)
        if self.taken is not None:
            return
        hear = lambda: self.world.feed(ev.Noticed(self.clock.now_ns, notice))  # noqa: E731
        self.world.heard.give(Source.INBOX, hear)
        self.agent.heard(notice)

    def _told(self, at_ns: int, event: ev.Event, answer: tuple[act.Action, ...], _: str) -> None:
        if isinstance(event, ev.Noticed):
            says = [one for one in answer if isinstance(one, act.Say) and one.level == "warning"]
            changes = [one.words for one in says if "stopping" not in one.words]
            self.warned += [(at_ns, words) for words in changes if "are left, and" not in words]
        if self.stop_ns is None and self.world.machine.stop is not None:
            self.stop_ns = at_ns
