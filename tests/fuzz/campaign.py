"""`make fuzz`: every reader for FUZZ_SECONDS under a coverage-guided engine, and what came of it.

    python tests/fuzz/campaign.py [TARGET …]

What breaks a reader is kept as tests/fuzz/corpus/TARGET/…, which `make test` replays for ever.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
RSS_LIMIT_MB = 1024
GRACE_S = 120  # start, seeds and a last input, on a busy machine

sys.path.insert(0, str(HERE))
from fuzz_seeds import MEMORY  # noqa: E402
from fuzz_targets import TARGETS  # noqa: E402

sys.path.pop(0)


class Outcome(NamedTuple):
    """What one target did."""

    name: str
    executions: int
    per_s: int
    edges: int
    findings: list[Path]
    words: str


def fuzz(name: str, seconds: int) -> Outcome:
    """Run one target in a process of its own."""
    kept = HERE / "corpus" / name
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-", dir=MEMORY) as folder:
        corpus = Path(folder) / "corpus"  # libFuzzer ends without a word: all is removed here
        corpus.mkdir()
        for path in kept.glob("*"):
            (corpus / path.name).write_bytes(path.read_bytes())
        crash = corpus / "found-"
        command = [
            sys.executable, str(HERE / "engine.py"), name, f"-max_total_time={seconds}",
            f"-rss_limit_mb={RSS_LIMIT_MB}", "-timeout=60", "-print_final_stats=1",
            f"-artifact_prefix={crash}", str(corpus),
        ]  # fmt: skip
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=seconds + GRACE_S,
            check=False,
            env={**os.environ, "FUZZ_FOLDER": folder},
        )
        text = done.stderr.decode(errors="replace") + done.stdout.decode(errors="replace")
        found = []
        for path in sorted(corpus.glob("found-*")):
            kept.mkdir(parents=True, exist_ok=True)
            found.append(kept / path.name.removeprefix("found-"))
            found[-1].write_bytes(path.read_bytes())
    executions = _last(r"number_of_executed_units: (\d+)", text) or _last(r"#(\d+)\t", text)
    return Outcome(
        name,
        executions,
        executions // max(1, seconds),
        _last(r"cov: (\d+)", text),
        found,
        "" if done.returncode == 0 else _story(text),
    )


def _last(pattern: str, text: str) -> int:
    return max((int(number) for number in re.findall(pattern, text)), default=0)


def _story(text: str) -> str:
    """The traceback of what broke, or the end of what was said."""
    start = text.find("=== Uncaught Python exception: ===")
    return text[start : start + 4000] if start >= 0 else text[-2000:]


def main() -> int:
    """Fuzz all targets, or those that are named; 1 when something was found."""
    seconds = int(os.environ.get("FUZZ_SECONDS", "60"))
    names = sys.argv[1:] or list(TARGETS)
    outcomes = []
    print(f"{'reader':<16}{'executions':>12}{'a second':>10}{'edges':>8}{'findings':>10}")
    for name in names:
        one = fuzz(name, seconds)
        outcomes.append(one)
        count = len(one.findings) or bool(one.words)
        print(f"{name:<16}{one.executions:>12,}{one.per_s:>10,}{one.edges:>8,}{count:>10}")
        if one.words:
            print(one.words, *one.findings, sep="\n", flush=True)
        sys.stdout.flush()
    broken = [one.name for one in outcomes if one.words]
    print(f"broken: {', '.join(broken)}" if broken else f"{len(names)} readers, nothing found")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
