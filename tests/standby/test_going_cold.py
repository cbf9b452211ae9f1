"""What cannot be made up for at the wake: the command starts cold, and the reason is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import standing
from standing import Standing

from holdfast.standby.channel import VARIABLE
from holdfast.standby.command import INTERPRETER

pytestmark = pytest.mark.real

Stand = Callable[..., Standing]
SAY = "import os, sys; print(sys.argv[1:], os.environ.get('RANK'), 'learned_one' in sys.modules)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "say.py").write_text(SAY)
    return tmp_path / "work"


@pytest.fixture
def library(tmp_path: Path, surroundings: dict[str, str]) -> Path:
    """A site-packages of the test's own, on PYTHONPATH, with one module."""
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "learned_one.py").write_text("VALUE = 1\n")
    # Nothing empty between two colons: that is the working folder.
    known = filter(None, (str(place), surroundings.get("PYTHONPATH")))
    surroundings["PYTHONPATH"] = os.pathsep.join(known)
    return place


@pytest.fixture
def learned(tmp_path: Path, library: Path, surroundings: dict[str, str]) -> Path:
    return standing.learn(tmp_path / "learned.json", "learned_one", env=surroundings)


def argv(*words: str) -> list[str]:
    return [sys.executable, "say.py", *words]


def ready(standby: Standing) -> dict[str, object]:
    told = standby.told()
    assert told["event"] == "ready", told
    return told


def is_cold(standby: Standing, reason: str) -> str:
    """It says why it starts cold, and does; what it printed."""
    told = standby.told()
    assert told["event"] == "cold", told
    assert reason in told["why"]
    return standby.result().stdout


def test_it_is_warm_with_what_was_learned(folder: Path, learned: Path, stand: Stand) -> None:
    standby = stand(argv("a"), learned, folder)
    assert ready(standby)["rss_bytes"] > 1 << 20
    assert standby.comm() == "hf-standby"
    standby.wake(env={**standby.env, "RANK": "3", "HOLDFAST_ATTEMPT": "7"})
    assert standby.told()["event"] == "warm"
    assert standby.result() == (0, "['a'] 3 True\n", "")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"argv": argv("b")}, "the command is another"),
        ({"cwd": "/"}, "working folder"),
    ],
)
def test_another_task(
    changes: dict[str, object], reason: str, folder: Path, learned: Path, stand: Stand
) -> None:
    standby = stand(argv("a"), learned, folder)
    ready(standby)
    standby.wake(**changes)
    is_cold(standby, reason)


@pytest.mark.parametrize("name", ["XLA_FLAGS", "PYTHONPATH", "OMP_NUM_THREADS", "ANYTHING"])
def test_another_environment(name: str, folder: Path, learned: Path, stand: Stand) -> None:
    standby = stand(argv("a"), learned, folder)
    ready(standby)
    standby.wake(env={**standby.env, name: "another"})
    printed = is_cold(standby, f"the variable {name} is another")
    assert printed == "['a'] None False\n"


def test_a_variable_of_the_attempt_that_an_import_has_read(
    folder: Path, learned: Path, library: Path, stand: Stand, surroundings: dict[str, str]
) -> None:
    (library / "learned_one.py").write_text("import os\nRANK = os.getenv('RANK')\n")
    standby = stand(argv(), learned, folder, {**surroundings, "RANK": "0"})
    ready(standby)
    standby.wake(env={**standby.env, "RANK": "1"})
    is_cold(standby, "has read the variable RANK")
    standby = stand(argv(), learned, folder, {**surroundings, "RANK": "0"})
    ready(standby)
    standby.wake()
    assert standby.told()["event"] == "warm"


GOES_THROUGH = "import os\nOWN = [name for name, _ in os.environ.items() if name[:5] == 'TQDM_']\n"


@pytest.mark.parametrize("package", ["tqdm", "other"])
def test_a_module_that_goes_through_all_variables(
    package: str,
    folder: Path,
    learned: Path,
    library: Path,
    stand: Stand,
    surroundings: dict[str, str],
) -> None:
    """Tqdm, which torch imports, goes through them as this one does; of others nobody knows."""
    (library / package).mkdir()
    (library / package / "__init__.py").touch()
    (library / package / "utils.py").write_text(GOES_THROUGH)
    (library / "learned_one.py").write_text(f"import {package}.utils\n")
    standby = stand(argv(), learned, folder, {**surroundings, "RANK": "0"})
    ready(standby)
    standby.wake(env={**standby.env, "RANK": "1"})
    if package == "tqdm":
        assert standby.told()["event"] == "warm"
    else:
        is_cold(standby, "has read the variable RANK")


