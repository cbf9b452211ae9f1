"""What makes another program, and what does not, by the fingerprint of a function's reach.

Each source is a module of the user's own, loaded in this process; its fingerprint is taken while
it is loaded, and two versions of it are compared.
"""

from __future__ import annotations

import copy
import importlib.util
import math
import os
import struct
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.session import fingerprint as fingerprints
from holdfast.session import own_code
from holdfast.session.fingerprint import Fingerprint
from holdfast.session.own_code import UnfathomableError, stamps_of

NAME = "fingerprinted_step"
TESTS = Path(__file__).parents[1]
Digest = Callable[..., str]


def of_value(value: object) -> str:
    """The digest of one value, without the files of the user's modules: here, all tests'."""
    fingerprint = Fingerprint()
    fingerprint.add(value, "it")
    with mock.patch.object(fingerprints, "own_modules", return_value=()):
        return fingerprint.hexdigest()


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Digest]:
    """`digest(source)`: of the function `step` of a user's module of that source.

    `beside`: other modules of the user's, which it imports; `describe` as Fingerprint's.
    """
    loaded: list[str] = []
    everybody = own_code.own_modules

    def theirs() -> list[tuple[str, Path]]:
        return [(name, path) for name, path in everybody() if TESTS not in path.parents]

    monkeypatch.setattr(fingerprints, "own_modules", theirs)  # the tests' modules are many

    def load(name: str, source: str) -> Any:
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loaded.append(name)
        # Not through a cached .pyc: two versions may be of one size, made in one second.
        exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
        return module

    def taken(source: str, *, describe: Any = None, **beside: str) -> str:
        for name, text in beside.items():
            load(name, text)
        step = load(NAME, source).step
        fingerprint = Fingerprint(describe) if describe else Fingerprint()
        fingerprint.add(step, "step")
        return fingerprint.hexdigest()

    yield taken
    for name in loaded:
        sys.modules.pop(name, None)


# --- what must not count ------------------------------------------------------------------------


def test_the_same_source_loaded_twice_is_the_same_program(digest: Digest) -> None:
    source = """
        RATE, NAMES = 0.5, {"a": [1, 2.5], "b": (None, True)}

        def scaled(x):
            return x * RATE

        def step(x, by=2):
            return [scaled(x) for _ in range(by)], NAMES, lambda y: y + len(NAMES)
        """
    assert digest(source) == digest(source)


