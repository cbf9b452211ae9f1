"""Ray as an engine: what `holdfast submit` and `holdfast release` ask of it."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.core.hosts.engine import Submission
from holdfast.engines.protocol import EngineError, Ordered, OrderStanding
from holdfast.engines.ray.cluster import connect, in_a_sentence, ray_words
from holdfast.engines.ray.foreman import Foreman
from holdfast.engines.ray.options import RayOptions, kept
from holdfast.engines.ray.placing import ForemanTold, fitting, make_group, on_head, open_host
from holdfast.engines.ray.store import read_end, run_folder
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.journal.lease import view
from holdfast.journal.names import new_id

ANSWER_S = 30.0
END_S = 5.0  # of what was begun, and is taken back
FOREMAN = "holdfast"  # before a run's id
GRACE_S = 30.0


class RayEngine:
    """One cluster, as this machine reaches it."""

    def __init__(self, options: RayOptions) -> None:
        self._options = options
        self.say: Callable[[str], None] = print

    def check(self, submission: Submission) -> None:
        """That the cluster is there. How many nodes it has is its own affair: some scale."""
        del submission
        connect(self._options)

    def preview(self, submission: Submission) -> str:
        """What each host would run, and what is reserved for it."""
        options = self._options
        reserved = ", ".join(f"{name} {value:g}" for name, value in options.bundle.items())
        words = submission.run_words((*_PROGRAM,))
        lines = [
            f"cluster: {options.address or 'auto'}, namespace {options.namespace}",
            f"placement group: {submission.all_hosts} bundles, STRICT_SPREAD, each {reserved}",
            *(f"label: {name}={value}" for name, value in options.labels.items()),
            f"on each, as host INDEX: {shlex.join(words)} (with --host-index INDEX)",
        ]
        return "\n".join(lines) + "\n"

    def submit(self, submission: Submission) -> Ordered:
        """Make the foreman, which does all the rest. Raises EngineError, ConfigurationError."""
        ray = connect(self._options)
        from ray.util.placement_group import remove_placement_group

        name = _foreman_name(submission.run_id)
        order = new_id()
        told = ForemanTold(
            kept(submission).to_json(), self._told_options(), name, order,
            _newest_term(submission), _grace_s(submission),
        )  # fmt: skip
        group = foreman = None
        actors = []
        try:
            group = make_group(told)
            foreman = self._make_foreman(ray, told)
            since_unix_ns = time.time_ns()
            for index in range(submission.all_hosts):
                actors.append(
                    open_host(told, group, index, since_unix_ns=since_unix_ns, starts=True)
                )
            ray.get(foreman.standing.remote(), timeout=ANSWER_S)
        except BaseException as error:  # also Ctrl-C: nobody would know of what was made
            with contextlib.suppress(Exception):  # first who would make the rest anew
                if foreman is not None:
                    ray.kill(foreman)
                ended = [one.end.remote(True) for one in actors]
                ray.wait(ended, num_returns=len(ended), timeout=END_S)
                remove_placement_group(group)
            if isinstance(error, Exception):
                raise in_a_sentence(error) from error
            raise
        self._tell_lacking(submission)
        namespace = self._options.namespace
        job = f"{namespace}/{name}/{order}"
        return Ordered(kept(submission), job, f"Ray namespace {namespace}", time.time_ns())

    def _make_foreman(self, ray: Any, told: ForemanTold) -> Any:
        return (
            ray.remote(Foreman)
            .options(
                name=told.name,
                namespace=self._options.namespace,
                lifetime="detached",
                max_restarts=-1,
                max_concurrency=8,
                num_cpus=0,
                scheduling_strategy=on_head(ray.nodes()),
            )
            .remote(told)
        )

    def find(self, run_id: str) -> str:
        """The foreman's name, if it lives."""
        name = _foreman_name(run_id)
        return "" if self._foreman(self._options.namespace, name) is None else name

    def standing(self, ordered: Ordered) -> OrderStanding:
        """As its foreman tells; without one it is over. Raises EngineError."""
        namespace, name, order = ordered.job.rsplit("/", 2)
        if (foreman := self._foreman(namespace, name)) is None:
            with contextlib.suppress(HoldfastError):
                if (end := read_end(run_folder(ordered.submission), order)) is not None:
                    return OrderStanding(f"over with {end[0]}: {end[1]}", (), is_over=True)
            return OrderStanding("over", (), is_over=True)
        told = self._answer(foreman.standing.remote())
        return OrderStanding(told.state, told.hosts, since_unix_ns=told.since_unix_ns)

    def replace(self, ordered: Ordered, host: str, reason: str) -> str:
        """Have that node drained, and its host leave its part to a spare."""
        foreman = self._foreman_of(ordered)
        words = str(self._answer(foreman.replace.remote(host, reason)))
        if not words:
            raise ConfigurationError(f"the run has no host on node {host!r}")
        return words

    def release(self, ordered: Ordered) -> str:
        """Have the foreman give all back."""
        namespace, name, _ = ordered.job.rsplit("/", 2)
        if (foreman := self._foreman(namespace, name)) is None:
            return "nothing is held: the order is over, or its cluster is another one by now"
        return str(self._answer(foreman.release.remote()))

    def _foreman_of(self, ordered: Ordered) -> Any:
        namespace, name, _ = ordered.job.rsplit("/", 2)
        foreman = self._foreman(namespace, name)
        if foreman is None:
            raise EngineError("the order is over, or its cluster is another one by now")
        return foreman

    def _foreman(self, namespace: str, name: str) -> Any:
        ray = connect(self._options)
        try:
            return ray.get_actor(name, namespace=namespace)
        except ValueError:
            return None
        except Exception as error:  # of whatever kind: the head, or the client's server, is away
            raise EngineError(f"Ray does not answer: {ray_words(error)}") from error

    def _answer(self, ref: Any) -> Any:
        try:
            return connect(self._options).get(ref, timeout=ANSWER_S)
        except Exception as error:
            raise EngineError(f"the run's foreman does not answer: {error}") from error

    def _told_options(self) -> RayOptions:
        """What the foreman needs of them: it has the cluster, and the environment, already."""
        return replace(self._options, address="", runtime_env={})

    def _tell_lacking(self, submission: Submission) -> None:
        with contextlib.suppress(Exception):  # it is only told
            have = fitting(connect(self._options).nodes(), self._options)
            if have < submission.all_hosts:
                self.say(f"it waits for nodes: {have} of {submission.all_hosts} are there")


_PROGRAM = ("python", "-P", "-m", "holdfast.cli.main")


def _foreman_name(run_id: str) -> str:
    return f"{FOREMAN}-{run_id}"


def _newest_term(submission: Submission) -> int:
    """Of the run's controllers so far: how they have ended it is no end of this order."""
    try:
        return view(run_folder(submission)).epoch
    except HoldfastError:
        return 0


def _grace_s(submission: Submission) -> float:
    flags = list(submission.flags)
    with contextlib.suppress(ValueError, IndexError):
        return float(flags[flags.index("--grace") + 1])
    return GRACE_S
