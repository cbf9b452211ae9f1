"""Which sources there are, and which of them a run listens to: what `--notice` says."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

from holdfast.config.kinds import AUTO, OFF
from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.backoff import Backoff
from holdfast.core.value import value
from holdfast.errors import ConfigurationError
from holdfast.notices import found
from holdfast.notices.protocol import (
    Clocks,
    NoticeSource,
    SourceModule,
    SourceSurroundings,
    Tools,
)


class SourceRow(NamedTuple):
    """One source: its module, imported when it is wanted, and what finds it.

    `longest_wait_s`: between two tries of a watch in trouble.
    """

    module: str
    detect: Callable[[SourceSurroundings], str]
    longest_wait_s: int = 5  # the shortest warnings come 30 s ahead


# One line a source, by the name that users write. One server answers all hosts of `kubernetes`,
# `slurm` and `tpu`: it is given more time.
SOURCES: dict[str, SourceRow] = {
    "aws": SourceRow("aws", found.aws),
    "azure": SourceRow("azure", found.azure),
    "file": SourceRow("file", found.nowhere),
    "gce": SourceRow("gce", found.gce),
    "kubernetes": SourceRow("kubernetes", found.kubernetes, longest_wait_s=15),
    "signal": SourceRow("signals", found.nowhere),
    "slurm": SourceRow("slurm", found.slurm, longest_wait_s=60),
    "tpu": SourceRow("tpu", found.nowhere, longest_wait_s=30),
}


@value
class WantedSource:
    """A source to listen to, and why: because the user said so, or because it is there."""

    name: str
    option: str
    why: str

    @property
    def backoff(self) -> Backoff:
        """How long a watch of it that is in trouble waits before it asks again."""
        return Backoff(cap_ns=SOURCES[self.name].longest_wait_s * SECOND_NS)

    def make(self, tools: Tools, around: SourceSurroundings) -> NoticeSource:
        """The source itself; raises ConfigurationError for an option that is not valid."""
        module = importlib.import_module(f"holdfast.notices.{SOURCES[self.name].module}")
        return cast("SourceModule", module).make(self.option, tools, around)


def wanted(text: str, around: SourceSurroundings) -> tuple[WantedSource, ...]:
    """The sources of a setting: `off`, or names with options, `auto` among them for those found.

    A source that is both named and found is there once, as named. Raises ConfigurationError for a
    name that is none.
    """
    if text == OFF:
        return ()
    named: list[WantedSource] = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, option = part.partition(":")
        if name == AUTO and not option:
            continue
        if name not in SOURCES:
            raise ConfigurationError(
                f"{name!r} is no source of notices; there are {', '.join(SOURCES)}, and `auto` "
                "and `off`"
            )
        named.append(WantedSource(name, option, "as set"))
    if AUTO in (one.strip() for one in text.split(",")):
        known = {one.name for one in named}
        reasons = {name: row.detect(around) for name, row in SOURCES.items() if name not in known}
        named += [WantedSource(name, "", why) for name, why in reasons.items() if why]
    return tuple(named)


def check_options(sources: Iterable[WantedSource], around: SourceSurroundings) -> None:
    """Raise ConfigurationError for an option that is not valid: before a run is made for it."""

    async def sleep(_s: float) -> None:
        """Nothing is watched."""

    for one in sources:
        one.make(Tools(lambda: Clocks(0, 0), sleep), around)
