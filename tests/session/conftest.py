"""Sessions without a supervisor, as processes of tiny scripts."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import pairs  # noqa: F401 - the tests here find it loaded
from processes import EXIT_DONE, House

pytest.register_assert_rewrite("together")
import together  # noqa: E402, F401

sys.path.pop(0)


BEGINS = re.compile(r"holdfast: (Starting from scratch|Attempt \d+: .*, the newest checkpoint$)")


@pytest.fixture
def python(house: House) -> Callable[..., str]:
    """Run a script as run `r`: its output, once it has ended with the code that is expected.

    Without what Holdfast says first, from which checkpoint it goes on.
    """

    def run(text: str, *words: object, code: int = EXIT_DONE, **env: object) -> str:
        script = house.script("import numpy as np\nimport holdfast as hf\n" + text)
        env.setdefault("HOLDFAST_NAME", "r")
        out = house.start(sys.executable, script, *words, **env).wait(code)
        return "\n".join(line for line in out.splitlines() if not BEGINS.match(line))

    return run
