"""Machines that are there already, reached over SSH: `holdfast submit --engine ssh`.

The working tree is pushed to all of them, the user's command installs what it needs, and each runs
`holdfast run` in a session of its own. Nothing but SSH and Python is asked of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.hosts.engine import ENGINE_WAITS, EngineWait
from holdfast.engines.protocol import Engine, EngineOption
from holdfast.engines.ssh.words import WAITS_VARIABLE

OPTIONS = (
    EngineOption("hosts", "The hosts, as ssh takes them: a,b,c, or @FILE with one a line."),
    EngineOption("push", "The folder to push [default: the present one]."),
    EngineOption("exclude", "Patterns of what is left out of it, with commas between them."),
    EngineOption("install", "A shell's line that each host runs in the tree."),
    EngineOption("program", "Holdfast's command over there [default: holdfast]."),
    EngineOption("user", "The user over there."),
    EngineOption("key", "The file with the key, as of ssh -i."),
    EngineOption("ssh-config", "The client's configuration, as of ssh -F."),
    EngineOption("relay", "Off: hosts do not give the tree to one another."),
)


def make(options: Mapping[str, str], environment: Mapping[str, str]) -> Engine:
    """The engine. Raises ConfigurationError where there is no SSH client, or an option is wrong."""
    from holdfast.engines.ssh.engine import SshEngine

    return SshEngine.of(options, environment)


def waits(environment: Mapping[str, str]) -> tuple[EngineWait, ...]:
    """What this start waited for on its host: its boot, and the push with the install."""
    found = []
    for text in filter(None, environment.get(WAITS_VARIABLE, "").split(",")):
        kind, _, times = text.partition(":")
        start, _, end = times.partition(":")
        if kind in ENGINE_WAITS and start.isdecimal() and end.isdecimal():
            found.append(EngineWait(kind, int(start), int(end)))
    return tuple(found)
