"""A program cannot tell that it was a standby: everything that it can see is as in a cold start."""

from __future__ import annotations

import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import standing
from corpus import BESIDE, FORMS, PROGRAMS
from forking import Forking

pytestmark = pytest.mark.real

CASES = {
    **{name: ([f"see_{name}.py"], ["one", "two"]) for name in PROGRAMS},
    **FORMS,
}
SIGNALS = {"terminated": signal.SIGTERM, "handled": signal.SIGTERM}
# numpy starts threads and changes the list of warnings, whoever imports it.
WITH_NUMPY = ("late_import", "learned_import", "random_numbers")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    programs = {f"see_{name}.py": text for name, text in PROGRAMS.items()}
    for name, text in (programs | BESIDE).items():
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path / "work"


def plain(text: str) -> str:
    """Without what differs between any two processes."""
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", text)


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_same_program(
    name: str,
    folder: Path,
    imports: Path,
    imports_with_numpy: Path,
    surroundings: dict[str, str],
    stand: Callable[..., standing.Standing],
) -> None:
    words, arguments = CASES[name]
    argv = [sys.executable, *words, *arguments]
    number = SIGNALS.get(name)
    want = standing.cold(argv, folder, surroundings, number)
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache)
    learned = imports_with_numpy if name in WITH_NUMPY else imports
    standby = stand(argv, learned, folder)
    ready = standby.told()
    assert ready["event"] == "ready", ready
    standby.wake()
    got = standby.result(number)
    woken = standby.told()
    assert woken["event"] == "warm", woken
    assert plain(got.stdout) == plain(want.stdout)
    assert plain(got.stderr) == plain(want.stderr)
    assert got.code == want.code


@pytest.mark.parametrize("name", CASES)
def test_a_fork_is_the_same_program(
    name: str,
    folder: Path,
    imports: Path,
    imports_with_numpy: Path,
    surroundings: dict[str, str],
    fork_server: Callable[..., Forking],
) -> None:
    words, arguments = CASES[name]
    argv = [sys.executable, *words, *arguments]
    number = SIGNALS.get(name)
    learned = imports_with_numpy if name in WITH_NUMPY else imports
    env = {**surroundings, "HOLDFAST_IMPORTS": str(learned), "RANK": "0"}
    want = standing.cold(argv, folder, env, number, is_merged=True)
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache)
    server = fork_server(argv, learned, folder, env)
    server.until_ready()
    forked = server.fork()
    forked.told("ready")
    forked.launch()
    got = forked.result(number)
    (launched,) = forked.until("launched")
    assert launched.fields["woken"] == [0]
    assert "cold" not in forked.words
    assert plain(got.stdout) == plain(want.stdout)
    assert got.code == want.code


def test_a_library_and_the_program_have_the_same_modules(
    folder: Path,
    tmp_path: Path,
    surroundings: dict[str, str],
    stand: Callable[..., standing.Standing],
) -> None:
    """Though we use some of them ourselves, and only the library's name is known ahead.

    Nor has the user's `sitecustomize` others, which runs before both.
    """
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "a_library.py").write_text(
        "import collections.abc, contextlib, enum, json, re, signal\n"
    )
    (folder / "see_library.py").write_text(
        "import sitecustomize\n"
        "import a_library, collections.abc, contextlib, enum, json, re, signal\n"
        "ours = (collections, contextlib, enum, json, re)\n"
        "for other in (a_library, sitecustomize):\n"
        "    print(other.collections.abc is collections.abc)\n"
        "    print(*(getattr(other, one.__name__) is one for one in ours))\n"
    )
    (place / "sitecustomize.py").write_text("import collections.abc, contextlib, enum, json, re\n")
    known = filter(None, (str(place), surroundings.get("PYTHONPATH")))
    env = {**surroundings, "PYTHONPATH": ":".join(known)}
    (tmp_path / "guessed.json").write_text('{"format": 1, "guessed": ["a_library"]}')
    standby = stand([sys.executable, "see_library.py"], tmp_path / "guessed.json", folder, env)
    assert standby.told()["event"] == "ready"
    standby.wake()
    got = standby.result()
    assert standby.told()["event"] == "warm"
    assert (got.stdout.split(), got.stderr) == (["True"] * 12, "")
