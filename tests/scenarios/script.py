"""Scenario scripts: commands to a virtual world, and the trace of what the machines then did.

A file holds blocks. A block is one or more lines of commands, a line `----`, and the expected
output up to an empty line; `#` begins a comment. The commands are the functions below; their first
word or words are their name, the rest are arguments and `key=value` pairs. Times are `30s`,
`100ms`, or plain seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count
from typing import Any

from watch import MOST_EVENTS, Watch

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hang import deadline as hang
from holdfast.core.hosts.regroup import ElasticLimits
from holdfast.core.notices.board import Notice, NoticeAction, NoticeState
from holdfast.core.notices.plan import OnNotice
from holdfast.core.run import restart
from holdfast.core.run.machine import RunPolicy
from holdfast.core.run.trace_lines import seconds, trace_lines
from holdfast.core.save import policy as saves
from holdfast.core.save.agree import AgreementPhase
from holdfast.session.controlling import bare_policy
from holdfast.sim.clock import SECOND, VirtualClock
from holdfast.sim.virtual.link import LOST, TWICE
from holdfast.sim.virtual.loop import Delays, Source
from holdfast.sim.virtual.ranks import VirtualRank
from holdfast.sim.virtual.shape import PlannedFailure, Shape
from holdfast.sim.virtual.world import HEARTBEAT_NS, VirtualWorld

FAR_NS = 10_000 * SECOND


def ns(text: str) -> int:
    """`30s`, `100ms`, `0.5` → nanoseconds."""
    for unit, scale in (("ms", 1e6), ("s", 1e9)):
        if text.endswith(unit):
            return round(float(text.removesuffix(unit)) * scale)
    return round(float(text) * 1e9)


class Script:
    """Runs the commands of one file, block by block; every block gives its output.

    `broken` is what the watch found wrong, or a machine; then nothing more is carried out.
    """

    def __init__(self, most_events: int = MOST_EVENTS, *, as_text: bool | None = True) -> None:
        self.shape = Shape()
        self.policy = RunPolicy(ranks=1, save=saves.Never(), save_in_memory=saves.Never())
        self.delays = Delays()
        self.keep = 0  # so many sets; 0: all
        self.worlds: list[VirtualWorld] = []  # of one run
        self._watch_anew = partial(Watch, most_events, as_text=as_text)
        self._as_text = as_text is not None
        self.watch = self._watch_anew()
        self.lines: list[str] = []
        self.broken = ""
        self._command_exists = True
        self._is_quiet = False

    def run(self, commands: list[str]) -> str:
        """Carry out one block's commands; the trace of it."""
        self.lines = []
        self._is_quiet = False
        for command in commands:
            do, words = parse(command)
            self._checked(lambda do=do, words=words: do(self, *words))  # type: ignore[misc]
        return "".join(f"{line}\n" for line in self.lines)

    def _checked(self, do: Callable[[], None]) -> None:
        if self.broken:
            return
        try:
            do()
        except Exception as error:  # whatever it is, it is what was looked for
            self.broken = f"{type(error).__name__}: {error}"
            self.lines.append(f"!!! {self.broken}")

    def close(self) -> None:
        """The story ends here: what must be true of all of it."""
        if self.worlds and all(world.is_over for world in self.worlds):
            self._checked(lambda: self.watch.at_end(self.worlds[-1].now_ns))

    @property
    def world(self) -> VirtualWorld | None:
        """The newest supervisor's."""
        return self.worlds[-1] if self.worlds else None

    @property
    def live(self) -> VirtualWorld:
        """The world, once started."""
        assert self.world is not None, "`start` comes first"
        return self.world

    # --- commands ---------------------------------------------------------------------------

    def start(self, again: str | None, arguments: str) -> None:
        """Begin a run, or again one that a supervisor has left: the keys of `Shape`, save=…."""
        if not again:
            self.close()
            self.shape, self.delays, self.worlds = Shape(), Delays(), []
            self.keep = 0
            self.watch, self._command_exists = self._watch_anew(), True
        elif not self.live.is_over:
            self.lines.append("held by a supervisor that lives")
            return
        elif not self.live.fence():
            self.lines.append("what an earlier attempt has left survives SIGKILL")
            return
        if arguments or not again:
            self._configure(arguments)
        self._open(self.worlds[-1] if self.worlds else None)

    def start_elsewhere(self, after: str | None) -> None:
        """On another host: the supervisor is gone with its own, or cut off and taken for dead."""
        for world in self.worlds:
            if not world.is_over:
                self.live.clock.later(
                    ns(after) if after else HEARTBEAT_NS,
                    lambda world=world: world.stop_now("another supervisor holds the run", 69),
                )
        old = self.live
        self._open(old, is_elsewhere=True)

    def _open(self, old: VirtualWorld | None, *, is_elsewhere: bool = False) -> None:
        world = VirtualWorld(
            self.shape,
            replace(
                self.policy,
                ranks=self.shape.ranks,
                hosts=self.shape.hosts,
                replicates=self.shape.peers_ns > 0,
                is_elastic=self.shape.elastic is not None,
            ),
            tell=self.tell,
            store=old.store if old else None,
            memory=old.memory if old and not is_elsewhere else None,
            clock=old.clock if old else VirtualClock(),
            delays=self.delays,
            watch=self.watch,
            as_text=self._as_text,
        )
        if old:
            world.failures, world.seals_fail = old.failures, old.seals_fail
        world.command_exists = self._command_exists
        world.store.keep = self.keep
        self.worlds.append(world)
        world.open()

    def _configure(self, arguments: str) -> None:
        policy = RunPolicy(ranks=1, save=saves.Never(), save_in_memory=saves.Never())
        shape: dict[str, Any] = {}
        delays: dict[str, Any] = {}
        for key, value in (word.split("=") for word in arguments.split()):
            if key == "in_memory":
                policy = replace(policy, save_in_memory=_save_policy(value))
            elif key == "keep":
                self.keep = int(value)
            elif key in ("ranks", "hosts", "spares", "until", "buffers", "failing"):
                shape[key] = int(value)
            elif key == "step":
                shape["step_ns"] = tuple(map(ns, value.split(",")))
            elif key == "later":
                shape["later_ns"] = tuple(map(ns, value.split(",")))
            elif key in DELAYS:
                times = tuple(GOES[one] if one in GOES else ns(one) for one in value.split(","))
                delays[DELAYS[key]] = times
            elif key == "ends":  # the script its loop, before `until`
                shape["ends_at"] = int(value)
            elif key == "apart":  # its ranks, one after the other
                shape["ends_apart"] = int(value)
            elif key == "elastic":  # least hosts, when a lost one is back, for how long it stays
                least, back, stays = value.split(":")
                limits = ElasticLimits(int(least), ns(back), ns(stays))
                shape["elastic"] = limits
            elif key == "chips":  # of each host
                shape["chips"] = tuple(map(int, value.split(",")))
            elif key == "agents":
                delays["has_agents"] = value == "yes"
            elif key == "save":
                policy = replace(policy, save=_save_policy(value))
            elif key == "supervised":
                ranks = shape.get("ranks", self.shape.ranks)
                bare = bare_policy(policy.save, ranks, policy.hold_finished_ns / SECOND, ranks)
                policy = bare if value == "no" else policy
                shape["hosts"] = policy.hosts
            elif key == "budget":
                parts = restart.HopelessCauses() | restart.Budget(int(value)) | restart.BackOff()
                policy = replace(policy, restart=parts)
            elif key == "crash_loop":
                policy = replace(policy, restart=restart.DEFAULT | restart.CrashLoop(int(value)))
            elif key == "hold":
                policy = replace(policy, hold_finished_ns=ns(value))
            elif key == "hang":
                policy = replace(policy, hang=_hang_policy(value))
            elif key in ("on_notice", "migration_ends"):
                field = {"on_notice": "then"}.get(key, key)
                chosen = OnNotice(value) if key == "on_notice" else value == "yes"
                policy = replace(policy, notice=replace(policy.notice, **{field: chosen}))
            elif key == "ready":
                shape["sees_device"] = value == "yes"
            elif key == "span":
                step, kind, time = value.split(":")
                spans = shape.get("spans", self.shape.spans)
                shape["spans"] = {**spans, int(step): (kind, ns(time))}
            elif key == "command":
                self._command_exists = value != "missing"
            elif key == "session":
                shape["has_session"] = value == "yes"
            elif key == "together":
                shape["together"] = value == "yes"
            elif key == "on_sigterm":
                shape["on_sigterm"] = value.replace("-", " ")
            elif key == "poll":
                shape["poll_ns"] = tuple(map(ns, value.split(",")))
            elif key == "pause":
                step, time = value.split(":")
                pauses = shape.get("pauses", self.shape.pauses)
                shape["pauses"] = {**pauses, int(step): ns(time)}
            else:
                shape[f"{key}_ns"] = ns(value)
        self.policy = policy
        self.shape, self.delays = replace(self.shape, **shape), replace(self.delays, **delays)

    def run_until(self, what: str, within: str | None) -> None:
        """Let time pass until something is so; `within` a time, or not at all."""
        world = self.live
        saving = world.machine.saving
        word, _, argument = what.partition(" ")
        goals: dict[str, Callable[[], bool]] = {
            "step": lambda: world.live is not None and world.step >= int(argument),
            "saved": lambda: saving.committed_step >= int(argument),
            "over": lambda: world.is_over,
            "state": lambda: world.machine.state == argument,
            "attempt": lambda: world.live is not None and world.live.attempt >= int(argument),
            "joined": lambda: len(saving.joined) == saving.ranks,
            "hosts": lambda: len(set(world.machine.course.placement.hosts)) == int(argument),
            "phase": lambda: saving.agreement.phase is AgreementPhase(argument),
        }
        limit_ns = world.now_ns + ns(within) if within else FAR_NS
        if not world.run_until(goals[word], limit_ns) and not within:
            self.lines.append(f"!! never {what}")
        if word == "over":
            for other in self.worlds[:-1]:  # one that was cut off has to find out
                other.run_until(lambda other=other: other.is_over, other.now_ns + 60 * SECOND)

    def run_for(self, time: str) -> None:
        """Let time pass."""
        self.live.run_for(ns(time))

    def notice(self, grace: str) -> None:
        """SIGTERM to the supervisor."""
        self.live.notice("SIGTERM", ns(grace))

    def noticed(
        self, source: str, action: str, how: str | None, time: str | None, named: str | None,
        state: str | None,
    ) -> None:  # fmt: skip
        """A source of notices tells something: `in` is a deadline, `lead` only a promise."""
        world = self.live
        at_ns = world.now_ns
        notice = Notice(
            source,
            NoticeAction(action.strip()),
            at_ns,
            NoticeState(state or "scheduled"),
            event_id=named or "",
            deadline_ns=at_ns + ns(time) if time and how == "in" else None,
            lead_ns=ns(time) if time and how == "lead" else None,
        )
        hear = lambda: world.feed(ev.Noticed(world.now_ns, notice))  # noqa: E731
        world.heard.give(Source.INBOX, hear)

    def suspend(self, gap_ns: int) -> None:
        """All machines sleep, as one: they have one clock."""
        self.live.clock.suspend(gap_ns)
        for world in self.worlds:
            if not world.is_over:
                world.slept(gap_ns)

    def rank_fails(
        self, rank: str, kind: str, where: str, step: str | None, times: str | None
    ) -> None:
        """An exception in a step, now or when that step comes."""
        how = Exit(code=1, report=RankReport(kind, "", where, ""))
        if step is None:
            self.end_rank(rank, how)
        else:
            self.live.failures.append(PlannedFailure(int(rank), int(step), how, int(times or 0)))

    def rank_hangs(self, rank: str, step: str, times: str | None, device: str | None) -> None:
        """It never comes out of a step, or its device does not."""
        how = "device" if device else f"train.py:{40 + int(rank)}"
        self.live.failures.append(PlannedFailure(int(rank), int(step), how, int(times or 1)))

    def no_stacks(self) -> None:
        """Nobody answers when asked where the ranks stand."""
        self.live.stacks_ns = None

    def gives_up(
        self, rank: str, step: str | None, to: str, skip: str | None, times: str | None
    ) -> None:
        """`run.fail` in a step: loss is NaN."""
        target = int(to) if to.isdecimal() else to
        report = RankReport(
            "DeclaredFailure", "loss is NaN", "train.py:9", "", True, target, int(skip or 0)
        )
        how = Exit(code=1, report=report)
        if step is None:
            self.end_rank(rank, how)
        else:
            self.live.failures.append(PlannedFailure(int(rank), int(step), how, int(times or 0)))

    def roll_back(self, to: str, skip: str | None) -> None:
        """`holdfast rollback`."""
        self.live.roll_back(int(to) if to.isdecimal() else to, int(skip or 0))

    def rank(self, number: str) -> VirtualRank | None:
        """Its process, if there is one."""
        live = self.live.live
        return None if live is None or self.live.is_over else live.by_rank.get(int(number))

    def end_rank(self, number: str, how: Exit) -> None:
        """Its process ends so, if there is one."""
        if (rank := self.rank(number)) is not None:
            rank.end(how)

    def on_rank(self, number: str, do: Callable[[VirtualRank], None]) -> None:
        """Something is done to its process, if there is one."""
        if (rank := self.rank(number)) is not None:
            do(rank)

    def heal(self) -> None:
        """Nothing stands in the way from now on but what has been said so far."""
        world, store = self.live, self.live.store
        is_fenced = store.is_fenced  # for ever: somebody else has the run
        store.recover()
        store.is_fenced = is_fenced
        world.seals_fail = world.flush_starves = False
        world.failures.clear()
        for rank in world.live.ranks if world.live else ():
            if rank.is_stopped:
                rank.go_on()

    def bad(self, which: str) -> None:
        """The newest sets cannot be read from now on, but nobody knows yet."""
        sets = sorted(self.live.store.sets, key=lambda one: one.name, reverse=True)
        chosen = sets if which == "all" else sets[: int(which)]
        for one in chosen:
            self.live.store.unreadable[one.name] = f"{one.name}: rank-00000 has a wrong checksum"

    def store_is(self, state: str) -> None:
        """The store: full, away, hung, mute, fenced (somebody else has the run), or ok."""
        store = self.live.store
        store.recover()
        store.is_full, store.is_away = state == "full", state == "away"
        store.is_fenced, store.is_hung = state == "fenced", state == "hung"
        store.is_mute = state == "mute"

    def host_is_lost(self, number: str, noticed: str | None, replaced: str | None) -> None:
        """A host is gone, not the controller's; that is noticed, and another one comes."""
        if 0 < int(number) < self.shape.hosts:
            self.live.lose_host(int(number), ns(noticed or "0s"), ns(replaced or "1s"))

    def host_stalls(self, number: str, time: str) -> None:
        """Its agent does not come round; the ranks train on."""
        if 0 < int(number) < self.shape.hosts and not self.live.is_over:
            self.live.stall_host(int(number), ns(time))

    def host_is_cut_off(self, number: str, time: str) -> None:
        """Nothing goes between it and the controller; the ranks train on."""
        if 0 < int(number) < self.shape.hosts and not self.live.is_over:
            self.live.cut_off_host(int(number), ns(time))

    def memory_is_lost(self) -> None:
        """As with the host."""
        self.live.memory.lose()

    def memory_vanishes(self, again: str) -> None:
        """Somebody empties the file system under a run that goes on."""
        self.live.memory.lose()
        self.live.memory.has_vanished = True
        for rank in self.live.live.ranks if self.live.live else ():
            rank.lose_buffers(ns(again))

    def memory_is_bad(self) -> None:
        """A bit has flipped in every set that is in memory."""
        for _, one in self.live.memory.sets():
            self.live.store.spoiling[one.name] = f"{one.name}: rank-00000 has a wrong checksum"

    def seals(self, how: str) -> None:
        """Whether sets in memory can be sealed."""
        self.live.seals_fail = how == "fail"

    def flush_starves(self) -> None:
        """The host is so busy that a flush which gives way gets nowhere."""
        self.live.flush_starves = True

    def host_sticks(self) -> None:
        """From now on processes survive SIGKILL."""
        self.live.host_sticks = True

    def quiet(self) -> None:
        """Keep the trace of this block to yourself from now on."""
        self._is_quiet = True

    def loud(self) -> None:
        """Show the trace again."""
        self._is_quiet = False

    def status(self) -> None:
        """Where everything stands."""
        world = self.live
        saving = world.machine.saving
        sets = ", ".join(one.name.replace("-00000000", "-") for one in world.store.sets)
        kept = ", ".join(one.name.replace("-00000000", "-") for _, one in world.memory.sets())
        in_memory = f"; in memory: {kept or 'none'}" if world.memory.buffers else ""
        self.lines.append(
            f"{seconds(world.now_ns)}  {world.machine.state}; step {world.step}; saving is "
            f"{saving.agreement.phase.value}; sets: {sets or 'none'}{in_memory}"
        )

    def steps_saved(self) -> None:
        """Only the steps of the sets."""
        steps = " ".join(str(one.step) for one in self.live.store.sets)
        misses = self.live.machine.saving.agreement.epoch - len(self.live.store.sets)
        self.lines.append(f"sets of steps {steps}; {misses} orders missed")

    # --- the trace --------------------------------------------------------------------------

    def tell(
        self, at_ns: int, event: ev.Event, answer: tuple[act.Action, ...], change: str
    ) -> None:
        """One event and what follows from it."""
        if not self._is_quiet:
            self.lines += trace_lines(event, answer, at_ns, change)