def test_an_object_that_poses_as_a_module_is_none_of_the_users(
    digest: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torch.classes` names a file that nobody has."""

    class Posing(types.ModuleType):
        __file__ = "_posing.py"

    before = digest("def step(x): return x")
    monkeypatch.setitem(sys.modules, "posing", Posing("posing"))
    assert digest("def step(x): return x") == before


def test_a_module_whose_file_is_gone_is_a_refusal(
    digest: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("gone")
    module.__file__ = "/nowhere/gone.py"
    monkeypatch.setitem(sys.modules, "gone", module)
    with pytest.raises(UnfathomableError, match=r"/nowhere/gone\.py cannot be read: No such file"):
        digest("def step(x): return x")


PROGRAM = """
import functools

def made(rate):
    def step(x):
        return x * rate
    return step

class Layer:
    def __init__(self, width):
        self.width = width
    def __call__(self, x):
        return x * self.width

table, names = {"a": 1, "b": [2, 3]}, frozenset({"x", "y", "z", "a longer one"})
layer, bound = Layer(3), functools.partial(max, 1)
def step(x, by=2):
    return made(0.5)(x) + layer(x) + bound(by), table, names
"""


@pytest.mark.real
def test_another_process_comes_to_the_same(tmp_path: Path) -> None:
    """With other ids and other hashes; else no restart would ever find its program."""
    script = tmp_path / "train.py"
    told = "from holdfast.session.fingerprint import Fingerprint\none = Fingerprint()\n"
    told += "one.add(step, 'step')\nprint(one.hexdigest())\n"
    script.write_text(PROGRAM + told)
    digests = {
        subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_what_nobody_reads_does_not_count(digest: Digest) -> None:
    """A value may change as the run goes on: only those that the step can reach are looked at."""
    source = "count = 1\ndef step(x):\n    return x\n"
    one = digest(source.format(1))
    module = sys.modules[NAME]
    module.count = 2  # type: ignore[attr-defined]
    fingerprint = Fingerprint()
    fingerprint.add(module.step, "step")
    assert fingerprint.hexdigest() == one


# --- what must count ----------------------------------------------------------------------------

BASE = """
import math
import beside

RATE = 0.5
TABLE = {"a": 1, "b": [2, 3]}

class Layer:
    slope = 3
    def __init__(self, width):
        self.width = width
    def __call__(self, x):
        return x * self.width

def inner(x):
    return x + RATE

def make(factor):
    def step(x, by=2, *, to=5):
        return inner(x) * factor + by + to + LAYER(x) + TABLE["a"] + math.sqrt(4) + beside.helper(x)
    return step

LAYER = Layer(7)
step = make(10)
"""
BESIDE = "LIMIT = 4\ndef helper(x):\n    return x - LIMIT\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RATE = 0.5", "RATE = 0.25"),
        ("RATE = 0.5", "RATE = 1"),
        ("x + RATE", "x - RATE"),
        ("make(10)", "make(11)"),
        ("make(10)", "make(10.0)"),
        ("make(10)", "make(True)"),
        ("by=2", "by=3"),
        ("to=5", "to=6"),
        ('"a": 1', '"a": 2'),
        ("[2, 3]", "[3, 2]"),
        ("[2, 3]", "(2, 3)"),
        ("Layer(7)", "Layer(8)"),
        ("x * self.width", "x / self.width"),
        ("math.sqrt", "math.exp"),
        ("math.sqrt(4)", "math.sqrt(5)"),
        ("inner(x) * factor", "factor * inner(x)"),
    ],
)
def test_a_change_that_the_trace_can_see(digest: Digest, old: str, new: str) -> None:
    assert BASE.count(old) == 1
    assert digest(BASE, beside=BESIDE) != digest(BASE.replace(old, new), beside=BESIDE)


@pytest.mark.parametrize(("old", "new"), [("= 4", "= 5"), ("x - LIMIT", "LIMIT - x")])
def test_a_change_in_another_module_of_the_users(digest: Digest, old: str, new: str) -> None:
    assert digest(BASE, beside=BESIDE) != digest(BASE, beside=BESIDE.replace(old, new))


@pytest.mark.parametrize(
    "change",
    [
        lambda module: setattr(module, "RATE", 0.25),
        lambda module: module.TABLE.update(a=2),
        lambda module: module.TABLE["b"].append(4),
        lambda module: setattr(module.LAYER, "width", 8),
        lambda module: setattr(module, "inner", math.sqrt),
        lambda module: setattr(sys.modules["beside"], "LIMIT", 5),
        lambda module: setattr(sys.modules["beside"], "helper", module.inner),
        lambda module: setattr(module.step, "__defaults__", (3,)),
        lambda module: setattr(module.step.__closure__[0], "cell_contents", 11),
    ],
)
def test_a_value_that_was_changed_after_it_was_loaded(
    digest: Digest, change: Callable[[Any], object]
) -> None:
    """The files are the same: it is the values in reach that differ."""
    before = digest(BASE, beside=BESIDE)
    module = sys.modules[NAME]
    change(module)
    fingerprint = Fingerprint()
    fingerprint.add(module.step, "step")
    assert fingerprint.hexdigest() != before


def test_any_edit_of_the_users_files_counts(digest: Digest) -> None:
    """Too much, never too little: a remark is told from code by nobody here."""
    plain = "def step(x):\n    return x\n"
    assert digest(plain) != digest(plain + "# a remark\n")


# --- values -------------------------------------------------------------------------------------

scalars = st.booleans() | st.integers() | st.floats() | st.complex_numbers()
atoms = st.none() | scalars | st.text() | st.binary()
values = st.recursive(
    atoms | st.frozensets(st.integers() | st.text(), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)


def told(value: Any) -> Any:
    """A value in words that differ whenever a trace may: types, order, signs of zero."""
    if isinstance(value, dict):
        return "dict", [(told(key), told(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [told(item) for item in value]
    if isinstance(value, frozenset):
        return "frozenset", sorted(map(repr, map(told, value)))
    if isinstance(value, float):  # a NaN is not equal to itself
        return "float", struct.pack("<d", value).hex()
    return type(value).__name__, repr(value)


@given(one=values, other=values)
def test_values_are_the_same_where_their_words_are(one: Any, other: Any) -> None:
    assert of_value(one) == of_value(copy.deepcopy(one))
    assert (of_value(one) == of_value(other)) == (told(one) == told(other))


def test_what_is_shared_is_not_what_is_equal() -> None:
    """A trace can tell one list that stands twice from two that are equal: it may change one."""
    shared: list[int] = [1]
    assert of_value([shared, shared]) != of_value([[1], [1]])


def test_what_holds_itself_comes_to_an_end() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    other: list[Any] = [2]
    other.append(other)
    assert of_value(ring) != of_value(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(3), np.zeros(4)),
        (np.zeros(3), np.zeros(3, np.float32)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.zeros(3), np.array([0.0, 0.0, 1.0])),
        (np.float32(1), np.float64(1)),
        (np.dtype("int8"), np.dtype("uint8")),
        (np.sin, np.cos),
        (range(3), range(4)),
        (slice(1), slice(2)),
    ],
    ids=repr,
)
def test_other_kinds_of_values(one: object, other: object) -> None:
    assert of_value(one) == of_value(one)
    assert of_value(one) != of_value(other)


def test_what_a_framework_describes_is_known_by_its_description(digest: Digest) -> None:
    source = "class Mesh:\n    pass\nmesh = Mesh()\ndef step(x):\n    return x, mesh\n"

    def described(words: str) -> Callable[[object], object | None]:
        return lambda value: words if type(value).__name__ == "Mesh" else None

    two, four = (digest(source, describe=described(words)) for words in ("2 by 1", "2 by 2"))
    assert two != four


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import os\ndef step(x):\n    return os.environ", "uses the module os"),
        ("import time\ndef step(x):\n    return time.time()", "uses the module time"),
        ("from time import time\ndef step(x):\n    return time()", "uses the module time"),
        ("import random\ndef step(x):\n    return random.random()", "uses the module random"),
        ("import numpy as np\ndef step(x):\n    return np.random.rand()", "uses numpy.random"),
        ("from numpy.random import rand\ndef step(x):\n    return rand()", "is in no file"),
        ("def step(x):\n    return open('f').read()", r"calls open\(\)"),
        ("def step(x):\n    return eval('x')", r"calls eval\(\)"),
        ("def step(x):\n    return id(x)", r"calls id\(\)"),
        ("def step(x):\n    return hash(x)", r"calls hash\(\)"),
        ("def step(x):\n    return globals()['x']", r"calls globals\(\)"),
        ("def step(x):\n    import math\n    return math.pi", "imports math inside"),
        ("def inner(x):\n    return open(x)\ndef step(x):\n    return inner(x)", r"calls open\(\)"),
        ("log = open(__file__)\nlog.close()\ndef step(x):\n    log.write(x)", "log is a _io|log"),
        ("import random\nr = random.Random(1)\ndef step(x):\n    return r.random()", "random"),
        ("things = {(1, 2)}\ndef step(x):\n    return things", "a set of other things"),
        ("import threading\nl = threading.Lock()\ndef step(x):\n    return l", "l is a|threading"),
        ("import math\ndef step(x):\n    return math.no_such", "math.no_such, which is not there"),
        ("words = iter([1])\ndef step(x):\n    return next(words)", "cannot be looked into"),
        ("def g():\n    yield 1\nwords = g()\ndef step(x):\n    return next(words)", "words is a"),
    ],
)
def test_what_may_answer_otherwise_next_time_is_refused(
    digest: Digest, source: str, why: str
) -> None:
    with pytest.raises(UnfathomableError, match=why):
        digest(source)


def test_a_module_that_is_handed_on_is_refused(digest: Digest) -> None:
    """Which of its attributes are read is then not in the code."""
    source = "import beside\ndef step(x):\n    return getattr(beside, x)"
    with pytest.raises(UnfathomableError, match="hands on the module beside"):
        digest(source, beside=BESIDE)


def test_code_that_is_in_no_file_is_refused() -> None:
    space: dict[str, Any] = {"__name__": "nowhere"}
    exec("def step(x):\n    return x", space)
    with pytest.raises(UnfathomableError, match="module nowhere is in no file"):
        of_value(space["step"])


# --- packages -----------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package `pkg` with its `__init__.py`, which is not the user's own."""
    library = tmp_path / "site-packages"
    place = library / "pkg"
    (place / "tests").mkdir(parents=True)
    (place / "__init__.py").write_text("def helper(x):\n    return x\n")
    (place / "part.py").write_text("")  # nobody has loaded it
    monkeypatch.setattr(own_code, "_library_folders", lambda: (str(library),))
    monkeypatch.syspath_prepend(library)
    importlib.invalidate_caches()
    yield place
    sys.modules.pop("pkg", None)


def later(path: Path) -> None:
    """As an editor or an installer leaves it: another time stamp."""
    info = path.stat()
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns + 10**9))


USES = "import pkg\ndef step(x):\n    return pkg.helper(x)\n"


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (lambda pkg: None, False),
        (lambda pkg: later(pkg / "__init__.py"), True),
        (lambda pkg: later(pkg / "part.py"), True),
        (lambda pkg: (pkg / "part.py").write_text("x = 1"), True),
        (lambda pkg: (pkg / "new.py").touch(), True),
        (lambda pkg: (pkg / "fast.so").touch(), True),
        (lambda pkg: (pkg / "part.py").unlink(), True),
        (lambda pkg: (pkg / "README.md").touch(), False),
        (lambda pkg: (pkg / "tests" / "test_part.py").touch(), False),
    ],
)
def test_a_package_in_reach_counts_by_all_its_code(
    digest: Digest, package: Path, change: Callable[[Path], object], counts: bool
) -> None:
    stamps_of.cache_clear()
    before = digest(USES)
    change(package)
    stamps_of.cache_clear()  # as in the next process
    assert (digest(USES) != before) == counts
    stamps_of.cache_clear()


def test_a_package_that_is_not_reached_does_not_count(digest: Digest, package: Path) -> None:
    source = "import pkg\ndef step(x):\n    return x\n"
    stamps_of.cache_clear()
    before = digest(source)
    later(package / "__init__.py")
    stamps_of.cache_clear()
    assert digest(source) == before
