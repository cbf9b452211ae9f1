"""All hosts of a run, reached at once: looked at, given what they lack, started, and ended.

fleet = SshFleet(reach, job, tell)
fleet.step(targets)    # one look, and what it asks for; False: nothing was to be done
fleet.verdict          # the exit code of the whole, once there is one
fleet.end(targets, grace_s=10.0)
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.hosts.reach import (
    HostAct,
    HostMemory,
    HostStep,
    ReachedHost,
    Unreached,
    givers,
    next_steps,
    start_waits,
    verdict,
)
from holdfast.engines.protocol import EngineError
from holdfast.engines.ssh.job import PushJob
from holdfast.engines.ssh.session import ConnectionLostError, HostRefusedError, HostSession
from holdfast.engines.ssh.words import CONNECT_S, Reach, Target, told_waits
from holdfast.errors import EXIT_DONE

RELAY_WAIT_S = 30.0  # for a host that is to give a tree on
MOST_AT_ONCE = 256
NO_LIMIT = None
ANSWER_S = 0.5  # a host may take for its answer before the others go on
LONG_ANSWER_S = CONNECT_S + 2.0  # … before a push or an install, whose end it would wait for
NOT_YET = Unreached("it has not answered yet")


class _GivenFrom:
    """Where other hosts get a tree from, once that is known."""

    def __init__(self) -> None:
        self._is_known = threading.Event()
        self._place: tuple[str, int] | None = None

    def tell(self, place: tuple[str, int] | None) -> None:
        if not self._is_known.is_set():
            self._place = place
            self._is_known.set()

    def place(self) -> tuple[str, int] | None:
        """None: from nobody there."""
        self._is_known.wait(RELAY_WAIT_S)
        return self._place


@dataclass(slots=True)
class SshFleet:
    """All hosts of a run; `say`: a sentence, `on_log`: a host's index, and what it has printed.

    `is_over`: asked before what has ended is started again.
    """

    reach: Reach
    folder: str  # of the run, over there
    job: PushJob | None
    say: Callable[[str], None]
    on_log: Callable[[int, str], None] = lambda _index, _text: None
    is_over: Callable[[], bool] = lambda: False
    verdict: int | None = None
    why: str = ""
    told: dict[int, ReachedHost | Unreached] = field(default_factory=dict)
    steps: dict[int, HostStep] = field(default_factory=dict)
    boot_ids: dict[str, str] = field(default_factory=dict)  # by the host's name
    _sessions: dict[str, HostSession] = field(default_factory=dict)
    _memory: dict[str, HostMemory] = field(default_factory=dict)
    _log_at: dict[str, int] = field(default_factory=dict)
    _said: dict[int, str] = field(default_factory=dict)
    _is_closed: bool = False
    _pending: dict[str, Future[ReachedHost | Unreached]] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_AT_ONCE))

    def close(self) -> None:
        """End the connections; what runs over there goes on."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for session in list(self._sessions.values()):
            session.close()

    def forget(self, targets: Iterable[Target]) -> None:
        """These machines are no more."""
        for one in targets:
            self._drop(one)
            self._memory.pop(one.name, None)
            self._log_at.pop(one.name, None)
            self._pending.pop(one.name, None)

    def look(
        self, targets: Sequence[Target], within_s: float | None = None
    ) -> dict[int, ReachedHost | Unreached]:
        """How each of them stands, or why it cannot be reached.

        A machine that is gone says no goodbye. Who has not answered `within_s` is asked on, beside.
        """
        asked = {one.name: self._asked_on(one) for one in targets}
        wait(asked.values(), within_s)
        found: dict[int, ReachedHost | Unreached] = {}
        for one in targets:
            is_late = not asked[one.name].done()
            found[one.index] = NOT_YET if is_late else self._pending.pop(one.name).result()
        now_ns = time.monotonic_ns()
        for one in targets:
            memory = self._memory.setdefault(one.name, HostMemory())
            instead = memory.saw(found[one.index], now_ns, is_new=one.is_new)
            self.told[one.index] = instead or found[one.index]
        self.told = {one.index: self.told[one.index] for one in targets}
        return self.told

    def step(self, targets: Sequence[Target]) -> bool:
        """Look, and do what is to be done now; False: that was nothing."""
        job = self.job
        assert job is not None  # noqa: S101
        self._decide(job, targets, ANSWER_S)
        is_long = any(one.step in (HostAct.PUSH, HostAct.INSTALL) for one in self.steps.values())
        if is_long and NOT_YET in self.told.values():
            self._decide(job, targets, LONG_ANSWER_S)
        self.verdict, self.why = verdict(self.steps)
        self._tell(targets)
        if self.verdict is not None:
            return False
        by_step: dict[HostAct, list[Target]] = {}
        for one in targets:
            by_step.setdefault(self.steps[one.index].step, []).append(one)
        lacking, bare = by_step.get(HostAct.PUSH, []), by_step.get(HostAct.INSTALL, [])
        if lacking:
            self._push(job, lacking, targets)
        if bare and not lacking:
            self.say(f"installing on {_hosts(bare)}")
            self._all(lambda one: self._tried(one, lambda: self._install(job, one)), bare)
        starts = by_step.get(HostAct.START, [])
        if any(self._memory[one.name].has_run for one in starts) and self.is_over():
            return False
        if starts:
            self.say(f"starting {_hosts(starts)}")
            self._all(lambda one: self._tried(one, lambda: self._start(job, one)), starts)
        return bool(lacking or bare or starts)

    def end(self, targets: Sequence[Target], grace_s: float) -> tuple[Target, ...]:
        """End what runs there; of these it is certain that nothing does any more."""
        order = {"do": "end", "grace_s": grace_s}

        def ended(one: Target) -> bool:
            if (pending := self._pending.pop(one.name, None)) is not None:
                pending.result()
            with_limit = grace_s + 30.0
            return self._tried(one, lambda: self._session(one).ask(order, limit_s=with_limit))

        are_over = self._all(ended, targets)
        return tuple(one for one, is_over in zip(targets, are_over, strict=True) if is_over)

    # --- one host ---------------------------------------------------------------------------------

    def _decide(self, job: PushJob, targets: Sequence[Target], within_s: float) -> None:
        told = self.look(targets, within_s)
        memory = {one.index: self._memory[one.name] for one in targets}
        self.steps = next_steps(told, memory, job.wanted)

    def _asked_on(self, target: Target) -> Future[ReachedHost | Unreached]:
        found = self._pending.get(target.name)
        if found is None:
            found = self._pending[target.name] = self._pool.submit(self._look, target)
        return found

    def _look(self, target: Target) -> ReachedHost | Unreached:
        try:
            told = self._session(target).look(self._log_at.get(target.name, -1))
        except ConnectionLostError as error:
            self._drop(target)
            return error.unreached
        except HostRefusedError as error:
            return Unreached(str(error), needs_person=True)
        self._log_at[target.name] = told.log_at
        self.boot_ids[target.name] = told.boot_id
        if told.log:
            self.on_log(target.index, told.log)
        return told

    def _install(self, job: PushJob, target: Target) -> None:
        self._memory[target.name].tried = True
        order = {
            "do": "install",
            "tree": job.tree.digest,
            "command": job.install,
            "command_digest": job.install_digest,
            "program": list(job.program),
        }
        self._session(target).ask(order, limit_s=NO_LIMIT)

    def _start(self, job: PushJob, target: Target) -> None:
        told, memory = self.told[target.index], self._memory[target.name]
        assert isinstance(told, ReachedHost)  # noqa: S101
        memory.starts(told)
        found = start_waits(told, job.tree.digest, is_new=target.is_new)
        order = {
            "do": "start",
            "tree": job.tree.digest,
            "index": target.index,
            "words": job.words(target, told.address),
            "secret": job.secret,
            "environment": {**dict(job.environment), **told_waits(found)},
        }
        self._session(target).ask(order)
        memory.has_run = True

    def _push(self, job: PushJob, lacking: Sequence[Target], targets: Sequence[Target]) -> None:
        """To all that lack it, at once; each installs as soon as it has it."""
        by_index = {one.index: one for one in targets}
        having = [i for i, one in self.told.items()
                  if isinstance(one, ReachedHost) and job.tree.digest in one.trees]  # fmt: skip
        fan_out = {} if job.has_relay else {"fan_out": 0}
        plan = givers([one.index for one in lacking], having, **fan_out)
        from_here = sum(1 for giver in plan.values() if giver is None)
        given = "" if from_here == len(plan) else f", {from_here or 'none'} of them from here"
        self.say(f"pushing {job.tree.size_bytes / 2**20:.1f} MiB to {_hosts(lacking)}{given}")
        token = secrets.token_hex(32)
        places = {index: _GivenFrom() for index in by_index}
        offers = sorted({one for one in plan.values() if one is not None and one in having})
        began_s = time.monotonic()

        def heard(index: int) -> Callable[[int], None]:
            return lambda port: places[index].tell(self._place(index, port))

        def offered(index: int) -> None:
            order = {"do": "offer", "tree": job.tree.digest, "token": token}
            one = by_index[index]
            self._tried(one, lambda: self._session(one).ask(order, on_port=heard(index)))
            places[index].tell(None)

        self._all(offered, offers)

        def pushed(target: Target) -> None:
            index = target.index

            def send(giver: tuple[str, int] | None) -> None:
                order = {
                    "do": "push",
                    "tree": job.tree.digest,
                    "bytes": job.tree.size_bytes,
                    "unpacked_bytes": job.tree.unpacked_bytes,
                    "token": token,
                    "from": giver,
                }
                self._session(target).ask(
                    order,
                    source=job.tree.path if giver is None else None,
                    on_port=heard(index),
                    limit_s=NO_LIMIT,
                )

            try:
                is_there = self._pushed_from(target, plan[index], places, send)
            finally:
                places[index].tell(None)
            if is_there:
                self._tried(target, lambda: self._install(job, target))

        self._all(pushed, lacking)
        self.say(f"push and install took {time.monotonic() - began_s:.1f} s")

    def _pushed_from(
        self,
        target: Target,
        giver: int | None,
        places: Mapping[int, _GivenFrom],
        send: Callable[[tuple[str, int] | None], None],
    ) -> bool:
        """From another host if that works, else from here; whether it is there."""
        place = None if giver is None else places[giver].place()
        if place is not None:
            try:
                send(place)
            except ConnectionLostError as error:
                self._failed(target, str(error))
                return False
            except HostRefusedError as error:
                self.say(f"host {target.index} does not get it from host {giver}: {error}")
            else:
                return True
        return self._tried(target, lambda: send(None))

    def _place(self, index: int, port: int) -> tuple[str, int] | None:
        told = self.told.get(index)
        return (told.address, port) if isinstance(told, ReachedHost) and told.address else None

    def _tried(self, target: Target, act: Callable[[], Any]) -> bool:
        """Whether it went well; where it did not, the next look says how it stands."""
        try:
            act()
        except (ConnectionLostError, OSError) as error:
            self._failed(target, str(error))
        except HostRefusedError as error:
            self._failed(target, str(error))
            self._memory.setdefault(target.name, HostMemory()).refused = str(error)
        else:
            return True
        return False

    def _failed(self, target: Target, words: str) -> None:
        self._drop(target)
        self.say(f"host {target.index} ({target.name}): {words}")

    def _session(self, target: Target) -> HostSession:
        found = self._sessions.get(target.name)
        if self._is_closed:
            raise ConnectionLostError(NOT_YET)
        if found is None:
            found = self._sessions[target.name] = HostSession(self.reach, target, self.folder)
        return found

    def _drop(self, target: Target) -> None:
        session = self._sessions.pop(target.name, None)
        if session is not None:
            session.close()

    def _all(self, act: Callable[[Any], Any], targets: Sequence[Any]) -> list[Any]:
        if not targets:
            return []
        with ThreadPoolExecutor(min(len(targets), MOST_AT_ONCE)) as pool:
            return list(pool.map(act, targets))

    def _tell(self, targets: Sequence[Target]) -> None:
        """Each sentence about a host once, until there is another."""
        for one in targets:
            step, reason, _ = self.steps[one.index]
            is_news = step in (HostAct.WAIT, HostAct.REST) and self._said.get(one.index) != reason
            is_usual = reason in ("it trains", NOT_YET.words) or reason.startswith("waits for host")
            if is_news and not is_usual:
                self.say(f"host {one.index} ({one.name}): {reason}")
            self._said[one.index] = reason


def started(fleet: SshFleet) -> bool:
    """Whether all of them train, or have trained to the end."""
    if fleet.verdict == EXIT_DONE:
        return True
    return bool(fleet.steps) and all(one.step is HostAct.REST for one in fleet.steps.values())


def refuse(fleet: SshFleet) -> None:
    """Raises EngineError where it cannot go on."""
    if fleet.verdict:
        raise EngineError(fleet.why)


def _hosts(targets: Sequence[Target]) -> str:
    return f"host {targets[0].index}" if len(targets) == 1 else f"{len(targets)} hosts"
