"""One target under libFuzzer (atheris), for `make fuzz`: coverage leads where random does not.

    python tests/fuzz/engine.py TARGET -max_total_time=60 CORPUS_FOLDER

Any exception that a reader may not raise ends the process; libFuzzer leaves the bytes behind.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["holdfast", "tomllib"]):
    sys.path.insert(0, str(Path(__file__).parent))
    from fuzz_seeds import fuzz_folder
    from fuzz_targets import TARGETS


def main() -> None:
    """Seed the corpus, then fuzz until libFuzzer's time is over."""
    target = TARGETS[sys.argv.pop(1)]
    corpus = Path(sys.argv[-1])
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    place = fuzz_folder()

    def one(data: bytes) -> None:
        target.run(data, place)

    def mutated(data: bytes, max_bytes: int, seed: int) -> bytes:
        """Half the time what a person would think of, half the time libFuzzer's own."""
        rng = random.Random(seed)
        if rng.random() < 0.5:
            return atheris.Mutate(data, max_bytes)
        return target.mutate(rng, data)[:max_bytes]

    options = [f"-max_len={target.max_bytes}", *sys.argv[1:]]
    atheris.Setup([sys.argv[0], *options], one, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
