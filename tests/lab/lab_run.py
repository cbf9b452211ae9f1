"""One run on all hosts of a lab: what the tests of several hosts start, hold and look at."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from lab import Lab, LabProcess
from processes import EXIT_DONE, TRAINER

LOST_S = 2


class RunInLab:
    """One run on all hosts of a lab, of which some are spares. `env`: of the trainer.

    `lost_s`: the silence after which a host is lost; longer where much else is started meanwhile.
    `is_indexed_job`: as in Kubernetes, the environment says which host it is, and no flag.
    """

    def __init__(
        self,
        lab: Lab,
        spares: int,
        elastic: int | None = None,
        trainer: Path = TRAINER,
        env: Mapping[str, object] = {},
        name: str = "r",
        lost_s: float = LOST_S,
        *,
        is_indexed_job: bool = False,
    ) -> None:
        self.lab = lab
        self._name, self._env, self._lost_s = name, env, lost_s
        self._trainer = trainer
        self._spares = spares
        self._is_indexed_job = is_indexed_job
        self._elastic = elastic
        self._allow = lab.shared / "allow"

    def allow(self, step: int) -> None:
        """Steps up to that may begin."""
        draft = self._allow.with_suffix(".new")
        draft.write_text(str(step))
        draft.replace(self._allow)

    def start(self, index: int, steps: int, *flags: object) -> LabProcess:
        """The same command on each host."""
        count = len(self.lab.hosts) - self._spares
        words = ["--hosts", count, "--spares", self._spares]
        words += [] if self._is_indexed_job else ["--host-index", index]
        words += ["--name", self._name, "--save-every", 3, "--host-lost", self._lost_s, *flags]
        words += ["--elastic", self._elastic] if self._elastic else []
        host = self.lab.hosts[index]
        env = {
            "HOLDFAST_STORE": self.lab.shared / "store",
            "HOLDFAST_SCRATCH": self.lab.own / f"scratch-{index}",
            "HOLDFAST_NOTICE": "off",
            "ALLOW": self._allow,
            **self._env,
        }
        if self._elastic:
            env["SAVE_AT"] = 5
        if self._is_indexed_job:
            env["JOB_COMPLETION_INDEX"] = index
        run = [sys.executable, "-m", "holdfast.cli.main", "run", *words]
        return host.start([*run, "--", sys.executable, self._trainer, steps], env=env)

    def report(self) -> str:
        """As JSON, told by a host that is on."""
        words = ["report", self._name, "--json", "--store", self.lab.shared / "store"]
        host = self.lab.hosts[0]
        return host.start([sys.executable, "-m", "holdfast.cli.main", *words]).wait(EXIT_DONE)

    def start_all(self, steps: int, *flags: object) -> list[LabProcess]:
        return [self.start(host.index, steps, *flags) for host in self.lab.hosts]
