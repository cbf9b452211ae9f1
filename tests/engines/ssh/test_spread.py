"""All hosts together, with connections that only pretend."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.hosts.engine import Submission
from holdfast.core.hosts.reach import JobState, ReachedHost
from holdfast.engines.ssh import spread
from holdfast.engines.ssh.archive import PackedTree
from holdfast.engines.ssh.engine import SshEngine, targets_of
from holdfast.engines.ssh.job import PushJob
from holdfast.engines.ssh.spread import SshFleet
from holdfast.engines.ssh.words import Reach, Target

BARE = ReachedHost("h", "boot", (3, 11, 7), "x86_64", address="10.0.0.1")
RUN = Submission("ssh", "lm", "0123456789ab", "/shared", 2, 0, ("python", "t.py"))
JOB = PushJob(RUN, PackedTree("tree", Path("tree.tar.gz"), 1, 10, 10))


class Hosts:
    """What each says to a look, and what it was ordered; `h1` may be late."""

    def __init__(self) -> None:
        self.told = {"h0": BARE, "h1": BARE}
        self.orders: list[tuple[str, Mapping[str, Any]]] = []
        self.has_answered = threading.Event()
        self.waited_s: list[float | None] = []

    def session(self, _reach: Reach, target: Target, _folder: str) -> Any:
        hosts = self

        class Session:
            def look(self, _log_at: int) -> ReachedHost:
                if target.name == "h1":
                    assert hosts.has_answered.wait(60)
                return hosts.told[target.name]

            def ask(self, order: Mapping[str, Any], **how: Any) -> dict[str, Any]:
                if order["do"] == "push":
                    how["on_port"](1)
                hosts.orders.append((target.name, order))
                return {}

            def close(self) -> None:
                pass

        return Session()

    def wait(self, asked: Any, within_s: float | None) -> None:
        """As `concurrent.futures.wait`: the short time is over before `h1` has answered."""
        self.waited_s.append(within_s)
        first, *_ = asked
        futures: list[Future[Any]] = [first]
        if within_s != spread.ANSWER_S:
            self.has_answered.set()
            futures = list(asked)
        wait(futures)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    made = Hosts()
    monkeypatch.setattr(spread, "HostSession", made.session)
    monkeypatch.setattr(spread, "wait", made.wait)
    return made


@pytest.fixture
def fleet_of(hosts: Hosts) -> Iterator[Callable[[list[str]], SshFleet]]:
    made: list[SshFleet] = []

    def make(said: list[str]) -> SshFleet:
        made.append(SshFleet(Reach(), "0123456789ab", JOB, said.append))
        return made[-1]

    yield make
    hosts.has_answered.set()
    for one in made:
        one.close()


@pytest.mark.parametrize("do", ["push", "install"])
def test_a_host_that_answers_late_is_not_made_to_wait_for_the_end_of_a_whole_push(
    hosts: Hosts, fleet_of: Callable[[list[str]], SshFleet], do: str
) -> None:
    if do == "install":
        hosts.told = dict.fromkeys(hosts.told, replace(BARE, trees=("tree",)))
    said: list[str] = []
    fleet = fleet_of(said)
    assert fleet.step(targets_of(("h0", "h1")))
    assert hosts.waited_s == [spread.ANSWER_S, spread.LONG_ANSWER_S]
    words = {
        "push": "pushing 0.0 MiB to 2 hosts, 1 of them from here",
        "install": "installing on 2",
    }
    assert said[0].startswith(words[do])
    assert {name for name, order in hosts.orders if order["do"] == do} == {"h0", "h1"}


def test_who_trains_is_not_kept_waiting_for_a_host_that_is_late(
    hosts: Hosts, fleet_of: Callable[[list[str]], SshFleet]
) -> None:
    hosts.told["h0"] = replace(BARE, job=JobState.RUNNING, job_tree="tree", job_index=0)
    assert not fleet_of([]).step(targets_of(("h0", "h1")))
    assert hosts.waited_s == [spread.ANSWER_S]


def test_a_run_that_is_over_before_it_was_seen_to_run_was_started(
    hosts: Hosts, fleet_of: Callable[[list[str]], SshFleet]
) -> None:
    hosts.has_answered.set()
    done = replace(BARE, trees=("tree",), job=JobState.ENDED, job_code=0)
    hosts.told = {"h0": done, "h1": done}
    fleet = fleet_of([])
    fleet.look(targets_of(("h0", "h1")))
    for memory in fleet._memory.values():
        memory.has_run = True
    SshEngine({}, ("h0", "h1"), Reach())._until_started(fleet)
    assert not hosts.orders