def test_wsgiref_reads_the_variables_again(
    folder: Path, learned: Path, library: Path, stand: Stand, surroundings: dict[str, str]
) -> None:
    """It keeps all of them when it is imported, as grain does by way of prometheus_client."""
    (library / "learned_one.py").write_text("import wsgiref.handlers\n")
    (folder / "say.py").write_text(
        "from wsgiref.handlers import BaseHandler\nprint(BaseHandler.os_environ['RANK'])\n"
    )
    standby = stand(argv(), learned, folder, {**surroundings, "RANK": "0"})
    ready(standby)
    standby.wake(env={**standby.env, "RANK": "1"})
    assert standby.told()["event"] == "warm"
    assert standby.result().stdout == "1\n"


def test_code_that_changed(folder: Path, learned: Path, library: Path, stand: Stand) -> None:
    standby = stand(argv(), learned, folder)
    ready(standby)
    module = library / "learned_one.py"
    before = module.stat()
    module.write_text("VALUE = 2\n")  # as long as before
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    standby.wake()
    is_cold(standby, f"{module} has changed")


def test_code_that_changes_while_it_is_imported(
    folder: Path, learned: Path, library: Path, stand: Stand
) -> None:
    fifo = library / "fifo"
    os.mkfifo(fifo)
    module = library / "learned_one.py"
    module.write_text(f"open({str(fifo)!r}).read()\n")
    standby = stand(argv(), learned, folder)
    with fifo.open("w"):  # it has read the file
        module.write_text("VALUE = 2\n")
    ready(standby)
    standby.wake()
    is_cold(standby, f"{module} has changed")


@pytest.mark.parametrize("name", ["added.py", "added.pth"])
def test_a_library_that_was_added(
    name: str, folder: Path, learned: Path, library: Path, stand: Stand
) -> None:
    standby = stand(argv(), learned, folder)
    ready(standby)
    (library / name).write_text("")
    standby.wake()
    is_cold(standby, f"{library} has changed")


def test_a_module_of_the_users_own_hides_a_library(
    folder: Path, learned: Path, library: Path, stand: Stand
) -> None:
    (folder / "learned_one.py").write_text("VALUE = 'mine'\n")
    standby = stand(argv(), learned, folder)
    ready(standby)
    standby.wake()
    is_cold(standby, "has a module learned_one of its own")


def test_a_module_of_the_users_own_that_a_library_asked_for_in_vain(
    folder: Path, learned: Path, library: Path, stand: Stand
) -> None:
    (library / "learned_one.py").write_text(
        "try:\n    import optional_one\nexcept ImportError:\n    optional_one = None\n"
    )
    (folder / "optional_one.py").write_text("")
    standby = stand(argv(), learned, folder)
    ready(standby)
    standby.wake()
    is_cold(standby, "has a module optional_one of its own")


def test_the_users_own_modules_are_never_imported_ahead(
    tmp_path: Path, folder: Path, library: Path, stand: Stand, surroundings: dict[str, str]
) -> None:
    (folder / "mine.py").write_text("print('imported')\n")
    (library / "learned_one.py").write_text("import mine\n")
    env = {**surroundings, "PYTHONPATH": f"{surroundings['PYTHONPATH']}{os.pathsep}{folder}"}
    learned = standing.learn(tmp_path / "learned.json", "mine", "learned_one", env=env)
    standby = stand(argv(), learned, folder, env)
    never = ready(standby)["never"]
    assert isinstance(never, dict)
    assert "mine.py, which is no library's" in never["learned_one"]
    standby.wake()
    assert standby.told()["event"] == "warm"
    assert standby.result().stdout == "[] None False\n"


def test_an_import_that_fails_is_left_to_the_program(
    folder: Path, learned: Path, library: Path, stand: Stand
) -> None:
    (library / "learned_one.py").write_text("print('half way'); raise RuntimeError('not today')\n")
    standby = stand(argv(), learned, folder)
    assert ready(standby)["never"] == {"learned_one": "cannot be imported: RuntimeError: not today"}
    standby.wake()
    assert standby.told()["event"] == "warm"
    assert standby.result() == (0, "[] None False\n", "")


