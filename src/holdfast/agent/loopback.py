"""The link between a controller and the host agent in the same process: a message is a call."""

from __future__ import annotations

from holdfast.agent.host_agent import HostAgent
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.report import HostReport


class Loopback:
    """A `controller.ports.Link`. Reports come through `Surroundings.reported`."""

    def __init__(self, agent: HostAgent) -> None:
        self._agent = agent

    def order(self, order: HostOrder) -> None:
        """The agent carries out what is new."""
        self._agent.obey(order)

    def report(self) -> HostReport:
        """How the host stands now."""
        return self._agent.report()
