"""Which engines there are, by the name that users write."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from holdfast.config import RAY_WAITS_VARIABLE
from holdfast.engines.protocol import EngineModule
from holdfast.errors import ConfigurationError


class EngineRow(NamedTuple):
    """One engine: its module, imported when it is wanted, and whether a host is one of its."""

    module: str
    is_here: Callable[[Mapping[str, str]], bool]


ENGINES: dict[str, EngineRow] = {
    # Before all others: a cluster of Ray may be a job of Slurm or pods of Kubernetes itself.
    "ray": EngineRow("ray", lambda environment: RAY_WAITS_VARIABLE in environment),
    "kubernetes": EngineRow(
        "kubernetes",
        lambda found: bool(
            found.get("KUBERNETES_SERVICE_HOST") and found.get("JOB_COMPLETION_INDEX")
        ),
    ),
    "slurm": EngineRow("slurm", lambda environment: bool(environment.get("SLURM_JOB_ID"))),
    "ssh": EngineRow("ssh", lambda environment: bool(environment.get("HOLDFAST_SSH_WAITS"))),
}


def engine_module(name: str) -> EngineModule:
    """The engine of that name; raises ConfigurationError where there is none."""
    if name not in ENGINES:
        raise ConfigurationError(f"there is no engine {name!r}; there are {', '.join(ENGINES)}")
    module = importlib.import_module(f"holdfast.engines.{ENGINES[name].module}")
    return cast("EngineModule", module)


def engine_here(environment: Mapping[str, str]) -> str:
    """The engine that has started this process; "": none that is known."""
    return next((name for name, row in ENGINES.items() if row.is_here(environment)), "")


def checked_options(engine: str, options: Mapping[str, str]) -> None:
    """Raises ConfigurationError for an option that the engine does not have."""
    import difflib

    known = [one.name for one in engine_module(engine).OPTIONS]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            raise ConfigurationError(f"the engine {engine} has no option {name!r}; {hint}")
