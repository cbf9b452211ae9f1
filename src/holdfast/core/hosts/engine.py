"""Hosts that an engine gives (Slurm, Ray, Kubernetes, Cloud TPU), in plain parts. Pure.

    ordered = Submission(engine="slurm", run="lm", store="/shared/runs", hosts=7, spares=1, ...)
    ordered.run_words()  ==  ["holdfast", "run", "--name", "lm", "--hosts", "7", ...]
    changes(before, now)     what has happened to an engine's hosts between two looks

An engine is asked for hosts, tells about them, and takes them back. Which of them train, and
whether one is lost to the run, Holdfast decides from its own heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.core.ledger.kinds import WAIT_KINDS
from holdfast.core.value import value

MOST_HOSTS = 100_000
MOST_WORDS = 10_000  # of a command
NO_RUN = "0" * 12  # the id of a run in an order that nobody has made
KNOWN = "--known"  # of `holdfast run`: the store has that run, or is not the right one
ENGINE_WAITS = tuple(one for one in WAIT_KINDS if one in ("queue", "provision", "pull", "boot"))


class HostStage(StrEnum):
    """How far an engine's host is. `draining`: it will be taken; `gone`: it was."""

    COMING = "coming"
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"


@value
class EngineHost:
    """One host, as its engine tells of it.

    `name`: the engine's (a node, a pod, a machine). `index`: its number in the run; None: the
    engine does not know. `reason`: the engine's words. `deadline_unix_ns`: when it is taken, where
    that is told.
    """

    name: str
    stage: HostStage
    index: int | None = None
    reason: str = ""
    deadline_unix_ns: int | None = None


class HostChange(NamedTuple):
    """A host is not as it was. `before`: its stage then; None: it is new."""

    host: EngineHost
    before: HostStage | None


@value
class EngineWait:
    """For hosts, by the engine's own time stamps; `kind`: queue, provision, pull or boot."""

    kind: str
    start_unix_ns: int
    end_unix_ns: int


@value
class Submission:
    """What an engine is to start: one command on each of `hosts + spares` hosts.

    `ranks`: on each host; None: as `holdfast run` has it. `flags`: more of its options. `options`:
    the engine's own. `run_id`: of the run in the store, so that one of the same name is another.
    `save_ns`, `checkpoint_bytes`: what a save took, and the newest checkpoint's size, where the run
    has saved before.
    """

    engine: str
    run: str
    run_id: str
    store: str
    hosts: int
    spares: int
    command: tuple[str, ...]
    ranks: int | None = None
    flags: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    save_ns: int | None = None
    checkpoint_bytes: int | None = None

    @property
    def all_hosts(self) -> int:
        """Those that train and those that wait."""
        return self.hosts + self.spares

    def option(self, name: str, default: str = "") -> str:
        """The engine's own option of that name."""
        return dict(self.options).get(name, default)

    def run_words(self, program: Sequence[str] = ("holdfast",)) -> list[str]:
        """The command of every host, which is the same on all of them.

        One that is ordered is in its store already: a host that does not find it there is refused.
        """
        words = [*program, "run", "--name", self.run, "--store", self.store]
        words += ["--hosts", str(self.hosts)]
        words += ["--spares", str(self.spares)] if self.spares else []
        words += ["--ranks", str(self.ranks)] if self.ranks is not None else []
        known = [KNOWN] if self.run_id != NO_RUN else []
        return [*words, *self.flags, *known, "--", *self.command]

    def to_json(self) -> dict[str, Any]:
        """As plain data, for a file."""
        lists = {"command": list(self.command), "flags": list(self.flags)}
        return asdict(self) | lists | {"options": dict(self.options)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Submission:
        """The inverse; ValueError for what cannot be."""
        if not isinstance(raw, Mapping):
            raise ValueError("its submission is not valid")
        texts = {name: _text(raw, name) for name in ("engine", "run", "run_id", "store")}
        ranks = None if raw.get("ranks") is None else _count(raw, "ranks", 1)
        options = raw.get("options")
        if not isinstance(options, dict) or not all(isinstance(v, str) for v in options.values()):
            raise ValueError("its options are not valid")
        return cls(
            **texts,
            hosts=_count(raw, "hosts", 1),
            spares=_count(raw, "spares", 0),
            command=_words(raw, "command"),
            ranks=ranks,
            flags=_words(raw, "flags"),
            options=tuple(options.items()),
            save_ns=_known(raw, "save_ns"),
            checkpoint_bytes=_known(raw, "checkpoint_bytes"),
        )


def changes(before: Iterable[EngineHost], now: Iterable[EngineHost]) -> tuple[HostChange, ...]:
    """What has happened between two looks, by name; one that is not told of any more is gone."""
    known = {one.name: one for one in before}
    found = []
    for one in now:
        old = known.pop(one.name, None)
        if old != one:
            found.append(HostChange(one, None if old is None else old.stage))
    for old in known.values():
        if old.stage is not HostStage.GONE:
            gone = EngineHost(old.name, HostStage.GONE, old.index, "not told of any more")
            found.append(HostChange(gone, old.stage))
    return tuple(found)


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"its {key} is not valid")
    return value


def _count(raw: Mapping[str, Any], key: str, least: int) -> int:
    value = raw.get(key)
    if type(value) is not int or not least <= value <= MOST_HOSTS:
        raise ValueError(f"its {key} is not valid")
    return value


def _known(raw: Mapping[str, Any], key: str) -> int | None:
    value = raw.get(key)
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"its {key} is not valid")
    return value


def _words(raw: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = raw.get(key)
    is_right = isinstance(value, list) and len(value) <= MOST_WORDS
    if not is_right or not all(isinstance(word, str) for word in value or ()):
        raise ValueError(f"its {key} is not valid")
    return tuple(value or ())
