"""What every host is to have, and to run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.core.hosts.engine import Submission
from holdfast.core.hosts.reach import HostWanted
from holdfast.engines.ssh.archive import PackedTree
from holdfast.engines.ssh.words import Target

SECRET = "\0secret"  # noqa: S105 - stands in a host's words for a file in a place of its own


@dataclass(frozen=True, slots=True)
class PushJob:
    """What every host is to have, and to run.

    `install`: a line for a shell, by the user; "": nothing. `secret`: the text of the file for
    `--secret-file`; None: the run has none. `program`: Holdfast's command over there.
    """

    submission: Submission
    tree: PackedTree
    install: str = ""
    secret: str | None = None
    program: tuple[str, ...] = ("holdfast",)
    environment: tuple[tuple[str, str], ...] = ()
    has_relay: bool = True

    @property
    def wanted(self) -> HostWanted:
        """As the core compares it."""
        return HostWanted(self.tree.digest, self.install_digest)

    @property
    def install_digest(self) -> str:
        """Of the command, with what it is to leave behind."""
        return f"{self.install}\n{' '.join(self.program)}"

    def words(self, target: Target, address: str) -> list[str | None]:
        """The command of one host; None stands for its secret's file."""
        flags = [*self.submission.flags, "--host-index", str(target.index)]
        flags += ["--slice", target.slice] if target.slice else []
        flags += ["--host-address", address] if address else []
        flags += ["--secret-file", SECRET] if self.secret is not None else []
        words = replace(self.submission, flags=tuple(flags)).run_words(self.program)
        return [None if one == SECRET else one for one in words]
