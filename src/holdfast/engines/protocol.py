"""What every engine can do: give hosts to a run, tell about them, and take them back.

    engine = registry.engine_module("slurm").make(options, environment)
    ordered = engine.submit(submission)     # returns at once; the hosts may come much later
    engine.standing(ordered)                # how the order is, and how far each of its hosts
    engine.release(ordered)                 # all of them

Questions and orders, none of which waits for a host. On each host the engine starts the
submission's command (`Submission.run_words`), and Holdfast does the rest: who trains, who waits,
who is lost. Events are the differences between two looks (`core.hosts.engine.changes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from holdfast.core.hosts.engine import EngineHost, EngineWait, Submission
from holdfast.core.value import value
from holdfast.errors import HoldfastError


class EngineError(HoldfastError):
    """An engine did not answer, or refused; what it said is in the message."""

    exit_code = 69


@value
class Ordered:
    """What an engine has taken. `job`: its own name for it; `words`: for people, as in "job 17"."""

    submission: Submission
    job: str
    words: str
    submitted_unix_ns: int


class OrderStanding(NamedTuple):
    """How an order stands. `state`: the engine's words, such as "PENDING (Resources)".

    `is_over`: it holds no hosts and waits for none. `since_unix_ns`: when that state began, where
    it is told. `expected_unix_ns`: when the engine expects to start it, where it says so.
    """

    state: str
    hosts: tuple[EngineHost, ...]
    is_over: bool = False
    since_unix_ns: int | None = None
    expected_unix_ns: int | None = None


class Engine(Protocol):
    """One engine, as this machine reaches it."""

    def check(self, submission: Submission) -> None:
        """Raises ConfigurationError for what it can never start, EngineError if it is not there."""

    def preview(self, submission: Submission) -> str:
        """What would be submitted, as a text that a person can read and submit by hand.

        The engine need not be there. Raises ConfigurationError for what it can never start.
        """

    def submit(self, submission: Submission) -> Ordered:
        """Ask for the hosts, and have the command started on each. Raises EngineError."""

    def find(self, run_id: str) -> str:
        """The engine's name for a job of that run that is not over; "": there is none."""

    def standing(self, ordered: Ordered) -> OrderStanding:
        """How it stands, and each host. Raises EngineError."""

    def replace(self, ordered: Ordered, host: str, reason: str) -> str:
        """Ask for another host in the place of that one; what was done, for people.

        Raises EngineError where the engine refuses, ConfigurationError where it has no such thing.
        """

    def release(self, ordered: Ordered) -> str:
        """Give all hosts back, also those that have not come; what was done, for people."""


@runtime_checkable
class SpokenEngine(Protocol):
    """An engine whose `submit` takes its time: it says to `say` what it does meanwhile."""

    say: Callable[[str], None]


class EngineOption(NamedTuple):
    """An option of one engine: its name, and what it means."""

    name: str
    help: str


class EngineModule(Protocol):
    """What the module of an engine has, whichever it is."""

    OPTIONS: tuple[EngineOption, ...]

    def make(self, options: Mapping[str, str], environment: Mapping[str, str]) -> Engine:
        """The engine. Raises ConfigurationError: its library or program is not installed."""

    def waits(self, environment: Mapping[str, str]) -> tuple[EngineWait, ...]:
        """Asked on a host of a run: what its start waited for, by the engine's own time stamps.

        Empty: it does not say. Raises EngineError. It may take seconds; nobody waits for it.
        """