def _hang_policy(text: str) -> hang.HangPolicy:
    if text in ("auto", "off"):
        return hang.HangPolicy(floor_ns=hang.MINUTE_NS) if text == "auto" else hang.OFF
    return hang.HangPolicy(step_ns=ns(text))


def _save_policy(text: str) -> saves.SavePolicy:
    if text in ("never", "optimal"):
        return saves.Never() if text == "never" else saves.Optimal()
    return (
        saves.EverySeconds(float(text[:-1])) if text.endswith("s") else saves.EverySteps(int(text))
    )


GOES = {"lost": LOST, "twice": TWICE}  # how a message does
DELAYS = {
    "store": "store_ns", "spawn": "spawn_ns", "reap": "reap_ns", "bell": "bell_ns",
    "words": "words_ns", "seals": "seal_ns", "looks": "looks_ns",
    "look": "look_ns", "link": "link_ns",
}  # fmt: skip
COMMANDS: dict[str, Callable[..., None]] = {
    r"start elsewhere(?: noticed in (\S+))?": Script.start_elsewhere,
    r"start( again)? ?(.*)": Script.start,
    r"kill supervisor( alone)?": lambda script, alone: script.live.die(with_tree=not alone),
    r"lose host": lambda script: script.live.die(with_host=True),
    r"host (\d+) is lost(?:, noticed in (\w+))?(?:, replaced in (\w+))?": Script.host_is_lost,
    r"host (\d+) stalls for (\S+)": Script.host_stalls,
    r"host (\d+) is cut off for (\S+)": Script.host_is_cut_off,
    r"supervisor stalls for (\S+)": lambda script, time: script.live.stall(ns(time)),
    r"heal": Script.heal,
    r"quiet": Script.quiet,
    r"loud": Script.loud,
    r"run until (.+?)(?: within (\S+))?": Script.run_until,
    r"run for (\S+)": Script.run_for,
    r"sigterm grace=(\S+)": Script.notice,
    r"notice (\w+): ([a-z ]+?)(?: (in|lead) (\S+))?(?: as (\S+))?(?: (started|withdrawn))?": (
        Script.noticed
    ),
    r"ctrl-c": lambda script: script.live.interrupt(),
    r"sigquit": lambda script: script.live.stop_now("SIGQUIT"),
    r"rank (\d+) hangs in step (\d+)(?: (\d+) times)?(?: (on the device))?": Script.rank_hangs,
    r"stop rank (\d+)": lambda script, rank: script.on_rank(rank, VirtualRank.stop),
    r"continue rank (\d+)": lambda script, rank: script.on_rank(rank, VirtualRank.go_on),
    r"suspend for (\S+)": lambda script, time: script.suspend(ns(time)),
    r"stacks never come": Script.no_stacks,
    r"lease lost": lambda script: script.live.stop_now("another supervisor holds the run", 69),
    r"save": lambda script: script.live.save(),
    r"kill rank (\d+)": lambda script, rank: script.end_rank(rank, Exit(signal=9)),
    r"rank (\d+) exits (\d+)": lambda script, rank, code: script.end_rank(
        rank, Exit(code=int(code))
    ),
    r"rank (\d+) gets SIGTERM": lambda script, rank: script.on_rank(rank, VirtualRank.sigterm),
    r"rank (\d+) fails (\w+) (\S+)(?: at step (\d+))?(?: in (\d+) attempts)?": Script.rank_fails,
    r"rank (\d+) gives up(?: at step (\d+))? to (\w+)(?: skip (\d+))?(?: in (\d+) attempts)?": (
        Script.gives_up
    ),
    r"rollback to (\w+)(?: skip (\d+))?": Script.roll_back,
    r"bad sets (\w+)": Script.bad,
    r"store (full|away|hung|mute|fenced|ok)": Script.store_is,
    r"memory lost": Script.memory_is_lost,
    r"memory bad": Script.memory_is_bad,
    r"memory vanishes, made again in (\S+)": Script.memory_vanishes,
    r"seals (fail|work)": Script.seals,
    r"host busy": Script.flush_starves,
    r"host stuck": Script.host_sticks,
    r"reaper killed": lambda script: script.live.kill_reaper(),
    r"status": Script.status,
    r"steps saved": Script.steps_saved,
}