def test_a_module_that_opens_a_device_is_shunned_and_so_is_who_imports_it(
    tmp_path: Path, folder: Path, library: Path, stand: Stand, surroundings: dict[str, str]
) -> None:
    (library / "opener.py").write_text("import os\nFD = os.open(os.environ['DEVICE'], os.O_RDWR)\n")
    (library / "user_of_it.py").write_text("import opener\n")
    device = tmp_path / "dev" / "nvidia0"
    device.parent.mkdir()
    device.touch()
    env = {**surroundings, "DEVICE": str(device)}
    modules = ("learned_one", "user_of_it", "opener")
    learned = standing.learn(tmp_path / "learned.json", *modules, env=env)
    # There is no device to be opened: this file stands for one.
    (library / "learned_one.py").write_text(
        "import holdfast_standby.devices as devices, os\n"
        "devices._DEVICES = (os.path.dirname(os.environ['DEVICE']) + '/nvidia',)\n"
    )
    standby = stand(argv(), learned, folder, env)
    never = ready(standby)["never"]
    assert isinstance(never, dict)
    assert f"opens {device}" in never["opener"]
    assert "imports opener" in never["user_of_it"]
    descriptors = Path(f"/proc/{standby.process.pid}/fd").iterdir()
    assert str(device) not in [str(path.readlink()) for path in descriptors]


def test_woken_before_it_is_ready_it_goes_on_with_what_it_has(
    folder: Path, learned: Path, library: Path, stand: Stand
) -> None:
    fifo = library / "fifo"
    os.mkfifo(fifo)
    (library / "learned_one.py").write_text(f"open({str(fifo)!r}).read()\n")
    standby = stand(argv(), learned, folder)
    with fifo.open("w"):  # it is in the middle of that import
        standby.wake()
    ready(standby)
    assert standby.told()["event"] == "warm"
    assert standby.result().stdout == "[] None True\n"


def test_what_a_guessed_import_shares_with_the_standby_stays_whole(
    tmp_path: Path, folder: Path, library: Path, stand: Stand
) -> None:
    """A guess names the library alone, and not what that imports: part of it was there already."""
    (library / "learned_one.py").write_text("import collections.abc, json.tool\n")
    guess = {"format": 1, "restores": False, "guessed": ["learned_one"]}
    (tmp_path / "guess.json").write_text(json.dumps(guess))
    (folder / "say.py").write_text(
        "import sys\n"
        "import collections, json\n"
        "import collections.abc, json.tool\n"
        "print(collections.abc.Mapping.__name__, json.tool.__name__, json is json.tool.json)\n"
        "print([name for name in sys.modules if name.startswith('holdfast_standby')])\n"
    )
    standby = stand(argv(), tmp_path / "guess.json", folder)
    ready(standby)
    standby.wake()
    assert standby.told()["event"] == "warm"
    assert standby.result() == (0, "Mapping json.tool True\n[]\n", "")


def test_held_it_waits_for_one_more_line(folder: Path, learned: Path, stand: Stand) -> None:
    (folder / "say.py").write_text("print('runs')\n")
    standby = stand(argv(), learned, folder)
    ready(standby)
    standby.wake(hold=True)
    assert standby.told()["event"] == "warm"
    assert standby.comm() == "hf-standby"  # it runs nothing of the program's yet
    standby.say({})
    assert standby.result().stdout == "runs\n"


@pytest.mark.parametrize("is_ready", [True, False])
def test_unwanted_it_ends_in_silence(
    is_ready: bool, folder: Path, learned: Path, stand: Stand
) -> None:
    standby = stand(argv(), learned, folder)
    if is_ready:
        ready(standby)
    standby.hang_up()
    assert standby.result() == (0, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_it_waits_ends_it_before_the_program(
    number: int, folder: Path, learned: Path, stand: Stand
) -> None:
    (folder / "say.py").write_text("print('runs')\n")
    standby = stand(argv(), learned, folder)
    ready(standby)
    standby.process.send_signal(number)
    result = standby.result()
    assert result.stdout == ""
    assert result.code != 0


def test_what_imports_print_comes_with_the_program(
    folder: Path, learned: Path, library: Path, stand: Stand
) -> None:
    (library / "learned_one.py").write_text(
        "import os, sys\nprint('out')\nprint('error', file=sys.stderr)\nos.system('echo child')\n"
    )
    read_fd, write_fd = os.pipe()
    standby = stand(argv(), learned, folder, stdout=write_fd, stderr=write_fd)
    os.close(write_fd)
    ready(standby)
    os.set_blocking(read_fd, False)
    with pytest.raises(BlockingIOError):
        os.read(read_fd, 1)
    os.set_blocking(read_fd, True)
    standby.wake()
    with os.fdopen(read_fd, "rb") as file:
        assert file.read() == b"out\nerror\nchild\n[] None True\n"


def test_nothing_learned_yet(tmp_path: Path, folder: Path, stand: Stand) -> None:
    standby = stand(argv("a"), tmp_path / "none.json", folder)
    assert standby.told() == {"event": "unfit", "why": "nothing has been learned yet"}
    standby.wake()
    assert is_cold(standby, "nothing has been learned") == "['a'] None False\n"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 9}', '{"format": 1, "modules": [3]}'])
