"""Sessions without a supervisor, as processes of tiny scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "e2e")]
import pairs  # noqa: E402, F401 - the tests here find it loaded
from processes import EXIT_DONE, House  # noqa: E402

del sys.path[:2]


@pytest.fixture
def house(store: Path, tmp_path: Path) -> Iterator[House]:
    folder = tmp_path / "work"
    folder.mkdir()
    house = House(folder, store)
    yield house
    house.close()


@pytest.fixture
def python(house: House) -> Callable[..., str]:
    """Run a script as run `r`: its output, once it has ended with the code that is expected."""

    def run(text: str, *words: object, code: int = EXIT_DONE, **env: object) -> str:
        script = house.script("import numpy as np\nimport holdfast as hf\n" + text)
        env.setdefault("HOLDFAST_NAME", "r")
        return house.start(sys.executable, script, *words, **env).wait(code)

    return run
