"""The daemon's numbers for Prometheus: `holdfast-ml[metrics]`.

They are computed when they are asked for, from what the agent says of itself (`status`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PREFIX = "holdfast_agent_"


class AgentCollector:
    """What `prometheus_client` calls a collector. `read` gives the status, {} before the first."""

    def __init__(self, read: Callable[[], Mapping[str, Any]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """All metrics, from one status."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        state = self._read()
        if not state:
            return
        totals = state["totals"]
        for name, value, words in (
            ("saving", state["phase"] == "saving", "1 while processes are waited for"),
            ("announced", len(state["announced"]), "Events that are announced"),
            ("holders", len(state["holders"]), "Processes that held a device at the last look"),
            ("unreadable", state["unreadable"], "Processes that may not be looked at"),
            ("last_look_seconds", totals["last_look_s"], "How long the last look took"),
            ("deadline_timestamp_seconds", deadline(state), "The earliest deadline; 0: none"),
        ):
            yield GaugeMetricFamily(PREFIX + name, words, value=float(value))
        for name, key, words in (
            ("signalled", "signalled", "Processes that got a SIGTERM"),
            ("refused", "refused", "Signals that could not be sent"),
            ("left_behind", "left_behind", "Processes that were still there when a round was over"),
            ("looks", "looks", "Looks at all processes"),
        ):
            yield CounterMetricFamily(PREFIX + name, words, value=totals[key])
        rounds = CounterMetricFamily(
            PREFIX + "rounds", "Rounds, by how they ended", labels=["outcome"]
        )
        for outcome, count in totals["rounds"].items():
            rounds.add_metric([outcome], count)
        yield rounds
        releases = CounterMetricFamily(
            PREFIX + "releases", "Release steps, by what came of them", labels=["result"]
        )
        releases.add_metric(["done"], totals["releases"])
        releases.add_metric(["failed"], totals["failed_releases"])
        yield releases
        failures = CounterMetricFamily(
            PREFIX + "source_failures", "Failures of a source of notices", labels=["source"]
        )
        for source in state["sources"]:
            failures.add_metric([source["name"]], source["failures"])
        yield failures


def deadline(state: Mapping[str, Any]) -> float:
    """The earliest that is announced, unix seconds; 0: none."""
    known = [one["deadline_unix_s"] for one in state["announced"]]
    return min((at_s for at_s in known if at_s is not None), default=0.0)
