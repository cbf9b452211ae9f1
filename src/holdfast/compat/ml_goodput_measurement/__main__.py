"""The face's commands: where its shadow is, and old logs accounted for anew."""

from __future__ import annotations

import sys
from pathlib import Path

USAGE = """\
usage: python -m holdfast.compat.ml_goodput_measurement path
       python -m holdfast.compat.ml_goodput_measurement reaccount FILE [--job NAME] [--json]

path       the folder that makes scripts use Holdfast's face when it is first in PYTHONPATH
reaccount  a job's exported log entries: where its time went, and where the old number was wrong
"""
SHADOW = Path(__file__).parents[1] / "shadow"


def main(arguments: list[str]) -> int:
    """Run one command; gives the exit code."""
    match arguments:
        case ["path"]:
            print(SHADOW)
            return 0
        case ["reaccount", *rest]:
            from holdfast.compat.ml_goodput_measurement.reaccount import command

            return command(rest)
        case ["--help"] | ["-h"]:
            print(USAGE, end="")
            return 0
    print(USAGE, end="", file=sys.stderr)
    return 78


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
