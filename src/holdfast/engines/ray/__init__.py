"""Ray: a run's agents on the nodes of a Ray cluster (`holdfast submit --engine ray`).

foreman.py   a detached actor: holds the placement group, and looks after all agents
host.py      an actor beside each agent: starts it, tells how it is
keeper.py    a process between them, so that an agent outlives its actor and its raylet
engine.py    what `holdfast submit` and `release` ask
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.config import RAY_WAITS_VARIABLE
from holdfast.core.hosts.engine import EngineWait
from holdfast.engines.protocol import EngineOption
from holdfast.engines.ray.options import read_options

if TYPE_CHECKING:
    from holdfast.engines.ray.engine import RayEngine

OPTIONS = (
    EngineOption("address", "Of the cluster: HOST:PORT, ray://HOST:PORT or auto (RAY_ADDRESS)."),
    EngineOption("num_cpus", "CPUs that Ray reserves on each host; 1 if nothing is said."),
    EngineOption("gpus", "GPUs that Ray reserves on each host, and the run sees."),
    EngineOption("resources", 'More that Ray reserves on each host, as JSON: {"TPU": 4}.'),
    EngineOption("labels", 'What a node must be, as JSON: {"ray.io/accelerator-type": "H100"}.'),
    EngineOption("cwd", "The folder on each node in which the command starts."),
    EngineOption("working_dir", "A folder from here that Ray takes to the nodes, to start in."),
    EngineOption("runtime_env", 'Ray\'s runtime environment, as JSON: {"env_vars": {"A": "b"}}.'),
    EngineOption("namespace", "Ray's namespace of the actors; holdfast if nothing is said."),
)


def make(options: Mapping[str, str], environment: Mapping[str, str]) -> RayEngine:
    """The engine, which looks for Ray when it needs it.

    Raises ConfigurationError for an option that is not valid.
    """
    from holdfast.engines.ray.engine import RayEngine

    return RayEngine(read_options(options, environment))


def waits(environment: Mapping[str, str]) -> tuple[EngineWait, ...]:
    """As the foreman has told this agent: until it had a node, and until its actor was there."""
    try:
        told = json.loads(environment.get(RAY_WAITS_VARIABLE, "{}"))
        found = [EngineWait(kind, int(start), int(end)) for kind, start, end in told["waits"]]
    except (ValueError, TypeError, KeyError):
        return ()
    return tuple(one for one in found if one.end_unix_ns > one.start_unix_ns)
