"""Bytes of real text, in random windows whose order is a function of the seed alone."""

from __future__ import annotations

import sysconfig
import zlib
from pathlib import Path

import numpy as np

HELD_OUT = 0.02  # the last share of the corpus, for evaluation


def read_corpus(path: Path | None, window: int):
    """(train, held_out), uint8: a file, all files of a folder, or (None) this Python's own library.

    Of the library its modules, not its packages: reading 1,800 small files took a restart 0.2 s.
    Files are joined in the order of their paths, so that the same files are the same corpus. Each
    part must hold at least one window of that many bytes.
    """
    if path is None:
        files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    else:
        files = [path] if path.is_file() else [f for f in sorted(path.rglob("*")) if f.is_file()]
    corpus = np.frombuffer(b"\n".join(f.read_bytes() for f in files), np.uint8)
    cut = len(corpus) - int(len(corpus) * HELD_OUT)
    if len(corpus) - cut < window:
        needed = int(window / HELD_OUT) + 100
        raise SystemExit(f"the text in {path} has {len(corpus)} bytes; give at least {needed}")
    return corpus[:cut], corpus[cut:]


class Windows:
    """An endless iterator of uint8 batches [batch, length], each window at a random place.

    Batch n depends on the seed and n only, so the position in the data is one integer. Of several
    ranks, each takes its own rows of the same batch: [batch / ranks, length].
    """

    def __init__(self, corpus, batch: int, length: int, seed: int, rank: int = 0, ranks: int = 1):
        if batch % ranks:
            raise SystemExit(f"{ranks} ranks cannot share a batch of {batch} evenly")
        self.corpus, self.batch, self.length, self.seed = corpus, batch, length, seed
        self.rows = slice(rank * batch // ranks, (rank + 1) * batch // ranks)
        self.drawn = 0
        self.checksum = zlib.crc32(corpus)

    def __iter__(self):
        return self

    def __next__(self):
        places = np.random.default_rng([self.seed, self.drawn])
        starts = places.integers(len(self.corpus) - self.length + 1, size=self.batch)
        self.drawn += 1
        return self.corpus[starts[self.rows, None] + np.arange(self.length)]

    def get_state(self):
        return {"drawn": self.drawn, "seed": self.seed, "corpus": self.checksum}

    def set_state(self, state):
        mine = self.get_state()
        if {**state, "drawn": 0} != {**mine, "drawn": 0}:
            raise ValueError(f"the checkpoint was trained on other data: {state}, here {mine}")
        self.drawn = state["drawn"]
