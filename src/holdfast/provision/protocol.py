"""What every provider of machines can do.

Questions and orders. An order says whether it was taken; what came of it is seen by describing, and
why it failed by its progress. None of them waits, and none decides anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.core.hosts.fleet import ActOutcome, Resource
from holdfast.core.hosts.wanted import Machines
from holdfast.errors import HoldfastError

RUN_LABEL = "holdfast-run"  # its value is the run's id


class ProviderError(HoldfastError):
    """A provider did not answer, or with an error: nothing is known, and nothing is decided."""

    exit_code = 69


class ProviderRefusedError(ProviderError):
    """A provider refuses to say anything: whoever asks in the same way is refused again."""

    exit_code = 78


class OrderAnswer(NamedTuple):
    """What a provider said to an order. `operation`: what to wait for, if it takes time."""

    outcome: ActOutcome
    words: str = ""
    operation: str = ""


class Provider(Protocol):
    """One provider's machines of one project and zone."""

    def describe(self, machines: Machines, name: str) -> tuple[Resource, ...]:
        """All that carry the run's label or one of its names; `name` is asked for by itself too.

        A list may lag behind; what neither it nor the question by name knows is not there. Raises
        ProviderError when that cannot be said of all.
        """

    def describe_all(self) -> tuple[Resource, ...]:
        """Everything of that project and zone. Raises ProviderError."""

    def delete(self, machines: Machines, name: str) -> OrderAnswer:
        """Have it deleted, its slices with it; one that is not there is deleted."""

    def create(self, machines: Machines, name: str) -> OrderAnswer:
        """Have it made under that name; one of that name that is there is left as it is."""

    def simulate_maintenance(self, name: str, workers: Sequence[str]) -> OrderAnswer:
        """Have maintenance of those hosts of a slice simulated, by the service itself."""

    def progress(self, operation: str) -> OrderAnswer | None:
        """What came of an order; None: it is still being carried out, or nobody can say now."""
