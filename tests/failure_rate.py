"""Runs tests several times and tells how often each failed, and of what: `make tests-real`.

Every round is a pytest of its own. Tests that never failed are only counted. The exit code is 1
when any failed, or when a round did not come to its end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_ALL_PASSED, _SOME_FAILED = 0, 1  # pytest's exit codes; the others mean that it did not run them


@dataclass
class Tally:
    """What came of some rounds."""

    ran: Counter[str] = field(default_factory=Counter)
    causes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    broken: list[str] = field(default_factory=list)

    def add(self, junit: str) -> None:
        """A round, from pytest's JUnit file. An error while a test is set up or left counts too."""
        ran: set[str] = set()
        failed: dict[str, str] = {}
        for case in ET.fromstring(junit).iter("testcase"):
            name = _name(case)
            if case.find("skipped") is None:
                ran.add(name)
            for bad in (*case.findall("failure"), *case.findall("error")):
                failed.setdefault(name, _first_line(bad))
        self.ran.update(ran)
        for name, cause in failed.items():
            self.causes[name].append(cause)

    def lines(self) -> Iterable[str]:
        often = sorted(self.causes.items(), key=lambda item: (-len(item[1]), item[0]))
        for name, causes in often:
            yield f"{name}: failed {len(causes)} of {self.ran[name]}"
            for cause, times in Counter(causes).most_common():
                yield f"    {times} x {cause}"
        yield from self.broken
        failed, ran = sum(map(len, self.causes.values())), self.ran.total()
        rate = 100 * failed / ran if ran else 0.0
        yield f"{failed} of {ran:,} tests failed ({rate:.3g} %), {len(self.ran):,} different ones"


def _name(case: ET.Element) -> str:
    """As pytest takes it on its command line, so that it can be run again."""
    file = case.get("file", "")
    module = file.removesuffix(".py").replace("/", ".")
    classes = case.get("classname", "").removeprefix(module).split(".")[1:]
    return "::".join([file, *classes, case.get("name", "")])


def _first_line(bad: ET.Element) -> str:
    """Of the message, or of the traceback where there is none."""
    words = bad.get("message") or bad.text or "no cause was given"
    return words.strip().splitlines()[0]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1, help="rounds (default: 1)")
    parser.add_argument("pytest", nargs="*", help="pytest's own arguments, after --")
    asked = parser.parse_args(arguments)
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(1, asked.times + 1):
            print(f"--- round {round_} of {asked.times}", flush=True)
            junit = Path(folder) / f"{round_}.xml"
            command = [sys.executable, "-m", "pytest", "-o", "junit_family=xunit1"]
            code = subprocess.run([*command, f"--junitxml={junit}", *asked.pytest]).returncode
            if code not in (_ALL_PASSED, _SOME_FAILED):
                tally.broken.append(
                    f"round {round_} did not run to its end: pytest ended with {code}"
                )
            if junit.exists():
                tally.add(junit.read_text())
    print(f"--- {asked.times} rounds", *tally.lines(), sep="\n")
    return 1 if tally.causes or tally.broken else 0


if __name__ == "__main__":
    sys.exit(main())
