"""Everything in turn: `python bench/run.py [--quick]`. Each part also runs alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PARTS = {
    "session.py": (["--rounds", "11"], ["--rounds", "5"]),
    "journal.py": ([], ["--batches", "10", "--rounds", "3"]),
    "ledger.py": ([], ["--peer-steps", "100000"]),
    "history.py": ([], ["--rounds", "2"]),
    "dropin.py": ([], ["--rounds", "2", "--peer-steps", "100000"]),
    "page.py": ([], ["--rounds", "2"]),
    "simulate.py": ([], ["--rounds", "2"]),
    "core.py": ([], ["--rounds", "2"]),
    "faults.py": ([], ["--rounds", "5"]),
    "notices.py": ([], ["--rounds", "3", "--idle", "10"]),
    "agent.py": ([], ["--idle", "10"]),
    "restart.py": ([], ["--kills", "3", "lm:2", "torch_lm:2"]),
    "compile.py": ([], ["--rounds", "2"]),
    "checkpoint.py": ([], ["--gib", "0.25", "--rounds", "3"]),
    "flush.py": ([], ["--gib", "0.25", "--rounds", "3"]),
    "one_model.py": ([], ["--rounds", "3"]),
    "copy_in_parts.py": ([], ["--rounds", "5"]),
}


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    failed = []
    for part, (full, short) in PARTS.items():
        print(f"\n--- {part}", flush=True)
        command = [sys.executable, str(HERE / part), *(short if quick else full)]
        if subprocess.run(command, check=False).returncode:
            failed.append(part)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
