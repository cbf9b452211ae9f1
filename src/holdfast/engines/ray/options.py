"""The options of the engine Ray, read and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.core.hosts.engine import Submission
from holdfast.errors import ConfigurationError

NAMESPACE = "holdfast"
ADDRESS_VARIABLE = "RAY_ADDRESS"
EARLY = ("PYTHON", "LD_", "RAY_")  # variables that the interpreter, the loader or Ray reads first
_OF_THE_START = ("runtime_env", "working_dir")


@dataclass(frozen=True, slots=True)
class RayOptions:
    """`bundle`: what is reserved on each host. `address` "": as Ray finds it.

    `variables`: of the environment, which the actors take on by themselves. For an environment that
    Ray makes it starts processes of their own, which takes seconds.
    """

    address: str = ""
    namespace: str = NAMESPACE
    bundle: dict[str, float] = field(default_factory=lambda: {"CPU": 1.0})
    labels: dict[str, str] = field(default_factory=dict)
    runtime_env: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    cwd: str = ""

    @property
    def plain_labels(self) -> dict[str, str]:
        """Those that name one value; others are for Ray: `!A`, `in(A, B)`."""
        rules = ("!", "in(")
        return {name: text for name, text in self.labels.items() if not text.startswith(rules)}


def read_options(options: Mapping[str, str], environment: Mapping[str, str]) -> RayOptions:
    """Raises ConfigurationError for what cannot be meant."""
    address = options.get("address") or environment.get(ADDRESS_VARIABLE, "")
    if address.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"the address {address!r} is that of Ray's dashboard; the cluster's own is HOST:6379 "
            "on its nodes, and ray://HOST:10001 from elsewhere"
        )
    if address == "local":
        raise _wrong("address", "local is a cluster that ends with this command")
    bundle = {"CPU": _number(options, "num_cpus", "1"), "GPU": _number(options, "gpus", "0")}
    for name, value in _object(options, "resources").items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise _wrong("resources", f"{name} is no number")
        bundle[name] = float(value)
    bundle = {name: value for name, value in bundle.items() if value}
    if not bundle:
        raise ConfigurationError("a host of Ray needs something that is reserved: num_cpus or gpus")
    labels = _object(options, "labels")
    if not all(isinstance(value, str) for value in labels.values()):
        raise _wrong("labels", "a label is a text")
    runtime_env = _runtime_env(options)
    return RayOptions(
        address="" if address == "auto" else address,
        namespace=options.get("namespace") or NAMESPACE,
        bundle=bundle,
        labels=labels,
        variables=_own_variables(runtime_env),
        runtime_env=runtime_env,
        cwd=options.get("cwd", ""),
    )


def kept(submission: Submission) -> Submission:
    """What is written into the store: without the runtime environment, which may hold secrets.

    Nor is its folder needed again: to ask of the run, nothing is brought to the cluster.
    """
    options = tuple(one for one in submission.options if one[0] not in _OF_THE_START)
    return replace(submission, options=options)


def _runtime_env(options: Mapping[str, str]) -> dict[str, Any]:
    found = _object(options, "runtime_env")
    folder = options.get("working_dir", "")
    if not folder:
        return found
    if "://" not in folder:
        if not Path(folder).is_dir():
            raise _wrong("working_dir", f"{folder!r} is no folder here")
        folder = str(Path(folder).resolve())
    return {**found, "working_dir": folder}


def _own_variables(runtime_env: dict[str, Any]) -> dict[str, str]:
    """Those that are taken out of it: all, unless one counts before the interpreter is there."""
    found = runtime_env.get("env_vars", {})
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise _wrong("runtime_env", "its env_vars are no texts")
    if any(name.startswith(EARLY) for name in found):
        return {}
    runtime_env.pop("env_vars", None)
    return found


def _number(options: Mapping[str, str], name: str, default: str) -> float:
    text = options.get(name, default)
    try:
        value = float(text)
    except ValueError:
        raise _wrong(name, f"{text!r} is no number") from None
    if not 0 <= value < 1e6:
        raise _wrong(name, f"{text!r} is no number of them")
    return value


def _object(options: Mapping[str, str], name: str) -> dict[str, Any]:
    text = options.get(name, "")
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _wrong(name, f"{text[:60]!r} is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise _wrong(name, f"{text[:60]!r} is no JSON object")
    return found


def _wrong(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"--option {name} is not valid: {why}")