@lru_cache(maxsize=4096)  # a campaign's starts are all different
def parse(command: str) -> tuple[Callable[..., None], tuple[str, ...]]:
    """What a command does, and its arguments."""
    for pattern, do in COMMANDS.items():
        found = re.fullmatch(pattern, command)
        if found:
            return do, found.groups()
    raise ValueError(f"no such command: {command}")


def blocks(text: str) -> Iterator[tuple[list[str], list[str], str]]:
    """A file's blocks: (lines before the `----`, its commands, expected output)."""
    lines = text.splitlines()
    place = 0
    for _ in count():
        head: list[str] = []
        while place < len(lines) and lines[place] != "----":
            head.append(lines[place])
            place += 1
        if place == len(lines):
            return
        place += 1
        expected: list[str] = []
        while place < len(lines) and lines[place]:
            expected.append(lines[place])
            place += 1
        commands = [line for line in head if line and not line.startswith("#")]
        yield head, commands, "".join(f"{line}\n" for line in expected)


def rerun(text: str) -> str:
    """The file as it would be with the outputs of today."""
    script = Script()
    parts = []
    for head, commands, _ in blocks(text):
        parts.append("\n".join(head).strip("\n") + "\n----\n" + script.run(commands))
    script.lines = []
    script.close()
    parts[-1] += "".join(f"{line}\n" for line in script.lines)
    return "\n".join(parts)
