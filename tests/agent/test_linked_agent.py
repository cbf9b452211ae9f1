"""When the agent of one of several hosts joins, and what becomes of its memory when it leaves."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent import linked_agent
from holdfast.agent.controller_watch import Sighting
from holdfast.agent.job import Command, Job
from holdfast.agent.linked_agent import AgentPlace, LinkedAgent
from holdfast.agent.memory import MemoryJob
from holdfast.agent.supervisor import Screen
from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.copies import HeldPart
from holdfast.core.hosts.says import ControllerSays, Over
from holdfast.core.run.state import RunPolicy
from holdfast.errors import EXIT_CONFIGURATION, EXIT_DONE, EXIT_SAVED_START_ME_AGAIN
from holdfast.journal.store import RunStore
from holdfast.link.values import Claim, DialerNews, LinkChange, LinkState
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.ram_folder import claim_ram

CLAIM = Claim(("127.0.0.1",), 1000, 1)


class Quiet(Screen):
    """Nobody watches."""


class Serves:
    """As much of `Copying` as an agent asks: from where others get parts."""

    port = 0
    why_not = ""
    pids = ()

    def __init__(self, *_: object) -> None:
        self.is_asked = False

    def serve(self) -> None:
        self.is_asked = True

    def turn(self) -> None:
        """Nothing was said."""

    def close(self) -> None:
        """It ends."""


class Dials:
    """As much of `LinkDialer`."""

    own_address = ""

    def __init__(self, *_: object) -> None:
        self.claims: list[Claim] = []
        self.news: list[DialerNews] = []
        self.said: list[Any] = []
        self._ends = socket.socketpair()

    def fileno(self) -> int:
        return self._ends[0].fileno()

    def aim(self, claim: Claim) -> None:
        self.claims.append(claim)

    def take(self) -> DialerNews:
        return self.news.pop(0) if self.news else DialerNews(None, None, 0)

    def put(self, message: object) -> None:
        """Nobody hears it."""
        self.said.append(message)

    def close(self) -> None:
        for end in self._ends:
            end.close()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LinkedAgent]:
    """One that has a buffer in memory from before."""
    monkeypatch.setattr(linked_agent, "Copying", Serves)
    monkeypatch.setattr(linked_agent, "LinkDialer", Dials)
    monkeypatch.setattr(linked_agent, "held_parts", lambda _: (HeldPart(0, 7, (0,), 2, 0),))
    for folder in ("store", "memory", "scratch"):
        (tmp_path / folder).mkdir()
    run = RunStore.at(tmp_path / "store").create("r")
    ram = claim_ram(tmp_path / "memory", "r-host0")
    (ram.path / "buffer-0").mkdir()
    command = Command(("python", "train.py"), str(tmp_path), {})
    job = Job(
        command, RunPolicy(2, hosts=2), Keep(), 0, 0, "", "x", tmp_path / "scratch",
        MemoryJob(ram, 3),
    )  # fmt: skip
    place = AgentPlace(0, 2, secret=b"s" * 40)
    agent = LinkedAgent(run, job, place, Quiet(), lambda _: pytest.fail("no controller"))
    agent._dial()
    yield agent
    agent.selector.close()
    agent._inbox.close()
    if agent._dialer is not None:
        agent._dialer.close()
    ram.release()


def aimed(agent: Any) -> list[Claim]:
    claims: list[Claim] = agent._dialer.claims
    return claims


def test_a_host_joins_once_others_get_what_lies_in_its_memory(made: Any) -> None:
    made._sighted(Sighting(claim=CLAIM))
    made._turn_copying()
    assert (made._copying.is_asked, aimed(made)) == (True, [])
    made._copying.port = 7000
    made._turn_copying()
    assert aimed(made) == [CLAIM]
    made._sighted(Sighting(claim=replace(CLAIM, term=2)))
    assert [one.term for one in aimed(made)] == [1, 2]


@pytest.mark.parametrize("why", ["no port can be had", "it says nothing"])
def test_a_host_joins_where_nobody_will_get_it(
    made: Any, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    made._sighted(Sighting(claim=CLAIM))
    if why == "it says nothing":
        monkeypatch.setattr(linked_agent, "now_ns", lambda: 2**62)
    else:
        made._copying.why_not = why
    made._turn_copying()
    assert aimed(made) == [CLAIM]


def told(exit_code: int, *, leaves: bool) -> Callable[[Any], None]:
    """By the controller, over the link."""

    def tell(agent: Any) -> None:
        agent._over = Over(exit_code, "it is over", leaves)

    return tell


def read(exit_code: int, *, leaves: bool) -> Callable[[Any], None]:
    """In the store, where the end of the run stands."""
    return lambda agent: agent._sighted(Sighting(over=Over(exit_code, "it is over", leaves)))


def stopped_at_once(agent: Any) -> None:
    agent._on_signal(signal.SIGTERM)


def left_by_the_deadline(agent: Any) -> None:
    agent._term, agent._leave_by_ns = 1, 0
    agent._turn()


def fails(_: Any) -> None:
    """The loop ends by an exception, and the run is not over."""


START = EXIT_SAVED_START_ME_AGAIN
WAYS = {
    "told that it is done": (told(EXIT_DONE, leaves=False), False),
    "told to stop, all is saved": (told(START, leaves=False), False),
    "told to stop, memory holds more": (told(START, leaves=True), True),
    "read that it is done": (read(EXIT_DONE, leaves=False), False),
    "read that it has stopped": (read(START, leaves=False), False),
    "read that memory holds more": (read(START, leaves=True), True),
    "stopped before a controller was found": (stopped_at_once, True),
    "a stop that nobody has answered": (left_by_the_deadline, True),
    "refused": (told(EXIT_CONFIGURATION, leaves=True), True),
    "an error": (fails, True),
}


@pytest.mark.parametrize("has", ["a part", "no part", "given its part up"])
@pytest.mark.parametrize(("leaves", "is_kept"), WAYS.values(), ids=WAYS)
def test_memory_is_let_go_where_the_run_needs_it_no_more(
    made: Any, leaves: Callable[[Any], None], is_kept: bool, has: str
) -> None:
    ram = made._job.memory.folder.path
    if has != "no part":
        made.agent = made._begin(0)
    if has == "given its part up":
        made.agent.leave()
        made.agent = None
    leaves(made)
    made._let_go_of_memory()
    assert ram.exists() == is_kept


def test_memory_that_was_emptied_meanwhile_is_let_go_too(made: Any) -> None:
    """Somebody empties its file system; the host holds it anew, and gives up its part."""
    ram = made._job.memory.folder.path
    agent = made.agent = made._begin(0)
    shutil.rmtree(ram)
    agent.memory.turn()
    assert ram.exists()
    agent.leave()
    made.agent = None
    told(EXIT_DONE, leaves=False)(made)
    made._let_go_of_memory()
    assert not ram.exists()


def test_a_host_without_a_part_says_so_once(made: Any) -> None:
    said: list[str] = []
    made.say = lambda _, words: said.append(words)
    made._turn()
    assert said == []  # it has heard nobody yet
    made._seat.hear(1, ControllerSays(1, 1, is_undecided=True), None)
    made._turn()
    assert said == []
    for number in (2, 3):
        made._seat.hear(number, ControllerSays(number, number), None)
        made._turn()
    assert said == ["This is host 0 of 2, without a part: it waits until it gets one"]


def test_a_host_is_met_at_the_address_of_its_link(made: Any) -> None:
    """And at none that it had before its network was there: only then it speaks."""
    made._turn()
    assert made._dialer.said == []
    for own in ("10.0.0.5", "10.0.0.6"):
        made._dialer.own_address = own
        made._dialer.news.append(DialerNews(None, LinkChange(LinkState.UP), 0))
        made._turn()
        assert made._dialer.said[-1]["says"]["address"] == own


def test_a_host_without_a_way_to_the_controller_says_so(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    made.say = lambda _, words: said.append(words)
    now = linked_agent.now_ns()
    words = "10.0.0.4, port 1000: no answer within 2 s"
    made._dialer.news.append(DialerNews(None, LinkChange(LinkState.DOWN, words), 0))
    made._turn()
    assert said == []  # that one may be dead
    monkeypatch.setattr(linked_agent, "now_ns", lambda: now + 60 * SECOND_NS)
    made._turn()
    made._turn()
    assert said == [
        f"The controller cannot be reached at {words}; let all hosts of the run reach each other, "
        "on any port"
    ]


@pytest.mark.parametrize("trains", [False, True])
def test_only_a_host_that_trains_says_that_training_goes_on(
    made: Any, monkeypatch: pytest.MonkeyPatch, *, trains: bool
) -> None:
    said: list[str] = []
    made.say = lambda _, words: said.append(words)
    now, made._term = linked_agent.now_ns(), 1
    made.agent = made._begin(0)
    said.clear()
    made._link_changed(LinkChange(LinkState.DOWN, "end of file"), "")
    monkeypatch.setattr(linked_agent, "now_ns", lambda: now + 60 * SECOND_NS)
    made.agent.attempt = True if trains else None
    made._say_what_is_down()
    made.agent.attempt = None
    made.agent.leave()
    goes_on = "; training goes on" if trains else ""
    assert said == [f"The link to the controller is down: end of file{goes_on}"]