def test_a_list_that_is_none(text: str, tmp_path: Path, folder: Path, stand: Stand) -> None:
    path = tmp_path / "learned.json"
    path.write_text(text)
    standby = stand(argv("a"), path, folder)
    assert standby.told()["event"] == "unfit"
    standby.wake()
    assert is_cold(standby, "cannot be read") == "['a'] None False\n"


def test_a_wrapper_around_the_interpreter(
    tmp_path: Path, folder: Path, learned: Path, stand: Stand
) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    standby = stand([str(wrapper), "say.py"], learned, folder)
    assert "is a wrapper" in standby.told()["why"]
    standby.wake()
    assert is_cold(standby, "is a wrapper") == "[] None False\n"


def test_a_command_that_cannot_be_started_any_more(
    tmp_path: Path, folder: Path, learned: Path, stand: Stand
) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    standby = stand([str(python), "say.py"], tmp_path / "none.json", folder)
    assert standby.told()["event"] == "unfit"
    python.unlink()
    standby.wake()
    assert standby.told()["event"] == "cold"
    told = standby.told()
    assert (told["event"], told["errno"], told["where"]) == ("failed", 2, str(python))
    assert standby.result().code == 127


def test_without_our_hook_the_program_does_not_run(folder: Path, learned: Path) -> None:
    """An interpreter that takes no heed of PYTHONPATH finds itself in interpreter.py again."""
    wake_read, wake_write = os.pipe()
    status_read, status_write = os.pipe()
    task = {"wake_fd": wake_read, "status_fd": status_write, "imports": str(learned)}
    fields = json.dumps({**task, "argv": argv("a"), "stage": "probe", "pythonpath": None})
    process = subprocess.Popen(
        [sys.executable, "-E", INTERPRETER],
        env={**os.environ, VARIABLE: fields},
        pass_fds=[wake_read, status_write],
        stdout=subprocess.PIPE,
        cwd=folder,
    )
    os.close(wake_read)
    os.close(status_write)
    with os.fdopen(status_read) as status:
        told = json.loads(status.readline())
    os.close(wake_write)
    assert told["event"] == "unfit"
    assert "does not import sitecustomize" in told["why"]
    assert process.communicate(timeout=standing.LIMIT_S) == (b"", None)


def test_should_the_hook_be_missed_the_program_is_ended_before_it_gets_far(folder: Path) -> None:
    """The timer that the second life sets outlives exec."""
    (folder / "say.py").write_text("print('runs', flush=True)\nwhile True: pass\n")
    arm = (
        "import os, signal, sys\n"
        "from holdfast.standby.stages import TRIP_S\n"
        "signal.setitimer(signal.ITIMER_PROF, TRIP_S)\n"
        "os.execv(sys.executable, [sys.executable, 'say.py'])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", arm], cwd=folder, stdout=subprocess.PIPE)
    process.communicate(timeout=standing.LIMIT_S)
    assert process.returncode == -signal.SIGPROF


def test_the_users_own_sitecustomize_runs_once_and_is_seen(
    folder: Path, learned: Path, library: Path, stand: Stand
) -> None:
    (library / "sitecustomize.py").write_text("print('mine', flush=True)\nVALUE = 3\n")
    (folder / "say.py").write_text("import sitecustomize as s; print(s.__file__, s.VALUE)\n")
    standby = stand(argv(), learned, folder)
    want = standing.cold(argv(), folder, standby.env)
    ready(standby)
    standby.wake()
    assert standby.told()["event"] == "warm"
    assert standby.result() == want
    assert want.stdout == f"mine\n{library / 'sitecustomize.py'} 3\n"


def test_it_is_idle_while_it_imports_and_never_after(
    folder: Path, learned: Path, library: Path, stand: Stand
) -> None:
    fifo = library / "fifo"
    os.mkfifo(fifo)
    (library / "learned_one.py").write_text(f"open({str(fifo)!r}).read()\n")
    standby = stand(argv(), learned, folder)
    with fifo.open("w"):
        if os.geteuid() == 0:  # who may come back from it
            assert os.sched_getscheduler(standby.process.pid) == os.SCHED_IDLE
    ready(standby)
    assert os.sched_getscheduler(standby.process.pid) == os.SCHED_OTHER


def test_times_are_told(folder: Path, learned: Path, stand: Stand) -> None:
    began_s = time.monotonic()
    standby = stand(argv(), learned, folder)
    took_s = ready(standby)["took_s"]
    assert isinstance(took_s, float)
    assert 0 <= took_s <= time.monotonic() - began_s
